"""The table of broker keys: Kafka 4's names, types and defaults, and some keys of Odradek.

The defaults of topic keys are derived from the topic table, so that type, limit and default
cannot drift apart. Some keys configure thread pools, which Odradek, with one event loop, does not have: they are
accepted because every `server.properties` has them, and their documentation says that they have no effect.

Defaults that differ from Kafka's: `log.dir` (our own directory), `node.id` and `process.roles` (a single
node starts without any configuration), key stores (PEM, the only format we read) and SASL mechanisms (PLAIN,
as there is no Kerberos). Listeners and TLS settings are read at start only, where Kafka can change them later.
"""

from odradek.config.coordinator_definitions import COORDINATOR_DEFINITIONS
from odradek.config.definition import (
    MAX_DOUBLE,
    MAX_INT,
    MAX_LONG,
    ConfigType,
    Definition,
    Importance,
    Row,
    Scope,
    at_least,
    between,
    each_one_of,
    one_of,
)
from odradek.config.listeners import parse_place
from odradek.config.security_definitions import SECURITY_DEFINITIONS
from odradek.config.topic_definitions import (
    HOUR_MS,
    MAX_PARTITIONS_PER_REQUEST,
    MIB,
    SYNONYMS,
    TOPIC_DEFINITIONS,
)

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
DOUBLE, LIST = ConfigType.DOUBLE, ConfigType.LIST
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
FIXED, DYNAMIC = Scope.READ_ONLY, Scope.CLUSTER_WIDE

PROTOCOL_MAP_DEFAULT = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
NO_EFFECT = "Accepted and without effect: a broker is one event loop."
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"


def directories(value: tuple[str, ...]) -> str | None:
    """Say what is wrong with a value of cordoned.log.dirs, if anything is."""
    if "*" in value and len(value) > 1:
        return "must be '*' or a list of data directories, not both"
    return None if all(value) else "must not have empty entries"


def place(value: str) -> str | None:
    """Say what is wrong with a value of metrics.listener, if anything is; empty disables it."""
    try:
        if value:
            parse_place(value)
    except ValueError as error:
        return str(error)
    return None


def per_address(value: str) -> str | None:
    """Say what is wrong with a value of max.connections.per.ip.overrides, if anything is."""
    try:
        parse_per_address(value)
    except ValueError as error:
        return str(error)
    return None


def parse_per_address(value: str) -> dict[str, int]:
    """address:count, separated by commas; an IPv6 address contains colons."""
    counts = {}
    for item in filter(None, (part.strip() for part in value.split(","))):
        address, _, count = item.rpartition(":")
        if not address or not count.isdecimal():
            raise ValueError(f"must be a list of address:count, which {item} is not")
        counts[address.strip("[]")] = int(count)
    return counts


_NODE: tuple[Row, ...] = (
    ("node.id", INT, 1, at_least(0), HIGH, FIXED, "This node's number, unique in the cluster."),
    ("broker.id", INT, -1, None, HIGH, FIXED, "The older name of node.id."),
    ("process.roles", LIST, ("broker", "controller"), each_one_of("broker", "controller"), HIGH, FIXED,
     "What this process is: broker, controller or both."),
    ("broker.rack", STRING, None, None, MEDIUM, FIXED, "The rack or zone of this broker."),
    ("broker.heartbeat.interval.ms", INT, 2000, at_least(1), MEDIUM, FIXED,
     "How often a broker sends a heartbeat to the controller."),
    ("broker.session.timeout.ms", INT, 9000, at_least(1), MEDIUM, FIXED,
     "Time without heartbeats after which the controller fences a broker. If its process has died, at once."),
    ("initial.broker.registration.timeout.ms", INT, 60000, at_least(1), MEDIUM, FIXED,
     "How long a starting broker tries to register before it gives up."),
    ("controlled.shutdown.enable", BOOLEAN, True, None, MEDIUM, FIXED,
     "Whether a broker hands over its leaderships before it stops."),
    ("request.timeout.ms", INT, 30000, at_least(1), HIGH, FIXED,
     "How long this broker, as a client of others, waits for a response."),
    ("num.network.threads", INT, 3, at_least(1), HIGH, DYNAMIC, NO_EFFECT),
    ("num.io.threads", INT, 8, at_least(1), HIGH, DYNAMIC, NO_EFFECT),
    ("background.threads", INT, 10, at_least(1), HIGH, DYNAMIC, NO_EFFECT),
    ("num.recovery.threads.per.data.dir", INT, 2, at_least(1), HIGH, DYNAMIC, NO_EFFECT),
    ("num.replica.alter.log.dirs.threads", INT, None, None, HIGH, FIXED, NO_EFFECT),
)  # fmt: skip

