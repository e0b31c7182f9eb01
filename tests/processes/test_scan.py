"""The scanner itself: it sees a difference wherever there is one."""

from pathlib import Path
from uuid import UUID

import pytest

from odradek.metadata.log import MetadataLog
from odradek.metadata.properties import MetaProperties
from odradek.metadata.records import TopicRecord
from odradek.metadata.snapshot import id_of, write_snapshot
from odradek.raft.store import METADATA_PARTITION
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import DiskFiles
from odradek.wire.codec import drain
from tests.processes.scan import StoredLog, check_equal

CLUSTER = "a-cluster"
NOW_MS = 1_700_000_000_000


def stored(directory: Path, *topics: str) -> StoredLog:
    """The log of a node that has created these topics, one after the other."""
    directory.mkdir()
    properties = MetaProperties(CLUSTER, 1, UUID(int=1000))
    log = MetadataLog.open(DiskFiles(), str(directory), properties, LogConfig(), NOW_MS)
    for number, topic in enumerate(topics):
        log.commit([TopicRecord(topic, UUID(int=number + 200))], NOW_MS)
    log.close()
    return StoredLog(directory, CLUSTER)


def test_equal_logs_are_equal(tmp_path: Path) -> None:
    one, other = stored(tmp_path / "1", "a", "b"), stored(tmp_path / "2", "a", "b", "c")
    image, compared = check_equal({1: one, 2: other}, one.end_offset)
    assert set(image.topics) == {"a", "b"}
    assert compared >= 3


def test_a_record_that_differs_is_seen(tmp_path: Path) -> None:
    one, other = stored(tmp_path / "1", "a", "b"), stored(tmp_path / "2", "a", "x")
    with pytest.raises(AssertionError, match="nodes 1 and 2 differ at offset"):
        check_equal({1: one, 2: other}, one.end_offset)


def test_a_log_that_is_too_short_is_seen(tmp_path: Path) -> None:
    one, other = stored(tmp_path / "1", "a", "b"), stored(tmp_path / "2", "a")
    with pytest.raises(AssertionError, match=r"nodes \[2\] do not reach the committed offset"):
        check_equal({1: one, 2: other}, one.end_offset)


def test_a_node_that_stopped_before_another_wrote_its_last_snapshot_is_not_behind(tmp_path: Path) -> None:
    one, other = stored(tmp_path / "1", "a", "b"), stored(tmp_path / "2", "a", "b", "c")
    committed = one.end_offset
    newest = other.image_at(other.end_offset)
    assert newest is not None
    path = tmp_path / "2" / str(METADATA_PARTITION) / id_of(newest).file_name
    drain(write_snapshot(DiskFiles().create(str(path)), newest))
    image, _ = check_equal({1: one, 2: StoredLog(tmp_path / "2", CLUSTER)}, committed)
    assert set(image.topics) == {"a", "b", "c"}
