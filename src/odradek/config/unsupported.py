"""Kafka settings that have no effect on this broker.

There are two kinds. A setting that asks for protection (TLS, a login, access control, a policy) is refused as long as
it is not implemented, and so is one of TLS or SASL where no listener uses that: a broker that starts without it lets
every client in, and its operator believes otherwise. All others are accepted, because every `server.properties` has
some, and one line at the start says which of them have no effect.

When you implement a setting, remove it from the list here; `tests/config/test_unsupported.py` compares the list with
what the code reads.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from odradek.config.authorizer import STANDARD_AUTHORIZER
from odradek.config.definition import ConfigError
from odradek.config.listeners import SecurityProtocol
from odradek.config.security_definitions import SECURITY_DEFINITIONS

_LISTENER_PREFIX = re.compile(
    r"listener\.name\.[^.]+\.(?:[^.]+\.(?=sasl\.|connections\.))?"
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
    "ssl.client.auth": "none",
}
_TLS = re.compile(r"ssl\..*")
_SASL = re.compile(r"sasl\..*|connections\.max\.reauth\.ms|org\.apache\.kafka\.sasl\..*")
_AUTHORIZER = "authorizer.class.name"
_ACCESS = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
_SUPPORTED = frozenset(row[0] for row in SECURITY_DEFINITIONS)


def _named(prefix: str, *names: str) -> list[str]:
    return [f"{prefix}.{name}" for name in names]


_BOUNDS = ("{}", "min.{}", "max.{}")
WITHOUT_EFFECT: frozenset[str] = frozenset(
    [
        *("num.network.threads", "num.io.threads", "background.threads", "queued.max.requests"),
        *("num.recovery.threads.per.data.dir", "num.replica.alter.log.dirs.threads", "num.replica.fetchers"),
        *_named("socket", "send.buffer.bytes", "receive.buffer.bytes", "listen.backlog.size"),
        *_named("socket.connection.setup.timeout", "ms", "max.ms"),
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
    wanted = _asking(settings, lambda key: is_protecting(key) and key not in _SUPPORTED)
    if wanted:
        raise RefusedSetting(
            next(iter(wanted)),
            f"{_listed(wanted)} would be ignored, and every client let in: this broker has no policies or Java "
            "classes. Remove the setting to start without them.",
        )
    authorizer = settings.get(_AUTHORIZER)
    unused = {} if authorizer and authorizer.text else _asking(settings, _ACCESS.__contains__)
    if unused:
        raise RefusedSetting(
            next(iter(unused)),
            f"{_listed(unused)} would be ignored, and every client let in: there is no authorizer. Set "
            f"{_AUTHORIZER}={STANDARD_AUTHORIZER}, or remove the setting.",
        )


def refuse_unused_protection(settings: Mapping[str, Setting], used: Iterable[SecurityProtocol]) -> None:
    """Raise if a setting is about TLS or SASL, and no listener or link has that."""
    protocols = set(used)
    key = "security.inter.broker.protocol"
    if key in settings and settings[key].text.strip() not in {protocol.name for protocol in protocols}:
        raise RefusedSetting(
            key,
            f"{_listed({key: settings[key]})} would be ignored: no listener has this protocol. Name one in listeners, "
            "with its protocol in listener.security.protocol.map.",
        )
    for kind, pattern, is_used in (
        ("TLS", _TLS, any(protocol.uses_tls for protocol in protocols)),
        ("SASL", _SASL, any(protocol.uses_sasl for protocol in protocols)),
    ):
        wanted = {} if is_used else _asking(settings, pattern.fullmatch)
        if wanted:
            raise RefusedSetting(
                next(iter(wanted)),
                f"{_listed(wanted)} would be ignored, and every client let in: no listener uses {kind}. Name its "
                "protocol in listener.security.protocol.map, or remove the setting.",
            )


def refuse_unnamed_listeners(settings: Mapping[str, Setting], names: Iterable[str]) -> None:
    """Raise if a setting asks for protection of a listener that does not exist, or whose name is not in lower case:
    Kafka ignores it, and the listener that was meant is left open."""
    known = {f"listener.name.{name.lower()}." for name in names}
    wanted = {
        key: setting
        for key, setting in _asking(settings, is_protecting).items()
        if key.startswith("listener.name.") and not key.startswith(tuple(known))
    }
    if wanted:
        raise RefusedSetting(
            next(iter(wanted)),
            f"{_listed(wanted)} would be ignored: there is no such listener. With their names in lower case, settings "
            f"of the listeners that there are begin with {', '.join(sorted(known))}",
        )


def _asking(settings: Mapping[str, Setting], is_meant: Callable[[str], object]) -> dict[str, Setting]:
    """The settings that ask for something, by their full names."""
    found = {}
    for key, setting in settings.items():
        plain_key = _LISTENER_PREFIX.sub("", key)
        if is_meant(plain_key) and setting.text not in ("", _PROTECTING.get(plain_key)):
            found[key] = setting
    return found


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
