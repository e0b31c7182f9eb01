"""Scripts of requests about transactions that every Kafka should answer alike. Each takes a `Cluster` and talks to it.

They run with versions of three ages, under several levels of transaction.version. What a coordinator says for a moment
only, while it loads or writes markers, is waited for and not noted.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from odradek.records.batch import CONTROL, TRANSACTIONAL, read_header
from odradek.records.control import build_marker_batch, decode_control_key
from odradek.records.record import decode_batch
from odradek.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_heartbeat,
    delete_groups,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    init_producer_id,
    join_group,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.index import SCHEMAS
from tests.peer.exchange import SETTLE_INTERVAL_S, SETTLE_TIMEOUT_S, Cluster
from tests.peer.scripts import (
    EARLIEST,
    KEEP_OLD,
    LATEST,
    MAX_TIMESTAMP,
    TIME_MS,
    TIMEOUT_MS,
    Scenario,
    Script,
    batch,
    list_offsets_request,
    produce_request,
)

COMMIT, ABORT = True, False
LASTING = {**KEEP_OLD, "segment_ms": "9223372036854775807"}  # of topics: all in one segment, for one Fetch
TRANSACTION = 1  # the kind of a coordinator
LAST_CLIENT_VERSION = 3  # of AddPartitionsToTxn
ADDS_BY_ITSELF_SINCE = 12  # Produce
OFFSETS_ADD_THEMSELVES_SINCE = 5  # TxnOffsetCommit
NOT_AVAILABLE, LOADING, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS = 15, 14, 16, 51
OF_THE_MOMENT = {NOT_AVAILABLE, LOADING, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS}
ERROR_FIELDS = ("error_code", "partition_error_code")

TRANSACTION_SCENARIOS: dict[str, Scenario] = {}


def scenario(script: Script) -> Script:
    TRANSACTION_SCENARIOS[script.__name__] = Scenario(script, (22, 24, 25, 26, 28))
    return script


# Building blocks


def codes_in(response: Any) -> set[int]:
    if isinstance(response, list):
        return set().union(*map(codes_in, response))
    if not hasattr(response, "__dataclass_fields__"):
        return set()
    own = {getattr(response, name) for name in ERROR_FIELDS if hasattr(response, name)}
    return own.union(*(codes_in(getattr(response, name)) for name in response.__dataclass_fields__))


def settled(cluster: Cluster, request: Any, version: int | None = None) -> Any:
    """The response once no coordinator is busy."""
    deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        response = cluster.ask_quietly(request, version)
        if response is None or not codes_in(response) & OF_THE_MOMENT:
            return response
        assert time.monotonic() < deadline_s, f"not settled: {response}"
        time.sleep(SETTLE_INTERVAL_S)


def ask(cluster: Cluster, request: Any, label: str, version: int | None = None) -> Any:
    """Like `Cluster.ask`, but once no coordinator is busy. Kafka's order of partitions is that of its hash maps."""
    response = settled(cluster, request, version)
    if isinstance(response, describe_transactions.DescribeTransactionsResponse):
        for state in response.transaction_states:
            for topic in state.topics:
                topic.partitions.sort()
    cluster.note(f"{type(request).__name__.removesuffix('Request')}: {label}", response)
    return response


