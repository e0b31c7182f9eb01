"""Kafka's text files: what they look like, and what is refused."""

import uuid

import pytest

from odradek.model import NO_TOPIC_ID, TopicPartition
from odradek.storage.disk.checkpoints import (
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    MalformedCheckpoint,
    clean_shutdown_marker,
    format_partition_metadata,
    parse_partition_metadata,
    read_epochs,
    read_offsets,
    read_topic_id,
    write_epochs,
    write_offsets,
)
from odradek.storage.disk.simulated import SimulatedFiles


def disk() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_directory("/d")
    files.sync_directory("/")
    return files


def test_an_offset_checkpoint() -> None:
    files = disk()
    offsets = {TopicPartition("a.topic", 0): 5, TopicPartition("b", 12): 2**40}
    write_offsets(files, "/d/checkpoint", offsets)
    assert files.read("/d/checkpoint") == b"0\n2\na.topic 0 5\nb 12 1099511627776\n"
    assert read_offsets(files, "/d/checkpoint") == offsets


def test_an_epoch_checkpoint() -> None:
    files = disk()
    write_epochs(files, "/d/checkpoint", [(0, 0), (3, 17)])
    assert files.read("/d/checkpoint") == b"0\n2\n0 0\n3 17\n"
    assert read_epochs(files, "/d/checkpoint") == [(0, 0), (3, 17)]


def test_a_checkpoint_that_is_missing_or_empty_has_no_entries() -> None:
    files = disk()
    assert read_offsets(files, "/d/checkpoint") == {}
    files.create("/d/checkpoint")
    assert read_offsets(files, "/d/checkpoint") == {}


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 x\n",
        b"0",
        b"\xff\xfe",
        b"0\nx\n",
        b"0\n0\na 0 1\n",
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name(content: bytes) -> None:
    files = disk()
    files.create("/d/checkpoint").write_at(0, content)
    with pytest.raises(MalformedCheckpoint, match="/d/checkpoint"):
        read_offsets(files, "/d/checkpoint")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        (RECOVERY_POINTS, "reads all logs in full"),
        (LOG_START_OFFSETS, "records that were deleted"),
        (LEADER_EPOCHS, "copied from them"),
    ],
)
def test_an_operator_is_told_what_removing_a_damaged_checkpoint_means(name: str, remedy: str) -> None:
    files = disk()
    files.create(f"/d/{name}").write_at(0, b"0\n1\n\xb7 0 1\n")
    with pytest.raises(MalformedCheckpoint, match=remedy):
        (read_epochs if name == LEADER_EPOCHS else read_offsets)(files, f"/d/{name}")


TOPIC_ID = uuid.UUID(int=77)
WRITTEN = format_partition_metadata(TOPIC_ID)


@pytest.mark.parametrize("content", [b"", WRITTEN[:20], bytes(len(WRITTEN)), WRITTEN[:30] + bytes(13)])
def test_power_that_failed_while_a_topic_id_was_written_leaves_none(content: bytes) -> None:
    files = disk()
    files.create("/d/partition.metadata").write_at(0, content)
    assert read_topic_id(files, "/d/partition.metadata") == NO_TOPIC_ID


def test_a_damaged_topic_id_is_refused() -> None:
    files = disk()
    file = files.create("/d/partition.metadata")
    file.write_at(0, WRITTEN)
    assert read_topic_id(files, "/d/partition.metadata") == TOPIC_ID
    file.write_at(len(WRITTEN) - 5, b"'")
    with pytest.raises(MalformedCheckpoint, match="odradek topic describe"):
        read_topic_id(files, "/d/partition.metadata")


def test_a_crash_at_any_sync_leaves_the_old_or_the_new_content() -> None:
    for crash_at in range(3):
        files = disk()
        write_epochs(files, "/d/checkpoint", [(1, 1)])
        countdown = [crash_at]

        def maybe_crash(files: SimulatedFiles = files, countdown: list[int] = countdown) -> None:
            if countdown[0] == 0:
                files.crash()
                raise InterruptedError
            countdown[0] -= 1

        files.on_sync = maybe_crash
        try:
            write_epochs(files, "/d/checkpoint", [(1, 1), (2, 2)])
            expected = [(1, 1), (2, 2)]
        except InterruptedError:
            expected = [(1, 1)]
        files.on_sync = None
        files.crash()
        assert read_epochs(files, "/d/checkpoint") == expected


def test_partition_metadata() -> None:
    topic_id = uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
    data = format_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA"
    assert parse_partition_metadata(data) == topic_id
    assert parse_partition_metadata(data[:-3]) == parse_partition_metadata(b"") == NO_TOPIC_ID


def test_the_marker_of_a_clean_shutdown() -> None:
    assert clean_shutdown_marker(-1) == b'{"version":0,"brokerEpoch":-1}'
