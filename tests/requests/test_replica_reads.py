"""What followers read of a leader's log: the second one gets what the first one got, and nothing older."""

from typing import NamedTuple

import pytest

from odradek.replication.leader import Leader
from odradek.requests import replica_reads
from odradek.requests.replica_reads import ReplicaReads
from odradek.storage.segments.row import Slice
from tests.replication.fakes import FakeLog, lead

LIMIT = 1 << 20


class Opened(NamedTuple):
    """The file of a segment, as far as a read needs it."""

    name: str

    def ensure_open(self) -> None:
        pass


class ReadableLog(FakeLog):
    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[int, int, int]] = []
        self.size = 100

    def last_stable_offset(self, high_watermark: int) -> int:
        return high_watermark

    def read(self, offset: int, max_bytes: int, upper_offset: int, minimum_one: bool = True) -> Slice | None:
        self.reads.append((offset, upper_offset, max_bytes))
        if offset >= upper_offset:
            return None
        return Slice(Opened("segment"), offset, min(self.size, max_bytes))  # type: ignore[arg-type]


@pytest.fixture
def log() -> ReadableLog:
    log = ReadableLog()
    log.end_offset = 5
    return log


@pytest.fixture
def leader(log: ReadableLog) -> Leader:
    return lead(log, leader_epoch=4)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets whose records were copied out of the page cache."""
    seen: list[int] = []

    def copy(piece: Slice) -> bytearray:
        seen.append(piece.position)
        return bytearray(piece.length)

    monkeypatch.setattr(replica_reads, "read_from_memory", copy)
    return seen


def test_two_followers_cost_one_read(leader: Leader, log: ReadableLog, copies: list[int]) -> None:
    reads = ReplicaReads()
    first = reads.read(leader, 3, LIMIT, True)
    assert reads.read(leader, 3, LIMIT, True) is first
    assert (first.length, first.records, first.high_watermark) == (100, bytearray(100), 0)
    assert copies == [3] and len(log.reads) == 1


@pytest.mark.parametrize("change", ["offset", "end", "high watermark", "start", "limit", "minimum", "leader"])
def test_nothing_is_shared_that_has_changed(
    change: str, leader: Leader, log: ReadableLog, copies: list[int]
) -> None:
    reads = ReplicaReads()
    before = reads.read(leader, 3, LIMIT, True)
    offset, limit, minimum_one = 3, LIMIT, True
    if change == "offset":
        offset = 4
    elif change == "end":
        log.end_offset = 6
    elif change == "high watermark":
        leader.high_watermark = 2
    elif change == "start":
        log.log_start_offset = 1
    elif change == "limit":
        limit = 50
    elif change == "minimum":
        minimum_one = False
    else:
        leader = lead(log, leader_epoch=5)
    after = reads.read(leader, offset, limit, minimum_one)
    assert after is not before and len(log.reads) == 2
    assert after.high_watermark == leader.high_watermark
    assert after.log_start_offset == log.log_start_offset
    assert log.reads[1] == (offset, log.end_offset, limit)


def test_much_is_sent_from_the_file_which_is_looked_up_each_time(
    leader: Leader, log: ReadableLog, copies: list[int]
) -> None:
    log.size = replica_reads.COPY_BELOW
    reads = ReplicaReads()
    answers = [reads.read(leader, 3, LIMIT, True) for _ in range(2)]
    assert all(isinstance(answer.records, Slice) for answer in answers)
    assert copies == [] and len(log.reads) == 2, "the file may have been replaced"


def test_what_is_not_in_the_page_cache_is_left_to_the_connection(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_reads, "read_from_memory", lambda piece: None)
    answer = ReplicaReads().read(leader, 3, LIMIT, True)
    assert isinstance(answer.records, Slice) and answer.length == 100


def test_a_follower_that_has_everything_gets_nothing(leader: Leader, copies: list[int]) -> None:
    answer = ReplicaReads().read(leader, 5, LIMIT, True)
    assert (answer.records, answer.length, copies) == (None, 0, [])