@dataclass
class Producer:
    """A transactional producer that keeps to the rules unless told otherwise."""

    cluster: Cluster
    transactional_id: str
    timeout_ms: int = 60_000
    id: int = -1
    epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    def begin(self, label: str = "") -> "Producer":
        request = init_producer_id.InitProducerIdRequest(self.transactional_id, self.timeout_ms)
        response = ask(self.cluster, request, label) if label else settled(self.cluster, request)
        assert response.error_code == 0, response
        self.id, self.epoch, self.sequences = response.producer_id, response.producer_epoch, {}
        return self

    def again(self, label: str, **changes: Any) -> Any:
        """InitProducerId that says who it is; the response is noted, not believed."""
        fields = {"producer_id": self.id, "producer_epoch": self.epoch, **changes}
        request = init_producer_id.InitProducerIdRequest(self.transactional_id, self.timeout_ms, **fields)
        return self.cluster.ask(request, label=label)

    def adding(self, topic: str, *partitions: int, **changes: Any) -> Any:
        who = {
            "transactional_id": self.transactional_id,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
        }
        who = {f"v3_and_below_{name}": value for name, value in (who | changes).items()}
        topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(topic, list(partitions))]
        return add_partitions_to_txn.AddPartitionsToTxnRequest(**who, v3_and_below_topics=topics)

    def add(self, topic: str, *partitions: int, label: str = "", **changes: Any) -> None:
        version = min(self.cluster.version_of(24), LAST_CLIENT_VERSION)
        request = self.adding(topic, *partitions, **changes)
        if label:
            ask(self.cluster, request, label, version)
        else:
            assert codes_in(settled(self.cluster, request, version)) == {0}

    def records(self, topic: str, *values: bytes, partition: int = 0, **changes: Any) -> bytearray:
        options = {
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "base_sequence": self.sequences.get((topic, partition), 0),
            "transactional": True,
        }
        return batch(*values, **(options | changes))

    def producing(self, topic: str, records: bytes | bytearray, partition: int = 0, **changes: Any) -> Any:
        request = produce_request(self.cluster, topic, records, partition)
        assert isinstance(request, produce.ProduceRequest)
        request.transactional_id = changes.get("transactional_id", self.transactional_id)
        return request

    def try_to_send(self, label: str, topic: str, partition: int = 0, **changes: Any) -> Any:
        """A Produce whose response is noted; nothing is added to the transaction before."""
        transactional_id = changes.pop("transactional_id", self.transactional_id)
        records = self.records(topic, b"a", b"b", partition=partition, **changes)
        request = self.producing(topic, records, partition, transactional_id=transactional_id)
        return ask(self.cluster, request, label)

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Sends records as a client of this age does."""
        if self.cluster.version_of(0) < ADDS_BY_ITSELF_SINCE:
            self.add(topic, partition)
        records = self.records(topic, *values, partition=partition)
        response = settled(self.cluster, self.producing(topic, records, partition))
        assert response.responses[0].partition_responses[0].error_code == 0, response
        self.sequences[topic, partition] = self.sequences.get((topic, partition), 0) + len(values)

    def ending(self, is_commit: bool, **changes: Any) -> Any:
        fields = {"producer_id": self.id, "producer_epoch": self.epoch, **changes}
        return end_txn.EndTxnRequest(self.transactional_id, committed=is_commit, **fields)

    def try_to_end(self, label: str, is_commit: bool, **changes: Any) -> Any:
        response = ask(self.cluster, self.ending(is_commit, **changes), label)
        self.await_end()
        return response

    def end(self, is_commit: bool, label: str = "") -> None:
        request = self.ending(is_commit)
        response = ask(self.cluster, request, label) if label else settled(self.cluster, request)
        assert response.error_code == 0, response
        self.await_end()
        self.go_on(response)

    def go_on(self, response: end_txn.EndTxnResponse) -> None:
        """Go on with what the response to EndTxn names, if it does; a new epoch begins with sequence 0."""
        if response.producer_id >= 0:
            self.id, self.epoch, self.sequences = response.producer_id, response.producer_epoch, {}

    def await_end(self) -> None:
        """Until the markers are written."""
        request = describe_transactions.DescribeTransactionsRequest([self.transactional_id])
        self.cluster.until(
            request,
            lambda response: not response.transaction_states[0].transaction_state.startswith("Prepare"),
        )

    def describe(self, label: str) -> None:
        request = describe_transactions.DescribeTransactionsRequest([self.transactional_id])
        ask(self.cluster, request, label)

    def offsets(self, group: str, topic: str, offset: int, **changes: Any) -> Any:
        partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
            changes.pop("partition", 0), offset, 0, changes.pop("metadata", "noted")
        )
        fields = {"producer_id": self.id, "producer_epoch": self.epoch, **changes}
        topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(topic, [partition])]
        fields = {"transactional_id": self.transactional_id, **fields}
        return txn_offset_commit.TxnOffsetCommitRequest(group_id=group, topics=topics, **fields)

    def adding_offsets(self, group: str, **changes: Any) -> Any:
        fields = {"producer_id": self.id, "producer_epoch": self.epoch, **changes}
        return add_offsets_to_txn.AddOffsetsToTxnRequest(self.transactional_id, group_id=group, **fields)

    def add_offsets(self, group: str, label: str = "", **changes: Any) -> None:
        request = self.adding_offsets(group, **changes)
        if label:
            ask(self.cluster, request, label)
        else:
            assert settled(self.cluster, request).error_code == 0

    def commit_offset(self, group: str, topic: str, offset: int, **changes: Any) -> None:
        """Commits an offset as a client of this age does."""
        if self.cluster.version_of(28) < OFFSETS_ADD_THEMSELVES_SINCE:
            self.add_offsets(group)
        response = settled(self.cluster, self.offsets(group, topic, offset, **changes))
        assert codes_in(response) == {0}, response


def find_coordinators(cluster: Cluster, key: str) -> None:
    """Both kinds, ready to work."""
    for kind in (0, TRANSACTION):
        settled(cluster, FindCoordinatorRequest(key, kind, [key]), version=4)


def start(cluster: Cluster, prefix: str, partitions: int = 2) -> Producer:
    """A topic named like the prefix, and a producer, whose epoch is 1: there is one before it."""
    cluster.create(prefix, partitions, **LASTING)
    find_coordinators(cluster, prefix)
    return Producer(cluster, prefix).begin().begin()


@dataclass
class Batch:
    """The part of a batch that should be alike, whoever wrote it."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    is_transactional: bool
    control_type: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    keys_and_values: tuple[tuple[bytes | None, bytes | None], ...]


def batches_in(records: bytes | memoryview) -> list[Batch]:
    found, data = [], bytes(records)
    while data:
        header = read_header(data)
        inside = decode_batch(data[: header.size])
        is_control = bool(header.attributes & CONTROL)
        control_type = decode_control_key(inside[0].key) if is_control else None
        found.append(
            Batch(
                header.base_offset,
                inside[-1].offset,
                header.leader_epoch,
                bool(header.attributes & TRANSACTIONAL),
                control_type.name if control_type is not None else "",
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                tuple((record.key, record.value) for record in inside),
            )
        )
        data = data[header.size :]
    return found


def read(
    cluster: Cluster, label: str, topic: str, offset: int = 0, isolation: int = 1, partition: int = 0
) -> None:
    """Fetch; what is noted has the batches as they should be alike."""
    wanted = fetch.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = fetch.FetchRequest(
        isolation_level=isolation, topics=[fetch.FetchTopic(cluster.id_of(topic), topic, [wanted])]
    )
    response = cluster.ask_quietly(request)
    for one in response.responses:
        for data in one.partitions:
            cluster.note(f"records: {label}", batches_in(data.records or b""))
            data.records = None
    cluster.note(f"Fetch: {label}", response)


