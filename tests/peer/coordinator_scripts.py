"""Scripts about transactions, for `test_peer_responses`: every state that lasts, by every request, in both protocols.

The versions of the requests are part of these scripts: they choose the protocol. Each question is put about a
transactional id of its own. A state that passes by itself (Prepare…) is waited for.
"""

import time
from collections.abc import Callable
from typing import Any

from odradek.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    list_transactions,
    produce,
)
from tests.peer.exchange import Cluster
from tests.peer.scripts import KEEP_OLD, TIMEOUT_MS, batch, list_offsets_request, scenario

BEFORE_2, SINCE_2 = 4, 5  # versions of EndTxn
NEEDS = (0, 1, 10, 19, 22, 24, 25, 26, 65, 66)
CONCURRENT_TRANSACTIONS, LOADING, NOT_COORDINATOR = 51, 14, 16
READ_COMMITTED = 1

Producer = tuple[int, int]


class Talk:
    """About one transactional id."""

    def __init__(self, cluster: Cluster, transactional_id: str, topic: str) -> None:
        self.cluster = cluster
        self.id = transactional_id
        self.topic = topic

    # --- requests ---

    def init(self, producer: Producer = (-1, -1), timeout_ms: int = 60_000) -> Any:
        return init_producer_id.InitProducerIdRequest(self.id, timeout_ms, *producer)

    def add(self, producer: Producer, *partitions: int, topic: str | None = None) -> Any:
        topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(topic or self.topic, list(partitions))]
        return add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics,
        )

    def ask_as_broker(self, producer: Producer, *partitions: int, verify: bool) -> Any:
        topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(self.topic, list(partitions))]
        asked = add_partitions_to_txn.AddPartitionsToTxnTransaction(self.id, *producer, verify, topics)
        return add_partitions_to_txn.AddPartitionsToTxnRequest([asked])

    def end(self, producer: Producer, commit: bool) -> Any:
        return end_txn.EndTxnRequest(self.id, *producer, commit)

    def write(self, producer: Producer, sequence: int, value: bytes) -> Any:
        records = batch(
            value,
            first_time_ms=int(time.time() * 1000),  # an old one would be in another segment than its marker
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        data = [produce.PartitionProduceData(0, records)]
        topic = produce.TopicProduceData(self.cluster.id_of(self.topic), self.topic, data)
        return produce.ProduceRequest(self.id, -1, TIMEOUT_MS, [topic])

    # --- getting somewhere ---

    def begin(self) -> Producer:
        """Empty, in epoch 2, which was 1 before for the same producer."""
        wanted = find_coordinator.FindCoordinatorRequest(self.id, 1, [self.id])
        self._settled(wanted, 4, lambda response: response.coordinators[0].error_code)
        response = self._settled(self.init(), 4, lambda response: response.error_code)
        for epoch in (0, 1):
            self._settled(self.init((response.producer_id, epoch)), 4, lambda response: response.error_code)
        return response.producer_id, 2

    def open(self, producer: Producer) -> Producer:
        """Ongoing, with partition 0."""

        def code_of(response: Any) -> int:
            code: int = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            return code

        self._settled(self.add(producer, 0), 3, code_of)
        return producer

    def finish(self, producer: Producer, commit: bool, version: int) -> Producer:
        """CompleteCommit, or CompleteAbort."""
        response = self._settled(self.end(producer, commit), version, lambda response: response.error_code)
        self.await_state("CompleteCommit" if commit else "CompleteAbort")
        return (response.producer_id, response.producer_epoch) if response.producer_id >= 0 else producer

    def await_state(self, state: str) -> None:
        request = describe_transactions.DescribeTransactionsRequest([self.id])
        self._settled(request, 0, lambda response: response.transaction_states[0].transaction_state != state)

    def _settled(self, request: Any, version: int, is_unsettled: Callable[[Any], object]) -> Any:
        responses: list[Any] = []

        def ask() -> bool:
            responses.append(self.cluster.ask_quietly(request, version))
            return not is_unsettled(responses[-1])

        self.cluster.wait_for(ask)
        return responses[-1]

    # --- questions ---

    def ask(self, label: str, request: Any, version: int) -> Any:
        return self.cluster.ask(request, version, label)

    def describe(self, label: str) -> None:
        self.ask(label, describe_transactions.DescribeTransactionsRequest([self.id]), 0)


def states(version: int) -> dict[str, Callable[[Talk], Producer]]:
    return {
        "Empty": lambda talk: talk.begin(),
        "Ongoing": lambda talk: talk.open(talk.begin()),
        "CompleteCommit": lambda talk: talk.finish(talk.open(talk.begin()), True, version),
        "CompleteAbort": lambda talk: talk.finish(talk.open(talk.begin()), False, version),
    }


Question = Callable[[Talk, Producer], tuple[Any, int]]


def questions(end_version: int) -> dict[str, Question]:
    """Return what is asked of a producer with this id and epoch, and the version."""

    def older(producer: Producer, by: int = 1) -> Producer:
        return producer[0], producer[1] - by

    def other(producer: Producer) -> Producer:
        return producer[0] + 100_000, producer[1]

    asked: dict[str, Question] = {
        "init": lambda talk, now: (talk.init(), 4),
        "init as now": lambda talk, now: (talk.init(now), 4),
        "init as before": lambda talk, now: (talk.init(older(now)), 4),
        "init as long before": lambda talk, now: (talk.init(older(now, 2)), 4),
        "init as another": lambda talk, now: (talk.init(other(now)), 4),
        "init as before, old": lambda talk, now: (talk.init(older(now, 2)), 3),
        "add": lambda talk, now: (talk.add(now, 1), 3),
        "add again": lambda talk, now: (talk.add(now, 0), 3),
        "add as before": lambda talk, now: (talk.add(older(now), 1, 0), 3),
        "add as before, old": lambda talk, now: (talk.add(older(now), 1), 1),
        "add as another": lambda talk, now: (talk.add(other(now), 1), 3),
        "add what is not there": lambda talk, now: (talk.add(now, 1, 9), 3),
        "add an internal topic": lambda talk, now: (talk.add(now, 0, topic="__consumer_offsets"), 3),
        "broker adds": lambda talk, now: (talk.ask_as_broker(now, 1, verify=False), 5),
        "broker adds as before": lambda talk, now: (talk.ask_as_broker(older(now), 1, verify=False), 5),
        "broker adds what is not there": lambda talk, now: (talk.ask_as_broker(now, 9, verify=False), 5),
        "verify": lambda talk, now: (talk.ask_as_broker(now, 0, 1, verify=True), 5),
        "verify as before": lambda talk, now: (talk.ask_as_broker(older(now), 0, verify=True), 4),
        "verify as another": lambda talk, now: (talk.ask_as_broker(other(now), 0, verify=True), 5),
        "add offsets": lambda talk, now: (add_offsets_to_txn.AddOffsetsToTxnRequest(talk.id, *now, "g"), 4),
        "add offsets as before, old": lambda talk, now: (
            add_offsets_to_txn.AddOffsetsToTxnRequest(talk.id, *older(now), "g"),
            1,
        ),
    }
    for word, commit in (("commit", True), ("abort", False)):
        asked |= _ends(word, commit, end_version, older, other)
    return asked


def _ends(
    word: str, commit: bool, version: int, older: Callable[..., Producer], other: Callable[..., Producer]
) -> dict[str, Question]:
    return {
        word: lambda talk, now: (talk.end(now, commit), version),
        f"{word} as before": lambda talk, now: (talk.end(older(now), commit), version),
        f"{word} as long before": lambda talk, now: (talk.end(older(now, 2), commit), version),
        f"{word} as before, old": lambda talk, now: (talk.end(older(now), commit), 1),
        f"{word} too early": lambda talk, now: (talk.end(older(now, -1), commit), version),
        f"{word} as another": lambda talk, now: (talk.end(other(now), commit), version),
    }


def ask_all(cluster: Cluster, prefix: str, end_version: int) -> None:
    cluster.create(prefix, 2, **KEEP_OLD)
    for state, reach in states(end_version).items():
        for label, question in questions(end_version).items():
            talk = Talk(cluster, f"{prefix}-{state}-{label}", prefix)
            now = reach(talk)
            talk.ask(f"{state}: {label}", *question(talk, now))


@scenario(*NEEDS)
def transactions_before_version_2(cluster: Cluster, prefix: str) -> None:
    ask_all(cluster, prefix, BEFORE_2)


@scenario(*NEEDS)
def transactions_since_version_2(cluster: Cluster, prefix: str) -> None:
    ask_all(cluster, prefix, SINCE_2)


@scenario(*NEEDS)
def unknown_transactional_ids(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix, 2)
    Talk(cluster, prefix, prefix).begin()  # the coordinators are there
    talk = Talk(cluster, f"{prefix}-unknown", prefix)
    talk.describe("unknown")
    for version in (BEFORE_2, SINCE_2):
        for commit in (True, False):
            talk.ask("unknown", talk.end((7, 0), commit), version)
    talk.ask("unknown", talk.add((7, 0), 0), 3)
    talk.ask("unknown", talk.ask_as_broker((7, 0), 0, 1, verify=True), 5)
    talk.ask("unknown", talk.ask_as_broker((7, 0), 0, verify=False), 5)
    talk.ask("too long", talk.init(timeout_ms=900_001), 5)
    talk.ask("no time", talk.init(timeout_ms=0), 5)
    talk.ask("no epoch", talk.init((7, -1)), 5)
    talk.ask("no producer", talk.init((-1, 7)), 5)
    talk.ask("as somebody", talk.init((7, 3)), 5)
    nameless = Talk(cluster, "", prefix)
    nameless.describe("nameless")
    for version in (BEFORE_2, SINCE_2):
        nameless.ask("nameless", nameless.end((7, 0), True), version)
    nameless.ask("nameless", nameless.add((7, 0), 0), 3)
    nameless.ask("nameless", nameless.ask_as_broker((7, 0), 0, verify=True), 5)
    nameless.ask("nameless", nameless.ask_as_broker((7, 0), 0, verify=False), 5)
    nameless.ask("nobody", describe_transactions.DescribeTransactionsRequest(), 0)


@scenario(*NEEDS)
def a_life_of_transactions(cluster: Cluster, prefix: str) -> None:
    """Written, committed, aborted and read, by both protocols in turn."""
    cluster.create(prefix, 2, **KEEP_OLD)
    talk = Talk(cluster, prefix, prefix)
    now = talk.begin()
    sequence = 0
    for number, commit in enumerate((True, False, True)):
        talk.open(now)
        talk.ask(f"older {number}", talk.write(now, sequence, b"older %d" % number), 11)
        talk.describe(f"older {number}")
        now = talk.finish(now, commit, BEFORE_2)
        talk.describe(f"older {number}, ended")
        sequence += 1
    for number, commit in enumerate((True, False, True)):
        first = 0 if number else sequence
        talk.ask(f"newer {number}", talk.write(now, first, b"newer %d" % number), 12)
        talk.describe(f"newer {number}")
        now = talk.finish(now, commit, SINCE_2)
        talk.describe(f"newer {number}, ended")
    wanted = fetch.FetchPartition(partition_max_bytes=1 << 20)
    for isolation in (0, READ_COMMITTED):
        cluster.ask(list_offsets_request(prefix, -1, isolation=isolation), label=f"isolation {isolation}")
        topic = fetch.FetchTopic(cluster.id_of(prefix), prefix, [wanted])
        request = fetch.FetchRequest(max_bytes=1 << 20, isolation_level=isolation, topics=[topic])
        (partition,) = cluster.ask_quietly(request, 11).responses[0].partitions
        seen = {
            "code": partition.error_code,
            "bytes": len(partition.records or b""),
            "stable": partition.last_stable_offset,
            "aborted": [one.first_offset for one in partition.aborted_transactions or ()],
        }
        cluster.transcript.append((f"read with isolation {isolation}", seen))


@scenario(*NEEDS)
def lists_of_transactions(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix, 2)
    producers = {}
    for name in ("b", "a"):
        talk = Talk(cluster, f"{prefix}-{name}", prefix)
        producers[name] = talk.begin()
    talk.open(producers["a"])
    pattern = f"{prefix}-.*"
    request = list_transactions.ListTransactionsRequest

    def ask(label: str, version: int = 2, **filters: Any) -> None:
        cluster.ask(request(**({"transactional_id_pattern": pattern} | filters)), version, label)

    ask("all")
    ask("ongoing", state_filters=["Ongoing"])
    ask("not known", state_filters=["Odd"])
    ask("one not known", state_filters=["Ongoing", "Odd", "Dead"])
    ask("of a producer", producer_id_filters=[producers["b"][0]])
    ask("of nobody", producer_id_filters=[1 << 40])
    ask("for long", duration_filter=1 << 40, state_filters=["Ongoing"])
    ask("part of the name", transactional_id_pattern=prefix)
    ask("not a pattern", transactional_id_pattern="(")
    ask("by producer, old", 0, producer_id_filters=[producers["a"][0]], transactional_id_pattern=None)