_NETWORK: tuple[Row, ...] = (
    ("listeners", STRING, "PLAINTEXT://:9092", None, HIGH, FIXED,
     "Where to listen: NAME://host:port, separated by commas; no host means all addresses."),
    ("advertised.listeners", STRING, None, None, HIGH, FIXED,
     "The addresses that clients should connect to, if they differ from listeners."),
    ("listener.security.protocol.map", STRING, PROTOCOL_MAP_DEFAULT, None, LOW, FIXED,
     "The security protocol of each listener name, as NAME:PROTOCOL."),
    ("inter.broker.listener.name", STRING, None, None, MEDIUM, FIXED,
     "The listener for connections between brokers."),
    ("security.inter.broker.protocol", STRING, "PLAINTEXT",
     one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), MEDIUM, FIXED,
     "The security protocol of the listener for connections between brokers."),
    ("socket.send.buffer.bytes", INT, 100 * 1024, None, HIGH, FIXED,
     "SO_SNDBUF of a connection; -1 leaves it to the system."),
    ("socket.receive.buffer.bytes", INT, 100 * 1024, None, HIGH, FIXED,
     "SO_RCVBUF of a connection; -1 leaves it to the system."),
    ("socket.request.max.bytes", INT, 100 * MIB, at_least(1), HIGH, FIXED,
     "The largest request; a connection that sends a larger one is closed."),
    ("socket.listen.backlog.size", INT, 50, at_least(1), MEDIUM, FIXED,
     "Connections that may wait to be accepted."),
    ("socket.connection.setup.timeout.ms", LONG, 10000, None, MEDIUM, FIXED,
     "How long a connection to another broker may take to be made."),
    ("socket.connection.setup.timeout.max.ms", LONG, 30000, None, MEDIUM, FIXED,
     "The maximum of that time, which grows with each failure."),
    ("max.connections", INT, MAX_INT, at_least(0), MEDIUM, DYNAMIC,
     "Connections at one time; further ones wait until one closes."),
    ("max.connections.per.ip", INT, MAX_INT, at_least(0), MEDIUM, DYNAMIC,
     "Connections at one time from one address."),
    ("max.connections.per.ip.overrides", STRING, "", per_address, MEDIUM, DYNAMIC,
     "Exceptions to max.connections.per.ip, as address:count."),
    ("max.connection.creation.rate", INT, MAX_INT, at_least(0), MEDIUM, DYNAMIC,
     "New connections accepted per second."),
    ("connections.max.idle.ms", LONG, 600000, None, MEDIUM, FIXED,
     "Time without requests after which a connection is closed."),
    ("connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW, FIXED,
     "How long to delay the response to a failed login."),
    ("queued.max.requests", INT, 500, at_least(1), HIGH, FIXED,
     "Requests in progress at which the broker stops reading more."),
    ("queued.max.request.bytes", LONG, -1, None, MEDIUM, FIXED,
     "Bytes of requests in progress at which the broker stops reading more; -1 for no limit."),
    ("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), MEDIUM, FIXED,
     "Fetch sessions kept at one time."),
    ("fetch.max.bytes", INT, 55 * MIB, at_least(1024), MEDIUM, FIXED,
     "The largest response to a fetch, whatever the client asks for."),
    ("max.request.partition.size.limit", INT, 2000, at_least(1), MEDIUM, FIXED,
     "Partitions in one response of DescribeTopicPartitions."),
)  # fmt: skip