def describe_the_producers(cluster: Cluster, label: str, topic: str, *partitions: int) -> None:
    wanted = describe_producers.TopicRequest(topic, list(partitions or (0,)))
    response = cluster.ask_quietly(describe_producers.DescribeProducersRequest([wanted]))
    for one in response.topics:
        for described in one.partitions:
            described.active_producers.sort(key=lambda state: state.producer_id)
    cluster.note(f"DescribeProducers: {label}", response)


# InitProducerId


@scenario
def producers_that_begin(cluster: Cluster, prefix: str) -> None:
    find_coordinators(cluster, prefix)
    request = init_producer_id.InitProducerIdRequest
    producer = Producer(cluster, prefix).begin("new")
    producer.describe("new")
    producer.begin("again")
    for timeout_ms in (0, -1, 900_000, 900_001, 2**31 - 1):
        ask(cluster, request(f"{prefix}-timeout", timeout_ms), label=f"timeout {timeout_ms}")
    ask(cluster, request("", 1000), label="empty transactional id")
    producer.describe("again")


@scenario
def producers_that_say_who_they_are(cluster: Cluster, prefix: str) -> None:
    if cluster.version_of(22) < 3:
        return
    find_coordinators(cluster, prefix)
    producer = Producer(cluster, prefix).begin()
    first = producer.again("the first time")
    producer.again("its response was lost")
    producer.epoch = first.producer_epoch
    producer.again("the second time")
    producer.again("epoch to come", producer_epoch=9)
    producer.again("two epochs ago", producer_epoch=0)
    producer.again("another producer", producer_id=producer.id + 500)
    producer.again("an id, no epoch", producer_epoch=-1)
    producer.again("an epoch, no id", producer_id=-1)
    producer.begin("who does not say")
    producer.again("an epoch ago", producer_epoch=producer.epoch - 1)
    stranger = Producer(cluster, f"{prefix}-new", id=7, epoch=3)
    settled(cluster, FindCoordinatorRequest(f"{prefix}-new", TRANSACTION, [f"{prefix}-new"]), version=4)
    stranger.again("a transactional id nobody had")
    producer.describe("after all")


@scenario
def producers_that_begin_within_a_transaction(cluster: Cluster, prefix: str) -> None:
    producer = start(cluster, prefix)
    producer.send(prefix, b"one")
    request = init_producer_id.InitProducerIdRequest(prefix, 60_000)
    cluster.ask(request, label="taken over")
    producer.await_end()
    producer.describe("aborted")
    newer = Producer(cluster, prefix).begin("the second try")
    producer.try_to_send("fenced", prefix, base_sequence=1)
    producer.try_to_end("fenced", COMMIT)
    producer.try_to_end("fenced, abort", ABORT)
    producer.add(prefix, 1, label="fenced")
    newer.send(prefix, b"two")
    if cluster.version_of(22) >= 3:
        newer.again("which it knows of")
        newer.await_end()
        newer.again("which it knows of, second try")
        producer.again("fenced")
    read(cluster, "at last", prefix)
    newer.describe("at last")


# AddPartitionsToTxn and AddOffsetsToTxn


@scenario
def partitions_that_join(cluster: Cluster, prefix: str) -> None:
    producer = start(cluster, prefix)
    Producer(cluster, f"{prefix}-unknown", id=producer.id).add(prefix, 0, label="not initialized")
    Producer(cluster, "", id=producer.id).add(prefix, 0, label="empty transactional id")
    producer.add(prefix, 0, label="another producer", producer_id=producer.id + 500)
    producer.add(prefix, 0, label="epoch to come", producer_epoch=producer.epoch + 1)
    producer.add(prefix, 0, label="epoch before", producer_epoch=producer.epoch - 1)
    producer.add(f"{prefix}-missing", 0, label="unknown topic")
    producer.add(prefix, 0, 7, label="unknown partition")
    producer.add("__consumer_offsets", 0, label="offsets")
    producer.add("__transaction_state", 0, label="transactions")
    producer.describe("nothing joined")
    producer.add(prefix, label="no partitions")
    producer.describe("no partitions")
    producer.add(prefix, 0, label="one")
    producer.describe("one")
    producer.add(prefix, 0, label="the same")
    producer.add(prefix, 1, label="another")
    producer.add(prefix, 0, 0, label="twice")
    producer.describe("two")
    producer.end(COMMIT, "all")
    producer.describe("after the end")
    producer.add(prefix, 1, label="the next transaction")
    producer.describe("the next transaction")
    producer.end(ABORT, "the next transaction")


