"""The roles of a node, broker, controller or both, and the listeners and settings that go with them.

The rules are Kafka's. Two are our own: a controller without a controller listener gets one on localhost, so that a
single node needs no configuration; and `controller.quorum.voters` is refused, because the voters are in the metadata
log, where a node that lost its disk cannot vote under its old name.
"""

from typing import TYPE_CHECKING

from odradek.config.definition import ConfigError
from odradek.config.listeners import Listener, SecurityProtocol, Server, parse_server

if TYPE_CHECKING:
    from odradek.config.broker import BrokerConfig

BROKER, CONTROLLER = "broker", "controller"
ROLES, LISTENERS, ADVERTISED = "process.roles", "listeners", "advertised.listeners"
NAMES = "controller.listener.names"
BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"
VOTERS = "controller.quorum.voters"
DEFAULT_NAME = "CONTROLLER"


def default_controller_listener() -> Listener:
    return Listener(DEFAULT_NAME, "localhost", 0, SecurityProtocol.PLAINTEXT)


def parse_bootstrap_servers(items: tuple[str, ...]) -> tuple[Server, ...]:
    try:
        return tuple(map(parse_server, items))
    except ValueError as error:
        raise ConfigError(BOOTSTRAP_SERVERS, ",".join(items), str(error)) from None


def check_roles(config: "BrokerConfig") -> None:
    """Refuse, with a ConfigError, settings that contradict each other."""
    if not config[ROLES]:
        raise ConfigError(ROLES, "", "must be broker, controller or both")
    _refuse_voters(config[VOTERS])
    servers = config.quorum_bootstrap_servers
    if config.is_controller:
        _check_controller(config)
    elif not servers:
        raise ConfigError(
            BOOTSTRAP_SERVERS, "", "a node that is only a broker needs the host:port of its controllers here"
        )
    if config.is_broker and not config.broker_listeners:
        raise ConfigError(LISTENERS, config[LISTENERS], "a broker needs a listener for clients")
    for key, names in _listener_names(config).items():
        _check_listeners(config, key, names)


def _listener_names(config: "BrokerConfig") -> dict[str, list[str]]:
    return {
        LISTENERS: [item.name for item in config.listeners],
        ADVERTISED: [item.name for item in config.advertised_by_name.values()],
    }


def _check_controller(config: "BrokerConfig") -> None:
    if not config.controller_listeners:
        names = ",".join(config.controller_listener_names)
        raise ConfigError(NAMES, names, f"a controller needs one of them in {LISTENERS}: {config[LISTENERS]}")


def _check_listeners(config: "BrokerConfig", key: str, names: list[str]) -> None:
    for name in names:
        is_controllers = name in config.controller_listener_names
        if is_controllers and not config.is_controller:
            raise ConfigError(
                key, name, f"{NAMES} makes it a controller's listener, but this node is not a controller"
            )
        if not is_controllers and not config.is_broker:
            raise ConfigError(
                key, name, f"a node that is only a controller has no listeners except those in {NAMES}"
            )


def _refuse_voters(voters: tuple[str, ...]) -> None:
    if voters:
        servers = ",".join(voter.rpartition("@")[2] for voter in voters)
        raise ConfigError(
            VOTERS,
            ",".join(voters),
            f"the voters are kept in the metadata log. Set {BOOTSTRAP_SERVERS}={servers} instead, and name the first "
            "voters once, with 'odradek format --initial-controllers'",
        )
