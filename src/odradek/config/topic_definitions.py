"""The table of topic keys, and the broker keys with their defaults.

Names, types, limits and defaults are Kafka 4's. `SYNONYMS` lists, for each topic key, the broker keys
to try in turn and the factor that turns their unit into the topic key's (hours to milliseconds).
"""

import re
from collections.abc import Mapping
from typing import Any

from odradek.config.definition import (
    MAX_LONG,
    ConfigType,
    Definition,
    Importance,
    Scope,
    Validator,
    at_least,
    between,
    each_one_of,
    one_of,
)

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
DOUBLE, LIST = ConfigType.DOUBLE, ConfigType.LIST

MIB = 1024 * 1024
MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

DEFAULT_MAX_MESSAGE_BYTES = MIB + 12  # room for the 12 bytes that precede a batch's counted length
DEFAULT_SEGMENT_BYTES = 1024 * MIB
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = ("compact", "delete")

# log.retention.* and friends in the order they are asked, with the factor to the topic key's unit.
SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", MINUTE_MS),
        ("log.retention.hours", HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}

# One request may not create more: a count beyond it, given or configured, would be refused every time.
MAX_PARTITIONS_PER_REQUEST = 10_000

_THROTTLED_REPLICA = re.compile(r"([0-9]+:[0-9]+)?")


def gzip_level(value: int) -> str | None:
    if value == -1 or 1 <= value <= 9:
        return None
    return "must be from 1 to 9, or -1 for the default"


def throttled_replicas(value: tuple[str, ...]) -> str | None:
    if "".join(value) == "*" or all(_THROTTLED_REPLICA.fullmatch(item) for item in value):
        return None
    return "must be '*' or a list of partition:broker, such as 0:1,1:2"


def _topic(
    name: str,
    type_: ConfigType,
    default: object,
    validator: Validator | None,
    documentation: str,
    internal: bool = False,
) -> Definition:
    importance, scope = Importance.MEDIUM, Scope.TOPIC
    return Definition(name, type_, default, documentation, validator, importance, scope, internal)