@scenario
def partitions_that_brokers_add(cluster: Cluster, prefix: str) -> None:
    if cluster.version_of(24) <= LAST_CLIENT_VERSION:
        return
    producer = start(cluster, prefix)

    def add(label: str, *partitions: int, verify_only: bool = False, **changes: Any) -> None:
        who = {"transactional_id": prefix, "producer_id": producer.id, "producer_epoch": producer.epoch}
        topics = [
            add_partitions_to_txn.AddPartitionsToTxnTopic(changes.pop("topic", prefix), list(partitions))
        ]
        asked = add_partitions_to_txn.AddPartitionsToTxnTransaction(
            **(who | changes), verify_only=verify_only, topics=topics
        )
        for version in (4, cluster.version_of(24)):
            request = add_partitions_to_txn.AddPartitionsToTxnRequest([asked])
            ask(cluster, request, f"{label}, version {version}", version)

    add("verify before", 0, verify_only=True)
    add("one", 0)
    producer.describe("one")
    add("verify one", 0, verify_only=True)
    add("verify two", 0, 1, verify_only=True)
    add("verify an unknown partition", 0, 7, verify_only=True)
    add("verify an unknown topic", 0, verify_only=True, topic=f"{prefix}-missing")
    add("verify another producer", 0, verify_only=True, producer_id=producer.id + 500)
    add("verify an epoch to come", 0, verify_only=True, producer_epoch=producer.epoch + 1)
    add("verify an unknown transaction", 0, verify_only=True, transactional_id=f"{prefix}-unknown")
    add("an unknown transaction", 0, transactional_id=f"{prefix}-unknown")
    add("no transactional id", 0, transactional_id="")
    add("an unknown partition", 0, 7)
    add("an unknown topic", 0, topic=f"{prefix}-missing")
    add("an epoch to come", 0, producer_epoch=producer.epoch + 1)
    add("an internal topic", 0, topic="__transaction_state")
    producer.end(COMMIT, "one")
    add("verify after the end", 0, verify_only=True)


@scenario
def offsets_that_join(cluster: Cluster, prefix: str) -> None:
    producer = start(cluster, prefix)
    Producer(cluster, f"{prefix}-unknown", id=producer.id).add_offsets(prefix, "not initialized")
    producer.add_offsets(prefix, "another producer", producer_id=producer.id + 500)
    producer.add_offsets(prefix, "epoch to come", producer_epoch=producer.epoch + 1)
    producer.add_offsets(prefix, "epoch before", producer_epoch=producer.epoch - 1)
    producer.add_offsets("", "empty group")
    producer.describe("empty group")
    producer.add_offsets(prefix, "good")
    producer.add_offsets(prefix, "again")
    producer.describe("good")
    producer.end(ABORT, "good")
    Producer(cluster, "", id=producer.id).add_offsets(prefix, "empty transactional id")


# TxnOffsetCommit


@scenario
def offsets_in_a_transaction(cluster: Cluster, prefix: str) -> None:
    producer = start(cluster, prefix)
    ask(cluster, producer.offsets(prefix, prefix, 5), "not added")
    producer.describe("not added")
    producer.add_offsets(prefix)
    cases: dict[str, dict[str, Any]] = {
        "epoch to come": {"producer_epoch": producer.epoch + 1},
        "epoch before": {"producer_epoch": producer.epoch - 1},
        "another producer": {"producer_id": producer.id + 500},
        "unknown transactional id": {"transactional_id": f"{prefix}-unknown"},
        "empty transactional id": {"transactional_id": ""},
        "unknown partition": {"partition": 7},
        "long metadata": {"metadata": "x" * 5000},
        "no metadata": {"metadata": None},
    }
    if cluster.version_of(28) >= 3:
        cases |= {
            "unknown member": {"member_id": "nobody", "generation_id": 1},
            "generation without a member": {"generation_id": 1},
            "member without a generation": {"member_id": "nobody"},
            "instance": {"group_instance_id": "nobody"},
        }
    for label, changes in cases.items():
        ask(cluster, producer.offsets(prefix, prefix, 6, **changes), label)
    ask(cluster, producer.offsets("", prefix, 6), "empty group")
    ask(cluster, producer.offsets(prefix, f"{prefix}-missing", 6), "unknown topic")
    ask(cluster, producer.offsets(prefix, prefix, 7), "good")
    note_offsets(cluster, "pending", prefix, prefix)
    producer.end(COMMIT, "good")
    note_offsets(cluster, "committed", prefix, prefix)
    old_epoch = producer.epoch - 1
    ask(cluster, producer.offsets(prefix, prefix, 8, producer_epoch=old_epoch), "of an epoch ago")
    ask(cluster, producer.offsets(prefix, prefix, 9), "the next transaction")
    producer.describe("the next transaction")


def note_offsets(cluster: Cluster, label: str, group: str, topic: str, partitions: int = 2) -> None:
    """Notes the offsets that clients see who wait for the end of transactions, and those who do not."""
    indexes = list(range(partitions))
    old = [offset_fetch.OffsetFetchRequestTopic(topic, indexes)]
    new = [offset_fetch.OffsetFetchRequestTopics(cluster.id_of(topic), topic, indexes)]
    for is_stable in (False, True):
        if is_stable and cluster.version_of(9) < 7:
            return
        asked_by = "who needs it stable" if is_stable else "anybody"
        groups = [offset_fetch.OffsetFetchRequestGroup(group, topics=new)]
        request = offset_fetch.OffsetFetchRequest(groups, group, old, is_stable)
        cluster.ask(request, label=f"{label}, {asked_by}")
        groups = [offset_fetch.OffsetFetchRequestGroup(group, topics=None)]
        if cluster.version_of(9) >= 2:
            request = offset_fetch.OffsetFetchRequest(groups, group, None, is_stable)
            cluster.ask(request, label=f"{label}, all of them, {asked_by}")


