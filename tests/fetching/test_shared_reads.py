"""Tests of what followers read of a leader's log: the second one gets what the first one got, and nothing older."""

import pytest

from odradek.fetching import shared_reads
from odradek.fetching.shared_reads import SharedReads
from odradek.replication.leader import Leader
from odradek.replication.source import Isolation
from odradek.storage.segments.row import Slice
from tests.replication.fakes import FakeLog, lead

LIMIT = 1 << 20
LOG_END = Isolation.LOG_END


class SegmentFile:
    """A log, as far as a read needs it."""

    def __init__(self) -> None:
        self.is_cached = True
        self.copied: list[int] = []  # the positions that were read

    def ensure_open(self) -> None:
        pass

    def read_now(self, position: int, length: int) -> bytearray | None:
        if not self.is_cached:
            return None
        self.copied.append(position)
        return bytearray(length)


class ReadableLog(FakeLog):
    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[int, int, int]] = []
        self.size = 100
        self.file = SegmentFile()

    def last_stable_offset(self, high_watermark: int) -> int:
        return high_watermark

    def read(self, offset: int, max_bytes: int, upper_offset: int, minimum_one: bool = True) -> Slice | None:
        self.reads.append((offset, upper_offset, max_bytes))
        if offset >= upper_offset:
            return None
        return Slice(self.file, offset, min(self.size, max_bytes))  # type: ignore[arg-type]


@pytest.fixture
def log() -> ReadableLog:
    log = ReadableLog()
    log.end_offset = 5
    return log


@pytest.fixture
def leader(log: ReadableLog) -> Leader:
    return lead(log, leader_epoch=4)


def test_two_followers_cost_one_read(leader: Leader, log: ReadableLog) -> None:
    reads = SharedReads()
    first = reads.read(leader, 3, LIMIT, True, LOG_END)
    assert reads.read(leader, 3, LIMIT, True, LOG_END) is first
    assert (first.length, first.records, first.high_watermark) == (100, bytearray(100), 0)
    assert log.file.copied == [3] and len(log.reads) == 1


@pytest.mark.parametrize("change", ["offset", "end", "high watermark", "start", "limit", "minimum", "leader"])
def test_nothing_is_shared_that_has_changed(change: str, leader: Leader, log: ReadableLog) -> None:
    reads = SharedReads()
    before = reads.read(leader, 3, LIMIT, True, LOG_END)
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
    after = reads.read(leader, offset, limit, minimum_one, LOG_END)
    assert after is not before and len(log.reads) == 2
    assert after.high_watermark == leader.high_watermark
    assert after.log_start_offset == log.log_start_offset
    assert log.reads[1] == (offset, log.end_offset, limit)


def test_much_is_sent_from_the_file_which_is_looked_up_each_time(leader: Leader, log: ReadableLog) -> None:
    log.size = shared_reads.COPY_BELOW
    reads = SharedReads()
    responses = [reads.read(leader, 3, LIMIT, True, LOG_END) for _ in range(2)]
    assert all(isinstance(response.records, Slice) for response in responses)
    assert log.file.copied == [] and len(log.reads) == 2, "the file may have been replaced"


def test_what_is_not_in_the_page_cache_is_left_to_the_connection(leader: Leader, log: ReadableLog) -> None:
    log.file.is_cached = False
    response = SharedReads().read(leader, 3, LIMIT, True, LOG_END)
    assert isinstance(response.records, Slice) and response.length == 100


def test_a_follower_that_has_everything_gets_nothing(leader: Leader, log: ReadableLog) -> None:
    response = SharedReads().read(leader, 5, LIMIT, True, LOG_END)
    assert (response.records, response.length, log.file.copied) == (None, 0, [])
