"""Transactions on replicas: what a leader has learned, its followers know, and a new leader goes on from there."""

import random
import uuid

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import read_header
from odradek.records.record import Record, build_batch
from odradek.replication.follower import Follower
from odradek.replication.leader import Leader
from odradek.replication.replica import Replica
from odradek.replication.settings import ReplicaSettings
from odradek.replication.unmade_log import UnmadeLog
from odradek.storage.config import LogConfig
from odradek.storage.disk.deletions import Deletions
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.contents import LogHome
from odradek.storage.log.log import Log
from odradek.storage.log.opening import create_log
from odradek.storage.producers.markers import TransactionEnd
from odradek.storage.segments.damage import Damages
from tests.replication.fakes import NAME, registration

NOW_MS = 1_700_000_000_000
PRODUCER = 7


def new_log() -> Log:
    files = SimulatedFiles()
    files.make_directory("/data")
    home = LogHome(files, "/data/t-0", Deletions(), random.Random(0), Damages())
    return create_log(home, NAME, uuid.UUID(int=1), LogConfig(), NOW_MS)


class Broker:
    """A replica of the partition."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        settings = ReplicaSettings(sync_commit=False)
        self.replica = Replica(
            NAME, uuid.UUID(int=1), new_log(), settings, high_watermark=0, appended=lambda replica: None
        )

    @property
    def log(self) -> Log:
        return self.replica.log

    @property
    def leader(self) -> Leader:
        assert self.replica.leader is not None
        return self.replica.leader

    @property
    def follower(self) -> Follower:
        assert self.replica.follower is not None
        return self.replica.follower

    def take_role(self, leader: int, epoch: int) -> None:
        registered = registration(
            leader=leader, leader_epoch=epoch, partition_epoch=epoch, replicas=(1, 2), isr=(1, 2)
        )
        self.replica.take_role(self.node_id, registered, NOW_MS)

    def write(self, sequence: int, epoch: int = 0) -> int:
        batch = build_batch(
            [Record(0, NOW_MS, None, b"x")],
            producer_id=PRODUCER,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        producers = self.log.producers
        verification = None
        if not producers.has_open_transaction(PRODUCER, epoch):
            verification = producers.begin_verification(PRODUCER, epoch, sequence, NOW_MS, False)
        written = self.leader.append(batch, read_header(batch), NOW_MS, verification=verification)
        return written.base_offset

    def end(self, *, epoch: int = 1, is_commit: bool = False, coordinator_epoch: int = 0) -> int:
        return self.leader.append_marker(
            TransactionEnd(
                producer_id=PRODUCER,
                producer_epoch=epoch,
                coordinator_epoch=coordinator_epoch,
                is_commit=is_commit,
                transaction_version=2,
            ),
            NOW_MS,
        )

    def follow(self, other: "Broker") -> None:
        """One round: fetch what is new, and tell the leader where we are."""
        offset = self.log.end_offset
        other.leader.replica_fetched(self.node_id, 1, offset, NOW_MS)
        piece = other.log.read(offset, 1 << 20, other.log.end_offset)
        if piece is not None:
            self.follower.append(piece.file.read_at(piece.position, piece.length), NOW_MS)
        self.follower.learn_high_watermark(other.leader.high_watermark)


@pytest.fixture
def brokers() -> tuple[Broker, Broker]:
    both = Broker(1), Broker(2)
    for broker in both:
        broker.take_role(1, 0)
    return both


def swap(brokers: tuple[Broker, Broker], leader: int, epoch: int) -> None:
    for broker in brokers:
        broker.take_role(leader, epoch)


def test_a_new_leader_knows_the_open_transaction(brokers: tuple[Broker, Broker]) -> None:
    first, second = brokers
    first.write(0)
    second.follow(first)
    second.follow(first)
    swap(brokers, 2, 1)
    assert second.log.producers.has_open_transaction(PRODUCER, 0)
    assert second.leader.last_stable_offset == 0
    assert second.write(1) == 1
    assert second.end() == 2
    assert second.log.aborted_transactions(0, 3) == [(PRODUCER, 0, 2, 3)]


def test_a_marker_is_effective_once_it_is_committed(brokers: tuple[Broker, Broker]) -> None:
    first, second = brokers
    first.write(0)
    first.end(is_commit=True)
    second.follow(first)
    assert first.leader.last_stable_offset == 0
    second.follow(first)
    assert (first.leader.high_watermark, first.leader.last_stable_offset) == (2, 2)
    assert second.replica.last_stable_offset == 2


def test_nothing_is_kept_of_transactions_that_have_ended_for_good(brokers: tuple[Broker, Broker]) -> None:
    """Nobody asks a follower for its last stable offset, nor a leader whose records nobody reads."""
    first, second = brokers
    for epoch in range(20):
        first.write(0, epoch)
        first.end(epoch=epoch + 1)
        second.follow(first)
        second.follow(first)
    assert len(first.log.producers.ended) <= 1 and not second.log.producers.ended


def test_a_marker_that_was_not_committed_is_written_again_by_the_next_leader(
    brokers: tuple[Broker, Broker],
) -> None:
    first, second = brokers
    first.write(0)
    second.follow(first)
    first.end()  # nobody fetched it
    swap(brokers, 2, 1)
    assert second.log.producers.has_open_transaction(PRODUCER, 0)
    second.end()
    first.follower.truncate(0, 1, 0)
    assert first.log.producers.has_open_transaction(PRODUCER, 0)
    assert first.log.aborted_transactions(0, 9) == []
    first.follow(second)
    assert first.log.aborted_transactions(0, 9) == [(PRODUCER, 0, 1, 2)]
    assert not first.log.producers.open_transactions


def test_a_follower_forgets_what_it_was_to_verify_as_a_leader(brokers: tuple[Broker, Broker]) -> None:
    """The transaction was ended by the leader in between."""
    first, second = brokers
    late = first.log.producers.begin_verification(PRODUCER, 0, 0, NOW_MS, False)
    swap(brokers, 2, 1)
    second.end(epoch=0)
    first.follow(second)
    swap(brokers, 1, 2)
    assert not first.log.producers.is_known(late)


def test_a_repeated_marker_waits_for_the_first_one(brokers: tuple[Broker, Broker]) -> None:
    first, _ = brokers
    first.write(0)
    assert first.end() == first.end() == 1
    assert first.log.end_offset == 2


def test_a_leader_that_was_replaced_writes_no_marker(brokers: tuple[Broker, Broker]) -> None:
    first, _ = brokers
    first.write(0)
    old = first.leader
    swap(brokers, 2, 1)
    for epoch in (0, 1):
        with pytest.raises(KafkaError) as raised:
            old.append_marker(
                TransactionEnd(
                    producer_id=PRODUCER,
                    producer_epoch=epoch,
                    coordinator_epoch=0,
                    is_commit=True,
                    transaction_version=2,
                ),
                NOW_MS,
            )
        assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_first_batch_of_a_transaction_may_make_the_log() -> None:
    """A transaction that was verified before the log had files is verified in it."""
    replica: Replica

    def make() -> Log:
        log = new_log()
        replica.use_log(log)
        return log

    unmade = UnmadeLog(NAME, LogConfig(), make)
    replica = Replica(
        NAME,
        uuid.UUID(int=1),
        unmade,
        ReplicaSettings(),
        high_watermark=0,
        appended=lambda replica: None,  # type: ignore[arg-type]
    )
    replica.take_role(1, registration(), NOW_MS)
    assert replica.leader is not None
    verification = unmade.producers.begin_verification(PRODUCER, 0, 0, NOW_MS, True)
    batch = build_batch(
        [Record(0, NOW_MS, None, b"x")],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    replica.leader.append(batch, read_header(batch), NOW_MS, verification=verification)
    assert replica.log.producers.has_open_transaction(PRODUCER, 0)