@scenario
def offsets_of_members(cluster: Cluster, prefix: str) -> None:
    if cluster.version_of(28) < 3:
        return
    producer = start(cluster, prefix)
    protocols = [join_group.JoinGroupRequestProtocol("range", b"")]

    def join(member_id: str = "") -> join_group.JoinGroupResponse:
        request = join_group.JoinGroupRequest(
            prefix, 30_000, 30_000, member_id, protocol_type="consumer", protocols=protocols
        )
        response: join_group.JoinGroupResponse = settled(cluster, request)
        return response

    joined = join()
    if joined.error_code:  # it got its member id only
        joined = join(joined.member_id)
    member = {"member_id": joined.member_id, "generation_id": joined.generation_id}
    producer.add_offsets(prefix)
    ask(cluster, producer.offsets(prefix, prefix, 1, **member), "before it is assigned")
    settled(cluster, sync_group.SyncGroupRequest(prefix, joined.generation_id, joined.member_id))
    ask(cluster, producer.offsets(prefix, prefix, 2), "of no member")
    ask(cluster, producer.offsets(prefix, prefix, 2, **(member | {"generation_id": 0})), "generation before")
    ask(cluster, producer.offsets(prefix, prefix, 2, **(member | {"generation_id": 9})), "generation to come")
    ask(cluster, producer.offsets(prefix, prefix, 2, **(member | {"member_id": "nobody"})), "unknown member")
    ask(
        cluster,
        producer.offsets(prefix, prefix, 2, **(member | {"group_instance_id": "x"})),
        "unknown instance",
    )
    ask(cluster, producer.offsets(prefix, prefix, 3, **member), "good")
    note_offsets(cluster, "pending", prefix, prefix)
    producer.end(ABORT, "offsets")
    note_offsets(cluster, "aborted", prefix, prefix)


@scenario
def offsets_of_members_that_send_heartbeats(cluster: Cluster, prefix: str) -> None:
    """Members of the newer protocol of groups have epochs."""
    if cluster.version_of(28) < 3:
        return
    producer = start(cluster, prefix)
    member_id = "A" * 22
    heartbeat = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        prefix,
        member_id,
        0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[prefix],
        topic_partitions=[],
    )
    joined = settled(cluster, heartbeat)
    assert joined.error_code == 0, joined
    member = {"member_id": joined.member_id or member_id, "generation_id": joined.member_epoch}
    producer.add_offsets(prefix)
    ask(cluster, producer.offsets(prefix, prefix, 1), "of no member")
    epoch = joined.member_epoch
    ask(
        cluster,
        producer.offsets(prefix, prefix, 2, **(member | {"generation_id": epoch - 1})),
        "epoch before",
    )
    ask(
        cluster,
        producer.offsets(prefix, prefix, 2, **(member | {"generation_id": epoch + 1})),
        "epoch to come",
    )
    ask(cluster, producer.offsets(prefix, prefix, 2, **(member | {"generation_id": -1})), "no epoch")
    ask(cluster, producer.offsets(prefix, prefix, 2, **(member | {"member_id": "nobody"})), "unknown member")
    ask(cluster, producer.offsets(prefix, prefix, 3, **member), "good")
    note_offsets(cluster, "pending", prefix, prefix)
    producer.end(COMMIT, "offsets")
    note_offsets(cluster, "committed", prefix, prefix)


@scenario
def pending_offsets_and_others(cluster: Cluster, prefix: str) -> None:
    producer = start(cluster, prefix)

    def commit_plainly(offset: int) -> None:
        partition = offset_commit.OffsetCommitRequestPartition(0, offset, 0, "plain")
        topics = [offset_commit.OffsetCommitRequestTopic(cluster.id_of(prefix), prefix, [partition])]
        assert codes_in(settled(cluster, offset_commit.OffsetCommitRequest(prefix, topics=topics))) == {0}

    commit_plainly(1)
    producer.commit_offset(prefix, prefix, 2)
    note_offsets(cluster, "one pending", prefix, prefix)
    commit_plainly(3)
    note_offsets(cluster, "a plain one later", prefix, prefix)
    producer.end(COMMIT)
    note_offsets(cluster, "the plain one stays", prefix, prefix)
    producer.commit_offset(prefix, prefix, 4)
    topics = [offset_delete.OffsetDeleteRequestTopic(prefix, [offset_delete.OffsetDeleteRequestPartition(0)])]
    cluster.ask(offset_delete.OffsetDeleteRequest(prefix, topics), label="with one pending")
    note_offsets(cluster, "deleted", prefix, prefix)
    cluster.ask(delete_groups.DeleteGroupsRequest([prefix]), label="with one pending")
    producer.end(COMMIT)
    note_offsets(cluster, "at last", prefix, prefix)
    cluster.ask(delete_groups.DeleteGroupsRequest([prefix]), label="with none pending")
    note_offsets(cluster, "no group", prefix, prefix)


# EndTxn


