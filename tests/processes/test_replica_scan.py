"""The scanner of replicas itself: it sees a difference wherever there is one."""

from pathlib import Path

import pytest

from odradek.model import TopicPartition
from odradek.records.record import Record, build_batch
from tests.processes.replica_scan import StoredReplica, check_replicas

PARTITION = TopicPartition("t", 0)
VALUES = (b"a", b"b", b"c", b"d")


def batch(offset: int, value: bytes, epoch: int = 0) -> bytes:
    return bytes(build_batch([Record(offset, 1000, None, value)], leader_epoch=epoch))


def stored(home: Path, *segments: list[bytes]) -> Path:
    """A data directory with these batches of one record each, in segments."""
    directory = home / str(PARTITION)
    directory.mkdir(parents=True)
    offset = 0
    for batches in segments:
        (directory / f"{offset:020d}.log").write_bytes(b"".join(batches))
        offset += len(batches)
    return home


@pytest.fixture
def batches() -> list[bytes]:
    return [batch(offset, value) for offset, value in enumerate(VALUES)]


def test_equal_replicas_are_equal_wherever_their_segments_end(tmp_path: Path, batches: list[bytes]) -> None:
    homes = {
        1: stored(tmp_path / "1", batches),
        2: stored(tmp_path / "2", batches[:1], batches[1:]),
        3: stored(tmp_path / "3", batches[:3], batches[3:]),
    }
    assert check_replicas(homes, {PARTITION: 4}) == 8


def test_what_is_not_committed_may_differ(tmp_path: Path, batches: list[bytes]) -> None:
    homes = {
        1: stored(tmp_path / "1", batches),
        2: stored(tmp_path / "2", [*batches[:3], batch(3, b"x", epoch=1)]),
        3: stored(tmp_path / "3", batches[:3]),
    }
    assert check_replicas(homes, {PARTITION: 3}) == 6


@pytest.mark.parametrize("other", [batch(1, b"x"), batch(1, b"b", epoch=1)], ids=["value", "epoch"])
def test_a_committed_batch_that_differs_is_seen(tmp_path: Path, batches: list[bytes], other: bytes) -> None:
    homes = {
        1: stored(tmp_path / "1", batches),
        2: stored(tmp_path / "2", batches),
        3: stored(tmp_path / "3", [batches[0], other]),
    }
    with pytest.raises(AssertionError, match="nodes 1 and 3 differ at offset 1"):
        check_replicas(homes, {PARTITION: 2})


def test_a_replica_that_is_too_short_or_not_there_is_seen(tmp_path: Path, batches: list[bytes]) -> None:
    homes = {1: stored(tmp_path / "1", batches), 2: stored(tmp_path / "2", batches[:3]), 3: tmp_path / "3"}
    with pytest.raises(AssertionError, match=r"end before the high watermark 4: {2: 3, 3: 0}"):
        check_replicas(homes, {PARTITION: 4})


def test_a_gap_in_one_replica_is_seen(tmp_path: Path, batches: list[bytes]) -> None:
    homes = {1: stored(tmp_path / "1", batches), 2: stored(tmp_path / "2", [batches[0], *batches[2:]])}
    with pytest.raises(AssertionError, match="nodes 1 and 2 differ at offset 1"):
        check_replicas(homes, {PARTITION: 4})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([batch(0, b"a"), batch(0, b"a")], "offset 1 was next"),
        ([batch(0, b"a", epoch=2), batch(1, b"b", epoch=1)], "epoch 1 after 2"),
        ([batch(0, b"a")[:-1] + b"?"], "damaged"),
        ([batch(0, b"a"), b"garbage"], "is no batch"),
    ],
    ids=["offsets", "epochs", "checksum", "tail"],
)
def test_a_replica_that_is_wrong_in_itself_is_seen(
    tmp_path: Path, content: list[bytes], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        StoredReplica(stored(tmp_path, content), PARTITION)
