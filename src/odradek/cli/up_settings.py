"""The settings of a node that `odradek up`, `odradek broker` and `odradek format` work with."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.cli.logs import FORMAT_VARIABLE, LEVEL_VARIABLE

if TYPE_CHECKING:
    from odradek.config.broker import BrokerConfig

HOST = "localhost"
DEFAULT_PORT = 9092
NOT_SETTINGS = {  # other ODRADEK_ variables name settings
    "ODRADEK_CLASS_ARCHIVE",
    "ODRADEK_DATA_DIR",
    "ODRADEK_BOOTSTRAP_SERVER",
    "ODRADEK_PROFILE",
    "ODRADEK_TEST_BOOTSTRAP",
    "ODRADEK_WORKER_PYTHON",
    LEVEL_VARIABLE,
    FORMAT_VARIABLE,
}
REBALANCE_DELAY = "group.initial.rebalance.delay.ms"


def load_config(options: argparse.Namespace, environ: Mapping[str, str]) -> "BrokerConfig":
    """Options over environment over file; without any of them localhost and the user's own data directory, and
    under `up` no wait for more members before a group's first rebalance."""
    from odradek.broker.settings import check_listeners
    from odradek.config.broker import load_broker_config

    overrides = dict(options.set)
    settings = {name: value for name, value in environ.items() if name not in NOT_SETTINGS}
    if options.data_dir is not None:
        overrides["log.dirs"] = str(options.data_dir.absolute())
    config = load_broker_config(options.config, overrides, settings)
    if options.port is not None:
        check_listeners(config)
        refuse_open_port(config)
        listeners = [f"PLAINTEXT://{HOST}:{options.port}", *controller_listeners(config, "listeners")]
        overrides["listeners"] = ",".join(listeners)
        told = controller_listeners(
            config, "advertised.listeners"
        )  # the file's others would name another port
        overrides["advertised.listeners"] = dict(options.set).get("advertised.listeners", ",".join(told))
        config = load_broker_config(options.config, overrides, settings)
    defaults = {}
    if config.is_broker and "listeners" not in config.static:
        defaults["listeners"] = f"PLAINTEXT://{HOST}:{DEFAULT_PORT}"
    if not {"log.dirs", "log.dir"} & config.static.keys():
        defaults["log.dirs"] = str(default_data_dir(environ).absolute())
    if options.command == "up" and REBALANCE_DELAY not in config.static:
        defaults[REBALANCE_DELAY] = "0"
    return load_broker_config(options.config, overrides | defaults, settings) if defaults else config


def refuse_open_port(config: "BrokerConfig") -> None:
    """Raises ConfigError if --port would replace a listener that is protected by one that is not."""
    from odradek.config.definition import ConfigError
    from odradek.config.listeners import SecurityProtocol

    for listener in config.broker_listeners:
        if listener.protocol is not SecurityProtocol.PLAINTEXT:
            reason = "--port would replace it by one that is open to everybody; name the port there"
            raise ConfigError("listeners", listener.name, reason)


def controller_listeners(config: "BrokerConfig", key: str) -> list[str]:
    """The part of a setting that concerns the controllers' listeners."""
    items = (item.strip() for item in config.static.get(key, "").split(","))
    return [item for item in items if item.partition("://")[0].upper() in config.controller_listener_names]


def default_data_dir(environ: Mapping[str, str]) -> Path:
    if chosen := environ.get("ODRADEK_DATA_DIR"):
        return Path(chosen)
    return base_data_dir(environ)


def base_data_dir(environ: Mapping[str, str]) -> Path:
    """The default data directory of the user."""
    base = environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "odradek"