@scenario
def ends(cluster: Cluster, prefix: str) -> None:
    producer = start(cluster, prefix)
    producer.try_to_end("commit of nothing", COMMIT)
    response = producer.try_to_end("abort of nothing", ABORT)
    producer.describe("nothing")
    producer.go_on(response)
    unknown = Producer(cluster, f"{prefix}-unknown", id=producer.id, epoch=0)
    ask(cluster, unknown.ending(COMMIT), "not initialized")
    ask(cluster, Producer(cluster, "", id=producer.id, epoch=0).ending(COMMIT), "empty transactional id")
    for first, second in ((COMMIT, ABORT), (ABORT, COMMIT)):
        name = "commit" if first else "abort"
        producer.send(prefix, b"x")
        producer.describe(f"before the {name}")
        producer.try_to_end("another producer", first, producer_id=producer.id + 500)
        producer.try_to_end("epoch to come", first, producer_epoch=producer.epoch + 1)
        producer.try_to_end("epoch before", first, producer_epoch=producer.epoch - 1)
        response = producer.try_to_end(name, first)
        producer.describe(f"after the {name}")
        producer.try_to_end(f"{name} once more", first)
        producer.try_to_end(f"the other after the {name}", second)
        producer.describe(f"after all that follows the {name}")
        producer.go_on(response)
        again = producer.try_to_end(f"nothing was written after the {name}", first)
        if again.error_code == 0:
            producer.go_on(again)
        other = producer.try_to_end(f"the other, nothing was written after the {name}", second)
        if other.error_code == 0:
            producer.go_on(other)
    read(cluster, "all", prefix)


@scenario
def transactions_that_take_too_long(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix, 1, **LASTING)
    find_coordinators(cluster, prefix)
    producer = Producer(cluster, prefix, timeout_ms=2000).begin()
    producer.send(prefix, b"late")
    request = describe_transactions.DescribeTransactionsRequest([prefix])
    cluster.until(
        request, lambda response: response.transaction_states[0].transaction_state == "CompleteAbort"
    )
    producer.describe("timed out")
    read(cluster, "timed out", prefix)
    producer.try_to_send("too late", prefix, base_sequence=1)
    producer.add(prefix, 0, label="too late")
    producer.try_to_end("too late", COMMIT)
    producer.try_to_end("abort, too late", ABORT)
    if cluster.version_of(22) >= 3:
        producer.again("which knows its old epoch")
    producer.begin("again")


# Produce


@scenario
def writes(cluster: Cluster, prefix: str) -> None:
    producer = start(cluster, prefix, 4)
    producer.try_to_send("not added", prefix)
    producer.describe("not added")
    producer.add(prefix, 0)
    if cluster.version_of(0) < ADDS_BY_ITSELF_SINCE:
        producer.try_to_send("first", prefix)
    producer.try_to_send("a gap", prefix, base_sequence=7)
    producer.try_to_send("second", prefix, base_sequence=2)
    producer.try_to_send("second again", prefix, base_sequence=2)
    producer.try_to_send("not transactional", prefix, base_sequence=4, transactional=False)
    producer.try_to_send("no transactional id", prefix, base_sequence=4, transactional_id=None)
    producer.try_to_send("neither", prefix, base_sequence=4, transactional_id=None, transactional=False)
    for is_commit in (COMMIT, ABORT):
        marker = build_marker_batch(
            commit=is_commit,
            coordinator_epoch=0,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            timestamp=TIME_MS,
        )
        ask(cluster, producer.producing(prefix, marker), f"a marker, commit: {is_commit}")
    producer.try_to_send("third", prefix, base_sequence=4)
    producer.try_to_send("epoch before", prefix, base_sequence=6, producer_epoch=producer.epoch - 1)
    producer.try_to_send("epoch to come", prefix, base_sequence=6, producer_epoch=producer.epoch + 1)
    producer.try_to_send("epoch to come, from 0", prefix, base_sequence=0, producer_epoch=producer.epoch + 1)
    producer.try_to_send("to an internal topic", "__transaction_state")
    producer.try_to_send("unknown topic", f"{prefix}-missing")
    producer.try_to_send("unknown partition", prefix, 9)
    producer.describe("after all")
    describe_the_producers(cluster, "within a transaction", prefix, 0, 1)
    read(cluster, "within a transaction", prefix)
    read(cluster, "within a transaction, uncommitted", prefix, isolation=0)


@scenario
def first_writes(cluster: Cluster, prefix: str) -> None:
    """Each to a partition of its own: a refusal leaves its traces."""
    cases: dict[str, dict[str, Any]] = {
        "another transactional id": {"transactional_id": f"{prefix}-unknown"},
        "another producer id": {"producer_id": 2**40},
        "epoch before": {"producer_epoch": 0},
        "epoch to come": {"producer_epoch": 2},
        "not from 0": {"base_sequence": 3},
        "not transactional": {"transactional": False},
        "no transactional id": {"transactional_id": None},
        "empty transactional id": {"transactional_id": ""},
        "neither": {"transactional_id": None, "transactional": False},
    }
    producer = start(cluster, prefix, 2 * len(cases))
    for place, (label, changes) in enumerate(cases.items()):
        producer.try_to_send(f"{label}, not added", prefix, 2 * place, **changes)
        producer.add(prefix, 2 * place + 1)
        producer.try_to_send(f"{label}, added", prefix, 2 * place + 1, **changes)
        producer.try_to_send(f"good after {label}", prefix, 2 * place + 1)
    producer.describe("after all")


@scenario
def malformed_writes(cluster: Cluster, prefix: str) -> None:
    cases: dict[str, dict[str, Any]] = {
        "no producer": {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1},
        "no epoch": {"producer_epoch": -1},
        "no sequence": {"base_sequence": -1},
    }
    producer = start(cluster, prefix, len(cases))
    for place, (label, changes) in enumerate(cases.items()):
        producer.add(prefix, place)
        producer.try_to_send(label, prefix, place, **changes)


