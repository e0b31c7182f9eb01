"""The broker's configuration: every key's value, where it comes from, and loading it.

A value comes from the first of: this broker's dynamic configuration, the cluster's dynamic default,
the settings at start (command line over environment over file), the key's default. A `BrokerConfig` is
immutable; a change of the dynamic layers makes a new one (`with_dynamic`).
"""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from odradek.config.broker_definitions import BROKER_DEFINITIONS
from odradek.config.definition import ConfigError, ConfigSource, Definition
from odradek.config.listeners import (
    Listener,
    SecurityProtocol,
    Server,
    advertise,
    parse_listeners,
    parse_place,
    parse_protocol_map,
    serves,
)
from odradek.config.roles import (
    BOOTSTRAP_SERVERS,
    BROKER,
    CONTROLLER,
    DEFAULT_NAME,
    check_roles,
    default_controller_listener,
    parse_bootstrap_servers,
)
from odradek.config.sources import read_environment, read_file, variable_of
from odradek.config.topic_definitions import SYNONYMS, TOPIC_DEFINITIONS, contradiction
from odradek.config.unsupported import (
    Setting,
    refuse_protection,
    refuse_unknown,
    refuse_unnamed_listeners,
    refuse_unused_protection,
    unknown,
    without_effect,
)

ALL_DIRECTORIES = "*"
OVERRIDE = "--set"  # the source of overrides, as a user knows it
_TOPIC_DEFAULTS = {name for synonyms in SYNONYMS.values() for name, _ in synonyms}
_LISTENER_KEY = re.compile(r"listener\.name\.(?P<listener>[^.]+)\.(?P<key>.+)")


