"""The broker keys of the coordinators: groups of every kind, committed offsets, transactions, producer ids.

Rows of (name, type, default, validator, importance, scope, documentation), read by the broker's table.
"""

from odradek.config.definition import (
    MAX_INT,
    ConfigType,
    Importance,
    Row,
    Scope,
    at_least,
    between,
    each_one_of,
    one_of,
)
from odradek.config.topic_definitions import (
    DAY_MS,
    HOUR_MS,
    MAX_PARTITIONS_PER_REQUEST,
    MIB,
    TOPIC_DEFINITIONS,
)

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
SHORT, LIST = ConfigType.SHORT, ConfigType.LIST
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
FIXED, DYNAMIC = Scope.READ_ONLY, Scope.CLUSTER_WIDE

# Settings for creating internal topics have the limits of topic creation: later no one would see the error.
SEGMENT_BYTES = TOPIC_DEFINITIONS["segment.bytes"].validator
PARTITIONS = between(1, MAX_PARTITIONS_PER_REQUEST)

_CLASSIC: tuple[Row, ...] = (
    ("group.min.session.timeout.ms", INT, 6000, None, MEDIUM, FIXED,
     "The shortest session timeout a classic member may ask for."),
    ("group.max.session.timeout.ms", INT, 1800000, None, MEDIUM, FIXED,
     "The longest session timeout a classic member may ask for."),
    ("group.initial.rebalance.delay.ms", INT, 3000, None, MEDIUM, FIXED,
     "How long an empty classic group waits for more members before its first rebalance."),
    ("group.max.size", INT, MAX_INT, at_least(1), MEDIUM, FIXED, "Members in one classic group."),
    ("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer", "share"),
     each_one_of("classic", "consumer", "share", "streams"), MEDIUM, FIXED, "The kinds of groups served."),
    ("group.coordinator.threads", INT, 4, at_least(1), MEDIUM, FIXED,
     "Accepted and without effect: a broker is one event loop."),
    ("group.coordinator.append.linger.ms", INT, -1, at_least(-1), MEDIUM, FIXED,
     "How long the coordinator collects records before it writes them; -1 leaves it to the coordinator."),
)  # fmt: skip

_CONSUMER: tuple[Row, ...] = (
    ("group.consumer.session.timeout.ms", INT, 45000, at_least(1), MEDIUM, FIXED,
     "Time without heartbeats after which a consumer group removes a member."),
    ("group.consumer.min.session.timeout.ms", INT, 45000, at_least(1), MEDIUM, FIXED,
     "The lowest value of that timeout for a group."),
    ("group.consumer.max.session.timeout.ms", INT, 60000, at_least(1), MEDIUM, FIXED,
     "The highest value of that timeout for a group."),
    ("group.consumer.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, FIXED,
     "How often a consumer group's members are told to send heartbeats."),
    ("group.consumer.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, FIXED,
     "The lowest value of that interval for a group."),
    ("group.consumer.max.heartbeat.interval.ms", INT, 15000, at_least(1), MEDIUM, FIXED,
     "The highest value of that interval for a group."),
    ("group.consumer.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM, DYNAMIC,
     "The minimum time between two assignments of a consumer group. Accepted and without effect: a group is reassigned "
     "as soon as something changes."),
    ("group.consumer.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM, FIXED,
     "The lowest value of that interval for a group."),
    ("group.consumer.max.assignment.interval.ms", INT, 15000, at_least(0), MEDIUM, FIXED,
     "The highest value of that interval for a group."),
    ("group.consumer.max.size", INT, MAX_INT, at_least(1), MEDIUM, FIXED, "Members in one consumer group."),
    ("group.consumer.assignors", LIST, ("uniform", "range"), None, MEDIUM, FIXED,
     "The assignors a consumer group may name; the first is used if it names none."),
    ("group.consumer.migration.policy", STRING, "bidirectional",
     one_of("bidirectional", "upgrade", "downgrade", "disabled"), MEDIUM, FIXED,
     "Which changes between classic and consumer protocol a group with members may make."),
    ("group.consumer.regex.refresh.interval.ms", INT, 600000, at_least(10000), MEDIUM, FIXED,
     "How often a subscription by pattern is matched again with the topics."),
)  # fmt: skip