@scenario
def writes_after_the_end(cluster: Cluster, prefix: str) -> None:
    producer = start(cluster, prefix)
    for is_commit in (COMMIT, ABORT):
        name = "commit" if is_commit else "abort"
        producer.send(prefix, b"a")
        old = Producer(
            cluster, prefix, id=producer.id, epoch=producer.epoch, sequences=dict(producer.sequences)
        )
        producer.end(is_commit)
        old.try_to_send(f"late, after the {name}", prefix)
        producer.describe(f"late, after the {name}")
        describe_the_producers(cluster, f"after the {name}", prefix)
    producer.send(prefix, b"a")
    producer.end(COMMIT)
    producer.try_to_send("not transactional any more", prefix, transactional_id=None, transactional=False)
    read(cluster, "all", prefix)


@scenario
def several_partitions_in_one_request(cluster: Cluster, prefix: str) -> None:
    producer = start(cluster, prefix, 3)
    producer.send(prefix, b"one", partition=0)
    data = [
        produce.PartitionProduceData(partition, producer.records(prefix, b"two", partition=partition))
        for partition in (0, 1, 7)
    ]
    topics = [produce.TopicProduceData(cluster.id_of(prefix), prefix, data)]
    ask(cluster, produce.ProduceRequest(prefix, -1, TIMEOUT_MS, topics), "one of them unknown")
    producer.describe("one of them unknown")
    ask(cluster, produce.ProduceRequest(prefix, 1, TIMEOUT_MS, topics[:1]), "once more, acks 1")
    producer.end(COMMIT)
    for partition in range(3):
        read(cluster, f"partition {partition}", prefix, partition=partition)


# Readers


@scenario
def what_readers_see(cluster: Cluster, prefix: str) -> None:
    one = start(cluster, prefix)
    two = Producer(cluster, f"{prefix}-two").begin()
    three = Producer(cluster, f"{prefix}-three").begin()

    def look(label: str) -> None:
        for offset in (0, 2, 4, 5):
            read(cluster, f"{label}, from {offset}", prefix, offset)
        read(cluster, f"{label}, uncommitted", prefix, isolation=0)
        describe_the_producers(cluster, label, prefix, 0, 1)
        for isolation in (0, 1):
            for name, time_ms in {"latest": LATEST, "earliest": EARLIEST, "by time": TIME_MS + 1000}.items():
                request = list_offsets_request(prefix, time_ms, isolation=isolation)
                cluster.ask(request, label=f"{label}, {name}, isolation {isolation}")
            if cluster.version_of(2) >= 7:
                response = cluster.ask_quietly(
                    list_offsets_request(prefix, MAX_TIMESTAMP, isolation=isolation)
                )
                newest = response.topics[0].partitions[0]
                newest.timestamp = min(newest.timestamp, TIME_MS + 1_000_000)  # of a marker: now
                cluster.note(f"ListOffsets: {label}, newest message, isolation {isolation}", response)

    one.send(prefix, b"one", b"one")
    two.send(prefix, b"two")
    assert codes_in(cluster.ask_quietly(produce_request(cluster, prefix, batch(b"plain")))) == {0}
    three.send(prefix, b"three")
    look("three open")
    two.end(ABORT)
    look("two aborted")
    one.send(prefix, b"one", b"one")
    one.end(COMMIT)
    look("one committed")
    three.end(ABORT)
    look("three aborted")
    two.send(prefix, b"two again")
    two.end(ABORT)
    look("two aborted again")


# Descriptions


@scenario
def descriptions(cluster: Cluster, prefix: str) -> None:
    producer = start(cluster, prefix)
    producer.send(prefix, b"x")
    group = f"{prefix}-group"
    producer.commit_offset(group, prefix, 1)
    request = describe_transactions.DescribeTransactionsRequest
    ask(cluster, request([prefix]), "open")
    ask(cluster, request([f"{prefix}-unknown"]), "unknown")
    ask(cluster, request([""]), "empty")
    ask(cluster, request([]), "none")
    ask(cluster, request([prefix, prefix, f"{prefix}-unknown"]), "several, one twice")
    describe_the_producers(cluster, "unknown topic", f"{prefix}-missing")
    describe_the_producers(cluster, "unknown partition", prefix, 0, 7)
    describe_the_producers(cluster, "illegal name", "a/b")
    cluster.ask(describe_producers.DescribeProducersRequest([]), label="of nothing")
    producer.end(COMMIT)
    ask(cluster, request([prefix]), "committed")


