"""Kafka settings that have no effect on this broker.

There are two kinds. A setting that asks for protection (TLS, a login, access control, a policy) is refused as long as
it is not implemented: a broker that starts without it lets every client in, and its operator believes otherwise. All
others are accepted, because every `server.properties` has some, and one line at the start says which of them have no
effect.

When you implement a setting, remove it from the list here; `tests/config/test_unsupported.py` compares the list with
what the code reads.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.config.definition import ConfigError
from odradek.config.listeners import Listener, SecurityProtocol

_LISTENER_PREFIX = re.compile(
    r"listener\.name\.[^.]+\.(?:[^.]+\.(?=sasl\.))?"
)  # and perhaps a SASL mechanism
_PROTECTING_FAMILIES = re.compile(
    r"(ssl|sasl|authorizer|delegation\.token|principal\.builder|security\.providers"
    r"|(create\.topic|alter\.config)\.policy)\b.*"
)
# Values that are allowed anyway, because they ask for nothing.
_PROTECTING: Mapping[str, str] = {
    "super.users": "",
    "allow.everyone.if.no.acl.found": "true",
    "connections.max.reauth.ms": "0",
    "security.inter.broker.protocol": "PLAINTEXT",
    "ssl.client.auth": "none",
}


def _named(prefix: str, *names: str) -> list[str]:
    return [f"{prefix}.{name}" for name in names]


_BOUNDS = ("{}", "min.{}", "max.{}")
WITHOUT_EFFECT: frozenset[str] = frozenset(
    [
        *("num.network.threads", "num.io.threads", "background.threads", "queued.max.requests"),
        *("num.recovery.threads.per.data.dir", "num.replica.alter.log.dirs.threads", "num.replica.fetchers"),
        *_named("socket", "send.buffer.bytes", "receive.buffer.bytes", "listen.backlog.size"),
        *_named("socket.connection.setup.timeout", "ms", "max.ms"),
        *("connection.failed.authentication.delay.ms", "early.start.listeners"),
        *_named("log.flush", "offset.checkpoint.interval.ms", "start.offset.checkpoint.interval.ms"),
        *("log.initial.task.delay.ms", "log.dir.failure.timeout.ms", "log.preallocate"),
        *_named("log.cleaner", "threads", "io.buffer.size", "io.buffer.load.factor"),
        *_named("log.local.retention", "bytes", "ms"),
        *("replica.alter.log.dirs.io.max.bytes.per.second", "replica.socket.receive.buffer.bytes"),
        *("leader.imbalance.per.broker.percentage",),
        *(f"{kind}.purgatory.purge.interval.requests" for kind in ("fetch", "producer", "delete.records")),
        *("share.fetch.purgatory.purge.interval.requests",),
        *("controller.quorum.append.linger.ms", "metadata.max.idle.interval.ms"),
        *_named("group.coordinator", "rebalance.protocols", "threads", "append.linger.ms"),
        *("group.consumer.assignment.interval.ms", "group.share.assignors", "group.share.max.size"),
        *("group.share.max.share.sessions",),
        *(f"group.share.{bound.format('session.timeout.ms')}" for bound in _BOUNDS),
        *(f"group.share.{bound.format('heartbeat.interval.ms')}" for bound in _BOUNDS),
        *(f"group.share.{bound.format('assignment.interval.ms')}" for bound in _BOUNDS),
        *(f"group.share.{bound.format('delivery.count.limit')}" for bound in _BOUNDS),
        *(f"group.share.{bound.format('record.lock.duration.ms')}" for bound in _BOUNDS),
        *(f"group.share.{bound.format('partition.max.record.locks')}" for bound in _BOUNDS),
        *_named("share.coordinator", "append.linger.ms", "load.buffer.size", "threads", "write.timeout.ms"),
        *("share.coordinator.snapshot.update.records.per.snapshot",),
        *_named("share.coordinator.state.topic", "compression.codec", "min.isr", "num.partitions"),
        *_named("share.coordinator.state.topic", "replication.factor", "segment.bytes"),
        *("offsets.commit.timeout.ms", "offsets.load.buffer.size", "offsets.topic.compression.codec"),
        *("transaction.state.log.load.buffer.size",),
        *("producer.id.expiration.check.interval.ms",),
    ]
)


class Setting(NamedTuple):
    text: str
    source: str  # as its user knows it: a file's path, a variable of the environment, --set


class RefusedSetting(ConfigError):
    """A setting that must not be ignored silently. The message never shows its value."""

    def __init__(self, name: str, message: str) -> None:
        Exception.__init__(self, message)
        self.name, self.value, self.reason = name, "", message


def is_protecting(key: str) -> bool:
    key = _LISTENER_PREFIX.sub("", key)
    return key in _PROTECTING or _PROTECTING_FAMILIES.fullmatch(key) is not None


def refuse_protection(settings: Mapping[str, Setting]) -> None:
    """Raise if a setting asks for protection that is not implemented."""
    wanted = {
        key: setting
        for key, setting in settings.items()
        if is_protecting(key) and setting.text not in ("", _PROTECTING.get(_LISTENER_PREFIX.sub("", key)))
    }
    if wanted:
        raise RefusedSetting(
            next(iter(wanted)),
            f"{_listed(wanted)} would be ignored, and every client let in: this broker has no TLS, SASL, access "
            "control or policies yet. Remove the setting to start without them.",
        )


def refuse_protected_listeners(listeners: Iterable[Listener], to_controllers: SecurityProtocol) -> None:
    """Raise for a listener, or a way to the controllers, that should be safe: it must not be open instead."""
    reason = "TLS and SASL are not supported yet, only PLAINTEXT is"
    for listener in listeners:
        if listener.protocol is not SecurityProtocol.PLAINTEXT:
            raise ConfigError("listeners", listener.name, reason)
    if to_controllers is not SecurityProtocol.PLAINTEXT:
        raise ConfigError("controller.listener.names", to_controllers.name, reason)


def refuse_unknown(key: str, source: str, names: Iterable[str]) -> None:
    """Raise for an unknown key if the user can correct it at once."""
    raise RefusedSetting(key, f"{source}: {unknown(key, names)}")


def unknown(key: str, names: Iterable[str]) -> str:
    import difflib  # rarely needed

    likely = difflib.get_close_matches(key, list(names), n=1, cutoff=0.75)
    hint = f"; did you mean {likely[0]}?" if likely else ""
    return f"unknown setting {key}{hint}"


def without_effect(settings: Mapping[str, Setting]) -> list[str]:
    """One line for all settings without effect; none if there are none."""
    idle = {key: setting for key, setting in settings.items() if key in WITHOUT_EFFECT}
    return [f"accepted, but without effect here: {_listed(idle)}"] if idle else []


def _listed(settings: Mapping[str, Setting]) -> str:
    """Names by where they are set: a, b (server.properties), c (--set)."""
    sources = dict.fromkeys(setting.source for setting in settings.values())
    parts = []
    for source in sources:
        names = sorted(key for key, setting in settings.items() if setting.source == source)
        parts.append(f"{', '.join(names)} ({source})")
    return ", ".join(parts)