_SHARE: tuple[Row, ...] = (
    ("group.share.session.timeout.ms", INT, 45000, at_least(1), MEDIUM, FIXED,
     "Time without heartbeats after which a share group removes a member."),
    ("group.share.min.session.timeout.ms", INT, 45000, at_least(1), MEDIUM, FIXED,
     "The lowest value of that timeout for a group."),
    ("group.share.max.session.timeout.ms", INT, 60000, at_least(1), MEDIUM, FIXED,
     "The highest value of that timeout for a group."),
    ("group.share.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, FIXED,
     "How often a share group's members are told to send heartbeats."),
    ("group.share.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, FIXED,
     "The lowest value of that interval for a group."),
    ("group.share.max.heartbeat.interval.ms", INT, 15000, at_least(1), MEDIUM, FIXED,
     "The highest value of that interval for a group."),
    ("group.share.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM, DYNAMIC,
     "The minimum time between two assignments of a share group. Accepted and without effect: there are none yet."),
    ("group.share.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM, FIXED,
     "The lowest value of that interval for a group."),
    ("group.share.max.assignment.interval.ms", INT, 15000, at_least(0), MEDIUM, FIXED,
     "The highest value of that interval for a group."),
    ("group.share.max.size", INT, 200, between(1, 1000), MEDIUM, FIXED, "Members in one share group."),
    ("group.share.delivery.count.limit", INT, 5, between(2, 10), MEDIUM, FIXED,
     "How often a record is delivered before it is given up."),
    ("group.share.record.lock.duration.ms", INT, 30000, between(1000, 3600000), MEDIUM, FIXED,
     "How long a record is locked for the member that fetched it."),
    ("group.share.min.record.lock.duration.ms", INT, 15000, between(1000, 30000), MEDIUM, FIXED,
     "The lowest value of that duration for a group."),
    ("group.share.max.record.lock.duration.ms", INT, 60000, between(30000, 3600000), MEDIUM, FIXED,
     "The highest value of that duration for a group."),
    ("group.share.partition.max.record.locks", INT, 2000, between(100, 10000), MEDIUM, FIXED,
     "Records of one partition that may be locked at one time."),
    ("group.share.min.partition.max.record.locks", INT, 100, at_least(1), MEDIUM, FIXED,
     "The lowest value of that number for a group."),
    ("group.share.max.partition.max.record.locks", INT, 4000, at_least(1), MEDIUM, FIXED,
     "The highest value of that number for a group."),
    ("group.share.min.delivery.count.limit", INT, 2, at_least(1), MEDIUM, FIXED,
     "The lowest value of the delivery count limit for a group."),
    ("group.share.max.delivery.count.limit", INT, 10, at_least(1), MEDIUM, FIXED,
     "The highest value of the delivery count limit for a group."),
    ("group.share.assignors", LIST, ("simple",), None, MEDIUM, FIXED, "The assignors of share groups."),
    ("group.share.max.share.sessions", INT, 2000, at_least(1), MEDIUM, FIXED,
     "Share sessions kept at one time."),
    ("share.fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM, FIXED,
     "Accepted and without effect: parked share fetches need no purge."),
)  # fmt: skip

_SHARE_STATE: tuple[Row, ...] = (
    ("share.coordinator.append.linger.ms", INT, -1, at_least(-1), MEDIUM, FIXED,
     "How long the coordinator collects records before it writes them; -1 leaves it to the coordinator."),
    ("share.coordinator.load.buffer.size", INT, 5 * MIB, at_least(1), HIGH, FIXED,
     "Bytes read at once while a coordinator loads."),
    ("share.coordinator.snapshot.update.records.per.snapshot", INT, 500, at_least(0), MEDIUM, FIXED,
     "Updates of a partition's share state between two full records of it."),
    ("share.coordinator.state.topic.compression.codec", INT, 0, between(0, 4), MEDIUM, FIXED,
     "Codec, by its number, of batches in the share state topic."),
    ("share.coordinator.state.topic.min.isr", SHORT, 2, at_least(1), MEDIUM, FIXED,
     "min.insync.replicas of the share state topic."),
    ("share.coordinator.state.topic.num.partitions", INT, 50, PARTITIONS, HIGH, FIXED,
     "Partitions of the share state topic."),
    ("share.coordinator.state.topic.replication.factor", SHORT, 3, at_least(1), HIGH, FIXED,
     "Replicas of the share state topic."),
    ("share.coordinator.state.topic.segment.bytes", INT, 100 * MIB, SEGMENT_BYTES, HIGH, FIXED,
     "Segment size of the share state topic."),
    ("share.coordinator.threads", INT, 1, at_least(1), MEDIUM, FIXED,
     "Accepted and without effect: a broker is one event loop."),
    ("share.coordinator.write.timeout.ms", INT, 5000, at_least(1), HIGH, FIXED,
     "How long a write of share state may take."),
)  # fmt: skip