@scenario
def lists(cluster: Cluster, prefix: str) -> None:
    """Only those of this script are noted, but for the filters that pick them."""
    find_coordinators(cluster, prefix)
    cluster.create(prefix, 1, **LASTING)
    empty = Producer(cluster, f"{prefix}-empty").begin()
    ongoing, committed, aborted = (
        Producer(cluster, f"{prefix}-{name}").begin() for name in ("ongoing", "committed", "aborted")
    )
    for producer in (ongoing, committed, aborted):
        producer.send(prefix, b"x")
    committed.end(COMMIT)
    aborted.end(ABORT)
    own = [each.id for each in (empty, ongoing, committed, aborted)]

    def ask_for(label: str, **filters: Any) -> None:
        request = list_transactions.ListTransactionsRequest(**({"producer_id_filters": own} | filters))
        response = settled(cluster, request)
        response.transaction_states = [
            each for each in response.transaction_states if each.transactional_id.startswith(prefix)
        ]
        response.unknown_state_filters.sort()
        cluster.note(f"ListTransactions: {label}", response)

    ask_for("of these producers")
    ask_for("no filter", producer_id_filters=[])
    ask_for("unknown producer", producer_id_filters=[2**40])
    for state in (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
        "CompleteAbort",
        "PrepareEpochFence",
        "Dead",
    ):
        ask_for(state, state_filters=[state])
    ask_for("two states", state_filters=["Ongoing", "Empty"])
    ask_for("an unknown state", state_filters=["Nowhere"])
    ask_for("an unknown state and another", state_filters=["Nowhere", "Ongoing", "ongoing"])
    if cluster.version_of(66) >= 1:
        ask_for("open for an hour", duration_filter=3_600_000)
        ask_for("open for -5 ms", duration_filter=-5)
        ask_for("ongoing for an hour", duration_filter=3_600_000, state_filters=["Ongoing"])
    if cluster.version_of(66) >= 2:
        for pattern in (f"{prefix}-e.*", "empty", ".*-(ongoing|aborted)", "", "("):
            ask_for(f"pattern {pattern.removeprefix(prefix)}", transactional_id_pattern=pattern)


# WriteTxnMarkers: what brokers send, and administrators who end what was left hanging


@scenario
def markers(cluster: Cluster, prefix: str) -> None:
    producer = start(cluster, prefix)
    producer.send(prefix, b"a")

    def mark(label: str, is_commit: bool = ABORT, **changes: Any) -> None:
        topic = changes.pop("topic", prefix)
        partitions = changes.pop("partitions", [0])
        fields = {
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "coordinator_epoch": 0,
            "transaction_version": 0,
        }
        topics = [write_txn_markers.WritableTxnMarkerTopic(topic, partitions)]
        marker = write_txn_markers.WritableTxnMarker(
            transaction_result=is_commit, topics=topics, **(fields | changes)
        )
        cluster.ask(write_txn_markers.WriteTxnMarkersRequest([marker]), label=label)

    mark("epoch before", producer_epoch=producer.epoch - 1)
    mark("unknown topic", topic=f"{prefix}-missing")
    mark("unknown partition", partitions=[7])
    mark("same epoch, version 2", transaction_version=2)
    describe_the_producers(cluster, "before", prefix, 0, 1)
    mark("an administrator's abort", coordinator_epoch=-1)
    describe_the_producers(cluster, "ended", prefix, 0, 1)
    mark("the same once more", coordinator_epoch=-1)
    mark("coordinator epoch 5", coordinator_epoch=5)
    mark("coordinator epoch 4", coordinator_epoch=4)
    mark("epoch to come", producer_epoch=producer.epoch + 3, coordinator_epoch=5)
    mark("epoch passed", producer_epoch=producer.epoch + 2, coordinator_epoch=5)
    mark("a producer without data", producer_id=producer.id + 500, partitions=[1], coordinator_epoch=5)
    read(cluster, "markers", prefix, isolation=0)
    read(cluster, "markers of the other partition", prefix, isolation=0, partition=1)
    describe_the_producers(cluster, "after all", prefix, 0, 1)
    for label in ("version 2", "version 2, once more"):
        mark(label, producer_epoch=producer.epoch + 4, coordinator_epoch=5, transaction_version=2)
    read(cluster, "markers that came twice", prefix, isolation=0)
    describe_the_producers(cluster, "version 2", prefix, 0, 1)
    none = write_txn_markers.WriteTxnMarkersRequest([])
    cluster.ask(none, label="no markers")


# Every version of a request


@scenario
def refusals_in_every_version(cluster: Cluster, prefix: str) -> None:
    """Older clients know fewer errors."""
    if cluster.version_of(0) < ADDS_BY_ITSELF_SINCE:
        return  # once is enough
    producer = start(cluster, prefix, 20)
    stale = Producer(cluster, prefix, id=producer.id, epoch=producer.epoch - 1)
    unknown = Producer(cluster, f"{prefix}-unknown", id=producer.id, epoch=producer.epoch)

    def ask_in_all(label: str, request: Any, last: int | None = None) -> None:
        key = request.API_KEY
        for version in range(SCHEMAS[key].min_version, (last or cluster.version_of(key)) + 1):
            ask(cluster, request, f"{label}, version {version}", version)

    for who, label in ((stale, "fenced"), (unknown, "unknown")):
        ask_in_all(label, who.adding(prefix, 0), LAST_CLIENT_VERSION)
        ask_in_all(label, who.adding_offsets(prefix))
        ask_in_all(label, who.offsets(prefix, prefix, 1))
        ask_in_all(label, who.ending(COMMIT))
    ask_in_all("not added", producer.offsets(prefix, prefix, 1), OFFSETS_ADD_THEMSELVES_SINCE - 1)
    who_it_was = {"producer_id": stale.id, "producer_epoch": stale.epoch}
    ask_in_all("fenced", init_producer_id.InitProducerIdRequest(prefix, 60_000, **who_it_was))
    for version in range(SCHEMAS[0].min_version, cluster.version_of(0) + 1):
        for who, label in ((stale, "fenced"), (unknown, "unknown")):
            records = who.records(prefix, b"x", partition=version)
            request = who.producing(prefix, records, version)
            ask(cluster, request, f"{label}, version {version}", version)
