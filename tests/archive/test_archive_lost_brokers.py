"""Three brokers, of which one is killed in the middle of an archive or a replay.

Afterwards the ledger is compared: every offset is in the archive once and in order, every archived record in the copy.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from odradek.archive.failures import Final
from odradek.archive.location import Location
from odradek.archive.tables import Table
from odradek.archiving import replay as replaying
from odradek.archiving import topics as reading
from odradek.archiving.archiver import Archiver, Order
from odradek.archiving.replay import Replay
from odradek.archiving.replay_sources import ArchivedTopic
from odradek.archiving.topics import ClusterTopic
from odradek.client.settings import ClientSettings, FetchSettings
from odradek.client.transactions import TransactionalProducer
from odradek.ledger.topic import TRANSACTIONAL_ID, Ledger
from odradek.testing import Cluster, Node, cluster
from tests.archive.conftest import archived_rows
from tests.mirror.lab import client, fill, ledger, records_of

PARTITIONS = 2
REPLICAS = [[1, 2, 3], [2, 3, 1]]
ROWS = 60
SMALL = FetchSettings(
    read_committed=True, max_wait_ms=50, max_bytes=1500
)  # so that a range takes many fetches


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with cluster(3) as three:
        yield three


class Killer:
    """Kills the node that is found when it is called for the `number`th time."""

    def __init__(self, find: Callable[[], Node], number: int) -> None:
        self._find, self._left = find, number
        self.killed: Node | None = None

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.killed = self._find()
            self.killed.crash()

    def bury(self, three: Cluster) -> None:
        assert self.killed is not None, "it never came to that"
        self.killed.start()
        three.wait_until_in_sync()


def before(monkeypatch, owner: Any, name: str, work: Callable[[], None]) -> None:
    """Let `work` be done before each call of this function."""
    original = getattr(owner, name)

    def with_work(*arguments: Any, **named: Any) -> Any:
        work()
        return original(*arguments, **named)

    monkeypatch.setattr(owner, name, with_work)


def archive_once(three: Cluster, archive: Path, topic: str) -> None:
    bootstrap = tuple(
        (host, int(port)) for host, _, port in (n.rpartition(":") for n in three.bootstrap.split(","))
    )
    order = Order(ClientSettings(bootstrap), str(archive), (topic,))
    Archiver(order, lambda done: None, lambda text: None).run_once()


def check_archive(three: Cluster, archive: Path, topic: str) -> None:
    archived = archived_rows(archive, topic)
    assert archived.keys() == set(range(PARTITIONS))
    for number, records in records_of(three.bootstrap, topic).items():
        found = [(row["offset"], row["key"], row["value"]) for row in archived[number]]
        assert found == [(one.offset, one.key, one.value) for one in records]


MOMENTS = {  # the function before which the leader of the source is killed, and at which call
    "between two fetches": (reading, "_columns", 2),
    "before the topic is read": (ClusterTopic, "_write", 1),
    "before the topic is looked at": (ClusterTopic, "describe", 1),
    "before the topic is looked at again": (ClusterTopic, "topic_id", 1),
    "before the commit": (Table, "commit", 1),
}


@pytest.mark.parametrize(
    "moments", [[*MOMENTS][:1], pytest.param([*MOMENTS][1:], marks=pytest.mark.long)], ids=["one", "others"]
)
def test_the_leader_of_the_source_is_killed_while_it_is_archived(three, archive, monkeypatch, moments):
    topic = three.create_topic(partitions=PARTITIONS, replicas=REPLICAS)
    monkeypatch.setattr(reading, "FETCH", SMALL)
    for moment in moments:
        fill(three.bootstrap, topic, 4 * ROWS, PARTITIONS, acks="all")
        owner, name, number = MOMENTS[moment]
        killer = Killer(lambda: three.leader(topic, 1), number)
        with monkeypatch.context() as patch:
            before(patch, owner, name, killer)
            archive_once(three, archive, topic)
        check_archive(three, archive, topic)
        killer.bury(three)
    archive_once(three, archive, topic)
    check_archive(three, archive, topic)


@pytest.mark.long
def test_a_log_that_was_cut_and_has_grown_again_is_refused(three, archive):
    """By an unclean election, after which the log is longer than the archive: offsets alone would not tell."""
    config = {"min.insync.replicas": 1, "unclean.leader.election.enable": "true"}
    topic = three.create_topic(replicas=[[1, 2]], config=config)
    fill(three.bootstrap, topic, 5, 1, acks="all")
    archive_once(three, archive, topic)
    three[2].crash()
    fill(three.bootstrap, topic, ROWS, 1, acks="all")
    archive_once(three, archive, topic)
    three[1].crash()
    three[2].start()
    assert three.leader(topic, other_than=three[1]) is three[2]
    fill(three.bootstrap, topic, 2 * ROWS, 1, acks="all")
    with pytest.raises(Final, match=r"has lost what was at offset 5 and after it .* to other records"):
        archive_once(three, archive, topic)
    three[1].start()
    three.wait_until_in_sync()
    assert Table.open(Location.of(str(archive), topic)).snapshot().ends == {0: 5 + ROWS}


def coordinator(three: Cluster, sink: str, target: str) -> Node:
    return three.transaction_coordinator(TRANSACTIONAL_ID + sink)


def leader_of_the_target(three: Cluster, sink: str, target: str) -> Node:
    return three.leader(target, 0)


def leader_of_the_ledger(three: Cluster, sink: str, target: str) -> Node:
    with closing(client(three.bootstrap)) as own:
        partition = Ledger(own).partition_of(sink)
    return three.leader(partition.topic, partition.partition)


STEPS = {
    "add": 2,
    "send": 3,
    "commit": 2,
    "initialize": 1,
}  # of the producer; the call before which a node is killed


@pytest.mark.parametrize(
    ("find", "steps"),
    [
        (coordinator, ["commit"]),
        pytest.param(coordinator, ["initialize", "add", "send"], marks=pytest.mark.long),
        pytest.param(leader_of_the_target, ["add", "send", "commit"], marks=pytest.mark.long),
        pytest.param(leader_of_the_ledger, [*STEPS], marks=pytest.mark.long),
    ],
)
def test_a_broker_of_the_target_is_killed_while_it_is_replayed(three, archive, monkeypatch, find, steps):
    topic = three.create_topic(partitions=PARTITIONS, replicas=REPLICAS)
    fill(three.bootstrap, topic, ROWS, PARTITIONS, acks="all")
    archive_once(three, archive, topic)
    monkeypatch.setattr(replaying, "CHUNK_ROWS", 7)
    source = ArchivedTopic(Table.open(Location.of(str(archive), topic)))
    for step in steps:
        target = three.create_topic(partitions=PARTITIONS, replicas=REPLICAS)
        with closing(client(three.bootstrap)) as own:
            sink = source.parts(own.topic_ids([target])[target])[0].sink
            killer = Killer(lambda sink=sink, target=target: find(three, sink, target), STEPS[step])
            with monkeypatch.context() as patch:
                before(patch, TransactionalProducer, step, killer)
                Replay(own, source, target).run()
        assert ledger(three.bootstrap, target) == ledger(three.bootstrap, topic)
        killer.bury(three)
