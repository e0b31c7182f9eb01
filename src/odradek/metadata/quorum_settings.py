"""The settings of the metadata quorum and of a broker's registration, from Kafka's names."""

from typing import NamedTuple

from odradek.config.broker import BrokerConfig
from odradek.raft.outgoing import Settings


def quorum_settings(config: BrokerConfig) -> Settings:
    return Settings(
        config["controller.quorum.election.timeout.ms"],
        max(config["controller.quorum.election.backoff.max.ms"], 1),
        config["controller.quorum.fetch.timeout.ms"],
        config["controller.quorum.request.timeout.ms"],
        config["controller.quorum.retry.backoff.ms"],
    )


class RegistrationSettings(NamedTuple):
    """The settings by which a broker registers with the active controller, and stays registered."""

    heartbeat_interval_ms: int
    timeout_ms: int  # a broker that is not registered by then stops
    response_timeout_ms: int  # for any request to the controller


def registration_settings(config: BrokerConfig) -> RegistrationSettings:
    return RegistrationSettings(
        config["broker.heartbeat.interval.ms"],
        config["initial.broker.registration.timeout.ms"],
        config["controller.socket.timeout.ms"],
    )