_OFFSETS: tuple[Row, ...] = (
    ("offset.metadata.max.bytes", INT, 4096, None, HIGH, FIXED,
     "The longest metadata string a client may commit with an offset."),
    ("offsets.commit.timeout.ms", INT, 5000, at_least(1), HIGH, FIXED,
     "How long a commit waits for the replicas of the offsets topic."),
    ("offsets.load.buffer.size", INT, 5 * MIB, at_least(1), HIGH, FIXED,
     "Bytes read at once while a coordinator loads."),
    ("offsets.retention.minutes", INT, 7 * 24 * 60, at_least(1), HIGH, FIXED,
     "How long the offsets of an empty group are kept."),
    ("offsets.retention.check.interval.ms", LONG, 600000, at_least(1), HIGH, FIXED,
     "How often to look for expired offsets."),
    ("offsets.topic.num.partitions", INT, 50, PARTITIONS, HIGH, FIXED, "Partitions of the offsets topic."),
    ("offsets.topic.replication.factor", SHORT, 3, at_least(1), HIGH, FIXED,
     "Replicas of the offsets topic."),
    ("offsets.topic.segment.bytes", INT, 100 * MIB, SEGMENT_BYTES, HIGH, FIXED,
     "Segment size of the offsets topic."),
    ("offsets.topic.compression.codec", INT, 0, between(0, 4), HIGH, FIXED,
     "Codec, by its number, of batches in the offsets topic."),
)  # fmt: skip

_TRANSACTIONS: tuple[Row, ...] = (
    ("transaction.max.timeout.ms", INT, 900000, at_least(1), HIGH, FIXED,
     "The longest transaction timeout a producer may ask for."),
    ("transactional.id.expiration.ms", INT, 7 * DAY_MS, at_least(1), HIGH, FIXED,
     "How long an unused transactional id is remembered."),
    ("transaction.state.log.num.partitions", INT, 50, PARTITIONS, HIGH, FIXED,
     "Partitions of the transactions topic."),
    ("transaction.state.log.replication.factor", SHORT, 3, at_least(1), HIGH, FIXED,
     "Replicas of the transactions topic."),
    ("transaction.state.log.min.isr", INT, 2, at_least(1), HIGH, FIXED,
     "min.insync.replicas of the transactions topic."),
    ("transaction.state.log.segment.bytes", INT, 100 * MIB, SEGMENT_BYTES, HIGH, FIXED,
     "Segment size of the transactions topic."),
    ("transaction.state.log.load.buffer.size", INT, 5 * MIB, at_least(1), HIGH, FIXED,
     "Bytes read at once while a coordinator loads."),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000, at_least(1), LOW, FIXED,
     "When to try again to abort a transaction that timed out, if that failed. It is aborted on time."),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", INT, HOUR_MS, at_least(1), LOW, FIXED,
     "How often to look for expired transactional ids."),
    ("transaction.partition.verification.enable", BOOLEAN, True, None, LOW, DYNAMIC,
     "Whether a transactional write is refused unless its partition was added to the transaction."),
    ("producer.id.expiration.ms", INT, DAY_MS, at_least(1), LOW, DYNAMIC,
     "How long a partition remembers an idle producer's sequence."),
    ("producer.id.expiration.check.interval.ms", INT, 600000, at_least(1), LOW, FIXED,
     "How often to look for idle producers."),
)  # fmt: skip

COORDINATOR_DEFINITIONS: tuple[Row, ...] = (
    _CLASSIC + _CONSUMER + _SHARE + _SHARE_STATE + _OFFSETS + _TRANSACTIONS
)