_LOG: tuple[Row, ...] = (
    ("log.dir", STRING, "/tmp/odradek-logs", None, HIGH, FIXED,
     "The data directory, if log.dirs is not set."),
    ("log.dirs", LIST, None, None, HIGH, FIXED, "The data directories. Odradek uses the first."),
    ("cordoned.log.dirs", LIST, (), directories, MEDIUM, Scope.PER_BROKER,
     "Data directories that keep their partitions and get no new ones; * means all, and cordons the broker."),
    ("num.partitions", INT, 1, between(1, MAX_PARTITIONS_PER_REQUEST), MEDIUM, FIXED,
     "Partitions of a topic created without a number."),
    ("default.replication.factor", INT, 1, at_least(1), MEDIUM, FIXED,
     "Replicas of a topic created without a number. If it is not set: 3, or as many as there are brokers."),
    ("auto.create.topics.enable", BOOLEAN, True, None, HIGH, FIXED,
     "Whether asking for a topic's metadata creates it."),
    ("delete.topic.enable", BOOLEAN, True, None, HIGH, FIXED, "Whether topics may be deleted."),
    ("log.retention.check.interval.ms", LONG, 300000, at_least(1), MEDIUM, FIXED,
     "How often to look for segments to delete."),
    ("log.flush.offset.checkpoint.interval.ms", INT, 60000, at_least(0), HIGH, FIXED,
     "How often to write the recovery points to disk."),
    ("log.flush.start.offset.checkpoint.interval.ms", INT, 60000, at_least(0), HIGH, FIXED,
     "How often to write the logs' start offsets to disk."),
    ("log.initial.task.delay.ms", LONG, 30000, at_least(0), LOW, FIXED,
     "How long after the start to look for segments to delete for the first time."),
    ("log.dir.failure.timeout.ms", LONG, 30000, at_least(1), LOW, FIXED,
     "How long a broker that cannot report a failed directory keeps running."),
    ("log.cleaner.enable", BOOLEAN, True, None, MEDIUM, FIXED, "Whether logs are compacted at all."),
    ("log.cleaner.threads", INT, 1, at_least(0), MEDIUM, DYNAMIC, NO_EFFECT),
    ("log.cleaner.io.max.bytes.per.second", DOUBLE, MAX_DOUBLE, None, MEDIUM, DYNAMIC,
     "Bytes that compaction may read and write per second."),
    ("log.cleaner.dedupe.buffer.size", LONG, 128 * MIB, None, MEDIUM, DYNAMIC,
     "Memory for the keys of one compaction."),
    ("log.cleaner.io.buffer.size", INT, 512 * 1024, at_least(0), MEDIUM, DYNAMIC,
     "Memory for the reads and writes of a compaction. Accepted and without effect."),
    ("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, None, MEDIUM, DYNAMIC,
     "How full the memory for keys may become. Accepted and without effect."),
    ("log.cleaner.backoff.ms", LONG, 15000, at_least(0), MEDIUM, DYNAMIC,
     "How long compaction sleeps when there is nothing to do."),
    ("log.sync.commit", BOOLEAN, True, None, HIGH, DYNAMIC,
     "Odradek's own: a record counts as committed only once it is on this broker's disk. With false it "
     "counts once written, as in Kafka, and a power failure of every replica may lose it."),
    ("log.integrity.check.bytes.per.second", LONG, MIB, at_least(0), MEDIUM, DYNAMIC,
     "Odradek's own: how fast logs are read again, to find batches that the disk returns otherwise than they were "
     "written; 0: they are not."),
    ("log.integrity.check.interval.ms", LONG, 7 * 24 * 3600 * 1000, at_least(1), LOW, DYNAMIC,
     "Odradek's own: how long after the beginning of one check of all logs the next one begins."),
    ("disk.reserve.bytes", LONG, 256 * MIB, at_least(0), HIGH, DYNAMIC,
     "Odradek's own: with less free space than this, or than a twentieth of a small disk, a broker refuses users' "
     "records and gives its leaderships away, so that it can still write metadata and offsets, and delete."),
    ("log.validate.records", BOOLEAN, False, None, MEDIUM, DYNAMIC,
     "Odradek's own: decode every record of every produced batch instead of trusting header and checksum."),
)  # fmt: skip

_MONITORING: tuple[Row, ...] = (
    ("metrics.listener", STRING, None, place, MEDIUM, FIXED,
     "Odradek's own: where to serve /metrics, /healthz and /readyz by HTTP: host:port; no host means all addresses."),
)  # fmt: skip

_SLOWNESS: tuple[Row, ...] = (
    ("slow.request.ms", LONG, 1000, at_least(-1), LOW, FIXED,
     "Odradek's own: a request that waits for longer than this is logged, with what it waits for; -1: never."),
    ("slow.sync.ms", LONG, 1000, at_least(-1), LOW, FIXED,
     "Odradek's own: a sync of the disk that takes longer than this is logged; -1: never."),
    ("slow.event.loop.ms", LONG, 500, at_least(-1), LOW, FIXED,
     "Odradek's own: a pause of the event loop longer than this, during which all clients wait, is logged; -1: never."),
)  # fmt: skip

_QUOTAS: tuple[Row, ...] = (
    ("quota.window.num", INT, 11, at_least(1), LOW, FIXED,
     "Windows over which the rates of clients with a quota are measured."),
    ("quota.window.size.seconds", INT, 1, at_least(1), LOW, FIXED, "The length of each of them."),
    ("controller.quota.window.num", INT, 11, at_least(1), LOW, FIXED,
     "Windows whose changes of the metadata a client with a controller_mutation_rate may ask for at once."),
    ("controller.quota.window.size.seconds", INT, 1, at_least(1), LOW, FIXED, "The length of each of them."),
)  # fmt: skip