_DEFINITIONS = (
    _topic(
        "cleanup.policy", LIST, ("delete",), each_one_of(*CLEANUP_POLICIES),
        "What to do with old segments: delete them by age and size, compact them to each key's last value, or both.",
    ),
    _topic(
        "compression.gzip.level", INT, -1, gzip_level,
        "Level at which the broker compresses if compression.type is gzip.",
    ),
    _topic(
        "compression.lz4.level", INT, 9, between(1, 17),
        "Level at which the broker compresses if compression.type is lz4.",
    ),
    _topic(
        "compression.type", STRING, "producer", one_of(*COMPRESSION_TYPES),
        "How batches are compressed at rest; 'producer' keeps them as they were sent.",
    ),
    _topic(
        "compression.zstd.level", INT, 3, between(-131072, 22),
        "Level at which the broker compresses if compression.type is zstd.",
    ),
    _topic(
        "delete.retention.ms", LONG, DAY_MS, at_least(0),
        "How long a compacted topic keeps tombstones, so that readers see the deletion.",
    ),
    _topic(
        "file.delete.delay.ms", LONG, MINUTE_MS, at_least(0),
        "How long a deleted segment's files stay on disk for reads that still use them.",
    ),
    _topic(
        "flush.messages", LONG, MAX_LONG, at_least(1),
        "Records after which a sync of the log is forced.",
    ),
    _topic("flush.ms", LONG, MAX_LONG, at_least(0), "Time after which a sync of the log is forced."),
    _topic(
        "follower.replication.throttled.replicas", LIST, (), throttled_replicas,
        "Replicas (partition:broker, or *) that count against follower.replication.throttled.rate, where they fetch.",
    ),
    _topic(
        "index.interval.bytes", INT, 4096, at_least(0),
        "Bytes of log between two entries of the offset index.",
    ),
    _topic(
        "leader.replication.throttled.replicas", LIST, (), throttled_replicas,
        "Replicas (partition:broker, or *) that count against leader.replication.throttled.rate, where they lead.",
    ),
    _topic(
        "local.retention.bytes", LONG, -2, at_least(-2),
        "With remote storage: bytes a partition keeps on local disk; -2 means as retention.bytes.",
    ),
    _topic(
        "local.retention.ms", LONG, -2, at_least(-2),
        "With remote storage: how long a segment stays on local disk; -2 means as retention.ms.",
    ),
    _topic(
        "max.compaction.lag.ms", LONG, MAX_LONG, at_least(1),
        "The longest time a record may stay uncompacted.",
    ),
    _topic(
        "max.message.bytes", INT, DEFAULT_MAX_MESSAGE_BYTES, at_least(0),
        "The largest record batch accepted, after compression.",
    ),
    _topic(
        "message.timestamp.after.max.ms", LONG, HOUR_MS, at_least(0),
        "How far a record's timestamp may be ahead of the broker's clock.",
    ),
    _topic(
        "message.timestamp.before.max.ms", LONG, MAX_LONG, at_least(0),
        "How far a record's timestamp may be behind the broker's clock.",
    ),
    _topic(
        "message.timestamp.type", STRING, "CreateTime", one_of(*TIMESTAMP_TYPES),
        "Whether a record keeps its producer's timestamp or gets the time of its append.",
    ),
    _topic(
        "min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1),
        "Share of the log that must be uncompacted before compaction is worthwhile.",
    ),
    _topic(
        "min.compaction.lag.ms", LONG, 0, at_least(0),
        "How long a record is never compacted.",
    ),
    _topic(
        "min.insync.replicas", INT, 1, at_least(1),
        "In-sync replicas that a write with acks=all needs; with fewer it is refused.",
    ),
    _topic(
        "preallocate", BOOLEAN, False, None,
        "Whether a new segment's file gets its full size at once. Accepted and without effect.",
    ),
    _topic(
        "remote.log.copy.disable", BOOLEAN, False, None,
        "With remote storage: stop copying, keep what was copied readable.",
    ),
    _topic(
        "remote.log.delete.on.disable", BOOLEAN, False, None,
        "Whether remote data is deleted once remote storage is switched off.",
    ),
    _topic(
        "remote.storage.enable", BOOLEAN, False, None,
        "Keep old segments in remote storage. Odradek has none: only false is accepted.",
    ),
    _topic(
        "retention.bytes", LONG, -1, None,
        "Size of a partition above which its oldest segments are deleted; -1 for no limit.",
    ),
    _topic(
        "retention.ms", LONG, 7 * DAY_MS, at_least(-1),
        "Age at which a segment is deleted; -1 for no limit.",
    ),
    _topic(
        "segment.bytes", INT, DEFAULT_SEGMENT_BYTES, at_least(MIB),
        "Size at which a new segment is started.",
    ),
    _topic(
        "segment.index.bytes", INT, 10 * MIB, at_least(4),
        "Size at which a segment's offset index is full, and a new segment is started.",
    ),
    _topic(
        "segment.jitter.ms", LONG, 0, at_least(0),
        "segment.ms is reduced by a random time up to this, so that segments do not all roll at once.",
    ),
    _topic("segment.ms", LONG, 7 * DAY_MS, at_least(1), "Age at which a new segment is started, full or not."),
    _topic(
        "unclean.leader.election.enable", BOOLEAN, False, None,
        "Whether a replica that lacks committed records may lead when no other is left: records are lost. Used once "
        "there is more than one broker.",
    ),
    _topic(
        "internal.segment.bytes", INT, None, at_least(1),
        "segment.bytes without its lower limit, for tests.", internal=True,
    ),
)  # fmt: skip

TOPIC_DEFINITIONS: dict[str, Definition] = {definition.name: definition for definition in _DEFINITIONS}


def contradiction(values: Mapping[str, Any]) -> str | None:
    """Checks of a topic's values that involve several keys, whether the topic or the broker sets them."""
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if least > most:
        return f"min.compaction.lag.ms ({least}) is more than max.compaction.lag.ms ({most})"
    if values["remote.storage.enable"]:
        return "remote.storage.enable must be false: this broker has no tiered storage"
    return None