def load_broker_config(
    file: Path | None = None,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> "BrokerConfig":
    """Read file, environment and overrides, each overriding the one before; ConfigError for the first bad value.

    Unknown keys are refused in the overrides; elsewhere they cause a warning that names their source.
    """
    settings = {key: Setting(text, str(file)) for key, text in (read_file(file) if file else {}).items()}
    for key, text in read_environment(environ or {}, BROKER_DEFINITIONS).items():
        settings[key] = Setting(text, variable_of(key))
    settings.update((key, Setting(text, OVERRIDE)) for key, text in (overrides or {}).items())
    refuse_protection(settings)
    strange = {key: setting for key, setting in settings.items() if not definition_of(key)}
    for key in (key for key, setting in strange.items() if setting.source == OVERRIDE):
        refuse_unknown(key, OVERRIDE, BROKER_DEFINITIONS)
    config = BrokerConfig({key: setting.text for key, setting in settings.items() if key not in strange})
    refuse_unused_protection(settings, config.protocols_in_use)
    refuse_unnamed_listeners(settings, config.listener_names)
    config.warnings += [
        f"{setting.source}: {unknown(key, BROKER_DEFINITIONS)}" for key, setting in strange.items()
    ]
    config.warnings += without_effect(settings)
    config.warnings += _exposed(settings)
    return config


def _exposed(settings: Mapping[str, Setting]) -> list[str]:
    """Returns a warning for each secret that was given as an option of the command."""
    return [
        f"{key}: every user of this machine can read what {OVERRIDE} says: put it into the settings file"
        for key, setting in settings.items()
        if setting.source == OVERRIDE and (definition := definition_of(key)) and definition.is_sensitive
    ]


def definition_of(key: str) -> Definition | None:
    """A key's definition; `listener.name.<listener>.[<mechanism>.]<key>` has that of the key it narrows."""
    match = _LISTENER_KEY.fullmatch(key)
    if not match:
        return BROKER_DEFINITIONS.get(key)
    narrowed = match["key"]
    return BROKER_DEFINITIONS.get(narrowed) or BROKER_DEFINITIONS.get(narrowed.partition(".")[2])


class BrokerConfig:
    def __init__(
        self,
        static: Mapping[str, str] | None = None,
        dynamic: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
    ) -> None:
        self.warnings: list[str] = []
        self._ignored: list[ConfigError] = []  # of the dynamic layers
        self.static = self._keep_known(static or {})
        self._apply_older_names()
        self._values: dict[str, Any] = {
            name: definition.default for name, definition in BROKER_DEFINITIONS.items()
        }
        self._values.update(self._parse(self.static))
        self._check_together()
        self.dynamic_default = self._keep_valid(dynamic_default or {})
        self.dynamic = self._keep_valid(dynamic or {})

    def __getitem__(self, key: str) -> Any:
        """The typed value of a broker key; KeyError for a key that does not exist."""
        return self._values[key]

    def with_dynamic(self, dynamic: Mapping[str, str], dynamic_default: Mapping[str, str]) -> "BrokerConfig":
        """This configuration under new dynamic layers (this broker's own, and the cluster's default)."""
        return BrokerConfig(self.static, dynamic, dynamic_default)

    def check_dynamic(self, dynamic: Mapping[str, str], dynamic_default: Mapping[str, str]) -> None:
        """Refuse, by a ConfigError, layers of which a part would be ignored."""
        ignored = self.with_dynamic(dynamic, dynamic_default)._ignored
        if ignored:
            raise ignored[0]

    def layers(self) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
        """The values that were set, as text, the strongest layer first."""
        return (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self.dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.dynamic_default),
            (ConfigSource.STATIC_BROKER_CONFIG, self.static),
        )

    def for_listener(self, listener: str, key: str) -> Any:
        """A key's value for one listener: its own where `listener.name.<listener>.<key>` is set."""
        return self._values.get(f"listener.name.{listener.lower()}.{key}", self._values.get(key))

    def own_of_listener(self, listener: str, key: str) -> Any:
        """The value that only this listener has, or None."""
        return self._values.get(f"listener.name.{listener.lower()}.{key}")

    def protocol_of(self, listener: str) -> SecurityProtocol:
        return self._protocols.get(listener, SecurityProtocol.PLAINTEXT)

    @property
    def node_id(self) -> int:
        node_id: int = self._values["node.id"]
        return node_id

    @cached_property
    def log_dirs(self) -> tuple[Path, ...]:
        names = self._values["log.dirs"] or (self._values["log.dir"],)
        return tuple(Path(name) for name in names)

    @cached_property
    def cordoned_log_dirs(self) -> tuple[Path, ...]:
        """The data directories that get no new logs; names of others have no effect."""
        named = self._values["cordoned.log.dirs"]
        return tuple(one for one in self.log_dirs if named == (ALL_DIRECTORIES,) or str(one) in named)

    @cached_property
    def metadata_log_dir(self) -> Path:
        name = self._values["metadata.log.dir"]
        return Path(name) if name else self.log_dirs[0]

    @property
    def is_broker(self) -> bool:
        return BROKER in self._values["process.roles"]

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self._values["process.roles"]

    @cached_property
    def listeners(self) -> tuple[Listener, ...]:
        """All listeners, the controller's among them."""
        found: tuple[Listener, ...] = ()
        if self.is_broker or "listeners" in self.static:
            found = parse_listeners("listeners", self._values["listeners"], self._protocols)
        has_one = any(item.name in self.controller_listener_names for item in found)
        if self.is_controller and not has_one and not self._named_controller_listeners:
            return (*found, default_controller_listener())
        return found

    @cached_property
    def controller_listener_names(self) -> tuple[str, ...]:
        """The first one is how this node reaches the controllers."""
        return self._named_controller_listeners or (DEFAULT_NAME,)

    @cached_property
    def _named_controller_listeners(self) -> tuple[str, ...]:
        names = self._values["controller.listener.names"] or ""
        return tuple(name.strip().upper() for name in names.split(",") if name.strip())

    @cached_property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """The listeners that serve clients."""
        return tuple(item for item in self.listeners if item.name not in self.controller_listener_names)

    @cached_property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The listeners that serve brokers and the other controllers; none on a node that is not a controller."""
        if not self.is_controller:
            return ()
        return tuple(item for item in self.listeners if item.name in self.controller_listener_names)

    @property
    def controller_protocol(self) -> SecurityProtocol:
        """The protocol by which this node connects to the controllers."""
        return self._protocols.get(self.controller_listener_names[0], SecurityProtocol.PLAINTEXT)

    @property
    def protocols_in_use(self) -> set[SecurityProtocol]:
        """The protocols of all listeners, and of the connections to the controllers."""
        return {
            *(item.protocol for item in self.listeners),
            self.controller_protocol,
            self.inter_broker_protocol,
        }

    @cached_property
    def quorum_bootstrap_servers(self) -> tuple[Server, ...]:
        """The servers to ask for the leader of the quorum."""
        return parse_bootstrap_servers(self._values[BOOTSTRAP_SERVERS])

    def names_a_quorum(self, hostname: str) -> bool:
        """True if other nodes belong to the quorum: unless the only bootstrap server is this node itself."""
        if not self.is_controller:
            return True
        advertised = self.advertised_listeners(self.controller_listeners, hostname)
        own = list(zip(self.controller_listeners, advertised, strict=True))
        return not all(
            any(serves(listener, told, server, hostname) for listener, told in own)
            for server in self.quorum_bootstrap_servers
        )

    @cached_property
    def metrics_listener(self) -> Server | None:
        """The address at which the node is watched; None if it is not."""
        text = self._values["metrics.listener"]
        return parse_place(text) if text else None

    @cached_property
    def inter_broker_listener_name(self) -> str:
        """The listener for connections between brokers: by name, else by protocol, else the first."""
        if self._values["inter.broker.listener.name"]:
            return str(self._values["inter.broker.listener.name"]).upper()
        protocol = SecurityProtocol[self._values["security.inter.broker.protocol"]]
        fallback = self.broker_listeners[0]
        return next((item for item in self.broker_listeners if item.protocol is protocol), fallback).name

    @property
    def brokers_listener_name(self) -> str:
        """The listener of other brokers that this node connects to, which a controller may not have itself."""
        if self.is_broker:
            return self.inter_broker_listener_name
        name = self._values["inter.broker.listener.name"] or self._values["security.inter.broker.protocol"]
        return str(name).upper()

    @property
    def inter_broker_protocol(self) -> SecurityProtocol:
        """The protocol by which this node connects to brokers. A mere controller may have no listener that says it."""
        protocol = SecurityProtocol[self._values["security.inter.broker.protocol"]]
        return self._protocols.get(self.brokers_listener_name, protocol)

    def advertised_listeners(self, bound: Iterable[Listener], default_host: str) -> tuple[Listener, ...]:
        """The addresses for clients, once `bound` has the ports that were really bound."""
        return advertise(bound, self.advertised_by_name, default_host)

    @cached_property
    def topic_defaults(self) -> dict[str, Any]:
        """The value of every topic key for a topic that sets none."""
        return self._topic_values()

    def _topic_values(self) -> dict[str, Any]:
        return {name: self._topic_default(definition) for name, definition in TOPIC_DEFINITIONS.items()}

    def _topic_default(self, definition: Definition) -> Any:
        for synonym, factor in SYNONYMS.get(definition.name, ()):
            value = self._values[synonym]
            if value is not None:
                return value if factor == 1 else max(value * factor, -1)  # -1 hours is no limit, too
        return definition.default

    @cached_property
    def _protocols(self) -> dict[str, SecurityProtocol]:
        protocols = parse_protocol_map(self._values["listener.security.protocol.map"])
        if "listener.security.protocol.map" not in self.static:
            for name in self.controller_listener_names:
                protocols.setdefault(name, SecurityProtocol.PLAINTEXT)
        return protocols

    @property
    def listener_names(self) -> frozenset[str]:
        """The listeners of this node, and those that it connects to on others."""
        return frozenset(
            {item.name for item in self.listeners}
            | {*self.controller_listener_names, self.brokers_listener_name}
        )

    @cached_property
    def advertised_by_name(self) -> dict[str, Listener]:
        """Parse `advertised.listeners`, by the names of listeners."""
        text = self._values["advertised.listeners"]
        if not text:
            return {}
        return {item.name: item for item in parse_listeners("advertised.listeners", text, self._protocols)}

    def _keep_known(self, settings: Mapping[str, str]) -> dict[str, str]:
        known = {}
        for key, text in settings.items():
            if definition_of(key):
                known[key] = text
            else:
                self.warnings.append(unknown(key, BROKER_DEFINITIONS))
        return known

    def _apply_older_names(self) -> None:
        broker_id = self.static.get("broker.id")
        if broker_id is None:
            return
        if self.static.setdefault("node.id", broker_id) != broker_id:
            raise ConfigError(
                "broker.id", broker_id, f"node.id says {self.static['node.id']}; they must agree"
            )

    def _parse(self, settings: Mapping[str, str]) -> dict[str, Any]:
        return {
            key: definition.parse(text)
            for key, text in settings.items()
            if (definition := definition_of(key))
        }

    def _keep_valid(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Apply a dynamic layer. It was checked when it was set: an error now (after an upgrade, say) must not keep
        the broker from starting. Names that are not known are kept: DescribeConfigs lists them."""
        if not settings:
            return {}
        before = dict(self._values)
        kept = dict(settings)
        self.warnings += [unknown(key, BROKER_DEFINITIONS) for key in kept if not definition_of(key)]
        while True:
            self._values = dict(before)
            try:
                self._values.update(self._parse(kept))
                self._check_topic_defaults()
                return kept
            except ConfigError as error:
                self._ignored.append(error)
                self.warnings.append(f"ignored: {error}")
                wrong = kept.keys() & {error.name} or kept.keys() & _TOPIC_DEFAULTS or kept.keys()
                kept = {key: text for key, text in kept.items() if key not in wrong}

    def _check_together(self) -> None:
        """Checks that involve several keys."""
        check_roles(self)
        for item in self.advertised_by_name.values():
            if item.host in ("0.0.0.0", "::"):
                raise ConfigError("advertised.listeners", item.host, "clients cannot connect to this address")
        self._check_topic_defaults()

    def _check_topic_defaults(self) -> None:
        """The defaults of new topics: otherwise each creation would be refused, for a reason the client cannot fix."""
        values = self._topic_values()
        if values["retention.ms"] == 0:
            raise ConfigError("log.retention.ms", 0, "must be -1 (no limit) or at least 1")
        reason = contradiction(values)
        if reason:
            raise ConfigError("log.cleaner.min.compaction.lag.ms", values["min.compaction.lag.ms"], reason)
