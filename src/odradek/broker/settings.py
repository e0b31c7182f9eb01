"""The first use that a node makes of its settings: whether it can run with them, and the bounds of its server."""

from odradek.config.authorizer import access_control
from odradek.config.broker import BrokerConfig
from odradek.config.broker_definitions import parse_per_address
from odradek.config.definition import ConfigError
from odradek.config.listeners import SecurityProtocol
from odradek.net.bounds import Bounds, ListenerBounds
from odradek.quotas.keys import CONNECTION_CREATION_RATE, Quotas
from odradek.quotas.limits import limits_of_addresses
from odradek.serving.quotas import quota_windows

DEFAULT_REQUEST_MEMORY = 512 << 20


def check_listeners(config: BrokerConfig) -> None:
    """Refuse listeners that cannot be as safe as their settings say, and ways to other nodes."""
    if config.protocols_in_use != {SecurityProtocol.PLAINTEXT}:
        from odradek.config.security import link_security, listener_security  # imports OpenSSL

        for listener in config.listeners:
            listener_security(config, listener.name, listener.protocol)
        link_security(config, config.controller_listener_names[0], config.controller_protocol)
        link_security(config, config.brokers_listener_name, config.inter_broker_protocol)


def check_supported(config: BrokerConfig) -> None:
    """Refuse settings that are not supported."""
    check_listeners(config)
    access_control(config)
    if len(config.log_dirs) > 1:
        names = ",".join(str(directory) for directory in config.log_dirs)
        raise ConfigError("log.dirs", names, "more than one directory is not supported")


def bounds(config: BrokerConfig, quotas: Quotas) -> Bounds:
    """The bounds of connections and their requests."""
    windows, window_ms = quota_windows(config)
    memory = config["queued.max.request.bytes"]
    return Bounds(
        max_frame_size=config["socket.request.max.bytes"],
        max_request_memory=memory if memory > 0 else DEFAULT_REQUEST_MEMORY,
        max_connections=config["max.connections"],
        max_connections_per_address=config["max.connections.per.ip"],
        max_connections_of_address=parse_per_address(config["max.connections.per.ip.overrides"]),
        max_new_connections_per_second=config["max.connection.creation.rate"],
        of_listener={
            listener.name: ListenerBounds(
                config.for_listener(listener.name, "max.connections"),
                config.for_listener(listener.name, "max.connection.creation.rate"),
            )
            for listener in config.listeners
        },
        max_idle_seconds=config["connections.max.idle.ms"] / 1000,
        socket_send_buffer=-1,
        socket_receive_buffer=-1,
        new_connections_of_address=limits_of_addresses(CONNECTION_CREATION_RATE, quotas),
        rate_windows=windows,
        rate_window_ms=window_ms,
    )