_REPLICATION: tuple[Row, ...] = (
    ("replica.lag.time.max.ms", LONG, 30000, None, HIGH, FIXED,
     "How long a follower may lag before it leaves the in-sync replicas."),
    ("replica.fetch.min.bytes", INT, 1, None, HIGH, FIXED, "Bytes a follower's fetch waits for."),
    ("replica.fetch.max.bytes", INT, MIB, at_least(0), MEDIUM, FIXED,
     "Bytes a follower's fetch requests from one partition."),
    ("replica.fetch.response.max.bytes", INT, 10 * MIB, at_least(0), MEDIUM, FIXED,
     "Bytes a follower's fetch requests in total."),
    ("replica.fetch.wait.max.ms", INT, 500, None, HIGH, FIXED, "How long a follower's fetch waits for them."),
    ("replica.fetch.backoff.ms", INT, 1000, at_least(0), MEDIUM, FIXED,
     "How long a follower waits after a failed fetch."),
    ("replica.socket.timeout.ms", INT, 30000, None, HIGH, FIXED, "How long a follower waits for a response."),
    ("replica.socket.receive.buffer.bytes", INT, 64 * 1024, None, HIGH, FIXED,
     "SO_RCVBUF of a follower's connection."),
    ("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None, HIGH, FIXED,
     "How often to write the high watermarks to disk."),
    ("replica.selector.class", STRING, None, one_of(RACK_AWARE_SELECTOR, LEADER_SELECTOR), MEDIUM, FIXED,
     "Which replica a consumer reads from: with org.apache.kafka.common.replica.RackAwareReplicaSelector, one in the "
     "consumer's rack (client.rack, broker.rack); otherwise the leader."),
    ("leader.replication.throttled.rate", LONG, MAX_LONG, at_least(0), MEDIUM, DYNAMIC,
     "Bytes per second that a leader sends, at most, to the replicas in leader.replication.throttled.replicas."),
    ("follower.replication.throttled.rate", LONG, MAX_LONG, at_least(0), MEDIUM, DYNAMIC,
     "Bytes per second that the replicas in follower.replication.throttled.replicas fetch at most."),
    ("replication.quota.window.num", INT, 11, at_least(1), LOW, FIXED,
     "Windows over which the rate of throttled replication is measured."),
    ("replication.quota.window.size.seconds", INT, 1, at_least(1), LOW, FIXED, "The length of each of them."),
    ("replica.alter.log.dirs.io.max.bytes.per.second", LONG, MAX_LONG, at_least(0), MEDIUM, DYNAMIC,
     "Bytes per second at which replicas move between the directories of a broker. Accepted and without effect: a "
     "broker has one."),
    ("num.replica.fetchers", INT, 1, None, HIGH, DYNAMIC, NO_EFFECT),
    ("auto.leader.rebalance.enable", BOOLEAN, True, None, HIGH, FIXED,
     "Whether leadership returns to preferred replicas automatically."),
    ("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH, FIXED,
     "How often to check for that."),
    ("leader.imbalance.per.broker.percentage", INT, 10, None, HIGH, FIXED,
     "Percentage of misplaced leaderships to tolerate."),
    ("fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM, FIXED, NO_EFFECT),
    ("producer.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM, FIXED, NO_EFFECT),
    ("delete.records.purgatory.purge.interval.requests", INT, 1, None, MEDIUM, FIXED, NO_EFFECT),
)  # fmt: skip

_QUORUM: tuple[Row, ...] = (
    ("controller.quorum.voters", LIST, (), None, HIGH, FIXED,
     "Refused: the voters are in the metadata log. controller.quorum.bootstrap.servers says where to find them, and "
     "'odradek format --initial-controllers' names the first ones."),
    ("controller.quorum.bootstrap.servers", LIST, (), None, HIGH, FIXED,
     "Where to ask for the quorum's leader, as host:port: some or all controllers. None, or this node alone: a new "
     "cluster of one controller."),
    ("controller.listener.names", STRING, None, None, HIGH, FIXED,
     "The listeners, by name, that belong to the controller and are not shown to clients; CONTROLLER if not set. "
     "Brokers reach the controllers by the security protocol of the first."),
    ("controller.quorum.election.timeout.ms", INT, 1000, at_least(1), HIGH, FIXED,
     "How long a voter that knows no leader waits before it starts an election; a random time up to twice as long."),
    ("controller.quorum.election.backoff.max.ms", INT, 1000, at_least(0), HIGH, FIXED,
     "How long, at most, a voter that lost an election waits before it starts the next one."),
    ("controller.quorum.fetch.timeout.ms", INT, 2000, at_least(1), HIGH, FIXED,
     "How long a voter goes without a successful fetch before it starts an election. A leader from which no "
     "majority has fetched for one and a half times as long resigns."),
    ("controller.quorum.append.linger.ms", INT, 25, at_least(0), MEDIUM, FIXED,
     "How long the leader collects records before it writes them. Accepted and without effect: it writes at once."),
    ("controller.quorum.request.timeout.ms", INT, 2000, at_least(1), MEDIUM, FIXED,
     "How long a node waits for the response of another node of the quorum before it asks again."),
    ("controller.quorum.retry.backoff.ms", INT, 20, at_least(0), LOW, FIXED,
     "How long a node waits before it repeats a request of the quorum that failed."),
    ("controller.socket.timeout.ms", INT, 30000, None, MEDIUM, FIXED,
     "How long a broker waits for the controller's response."),
    ("metadata.log.dir", STRING, None, None, HIGH, FIXED,
     "The directory of the metadata log; the first data directory if not set."),
    ("metadata.log.segment.bytes", INT, 1024 * MIB, at_least(8 * MIB), HIGH, FIXED,
     "Size at which the metadata log starts a new segment. It also starts one with every snapshot."),
    ("metadata.log.segment.ms", LONG, 168 * HOUR_MS, None, HIGH, FIXED,
     "Age at which the metadata log starts a new segment."),
    ("metadata.log.max.record.bytes.between.snapshots", LONG, 20 * MIB, at_least(1), HIGH, FIXED,
     "Bytes of metadata log since the last snapshot after which the next one is written."),
    ("metadata.log.max.snapshot.interval.ms", LONG, HOUR_MS, at_least(0), HIGH, FIXED,
     "Time since the last snapshot after which the next one is written, if anything has changed; 0 for no "
     "limit."),
    ("metadata.max.retention.bytes", LONG, 100 * MIB, None, HIGH, FIXED,
     "Bytes of metadata log and snapshots that are kept. Beyond that, the oldest are deleted as far as the newest "
     "snapshot covers them."),
    ("metadata.max.retention.ms", LONG, 168 * HOUR_MS, None, HIGH, FIXED,
     "How long metadata log and snapshots are kept, as far as the newest snapshot covers them."),
    ("metadata.max.idle.interval.ms", INT, 500, at_least(0), LOW, FIXED,
     "How often an idle controller writes an empty record to show that it is alive. Accepted and without effect: "
     "nothing is written while nothing changes."),
    ("unclean.leader.election.interval.ms", LONG, 300000, at_least(1), MEDIUM, FIXED,
     "How often to look for partitions without a leader that need an unclean election."),
    ("early.start.listeners", STRING, None, None, HIGH, FIXED,
     "Listeners that open before the broker is ready."),
)  # fmt: skip


def _log_defaults() -> list[Definition]:
    """The broker keys behind topic keys. Only the last synonym has a default; one without a value is skipped."""
    found = []
    for topic_name, synonyms in SYNONYMS.items():
        topic = TOPIC_DEFINITIONS[topic_name]
        for position, (name, factor) in enumerate(synonyms):
            is_last = position == len(synonyms) - 1
            found.append(
                Definition(
                    name,
                    topic.type if factor == 1 else INT,
                    _in_unit(topic.default, factor) if is_last else None,
                    f"For topics without {topic_name}: {topic.documentation}",
                    topic.validator,
                    HIGH,
                    DYNAMIC if position == 0 else FIXED,
                )
            )
    return found


def _in_unit(default: object, factor: int) -> object:
    return default // factor if isinstance(default, int) and factor > 1 else default


def _build() -> dict[str, Definition]:
    rows = (
        _NODE
        + _NETWORK
        + _LOG
        + _MONITORING
        + _SLOWNESS
        + _REPLICATION
        + _QUOTAS
        + _QUORUM
        + COORDINATOR_DEFINITIONS
        + SECURITY_DEFINITIONS
    )
    table = {row[0]: Definition(row[0], row[1], row[2], row[6], row[3], row[4], row[5]) for row in rows}
    table.update((definition.name, definition) for definition in _log_defaults())
    return table


BROKER_DEFINITIONS: dict[str, Definition] = _build()
