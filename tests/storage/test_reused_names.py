"""A name that is used again: nothing that was written down of the old log may touch the new one."""

import random
import uuid

import pytest

from odradek.model import TopicPartition
from odradek.storage.config import LogConfig
from odradek.storage.disk.checkpoints import CLEANER_OFFSETS, read_offsets, write_offsets
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.store import LogStore
from tests.storage.batches import NOW_MS, append_values, values_of

D = "/data"
NAME, OTHER = TopicPartition("t", 0), TopicPartition("other", 0)
FIRST, SECOND = uuid.UUID(int=101), uuid.UUID(int=102)
CHECKPOINTS = ("recovery-point", "log-start", "replication")
OLD = [b"old %d" % number for number in range(400)]
NEW = [b"new %d" % number for number in range(10)]


def disk() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_directory(D)
    files.sync_directory("/")
    return files


def open_store(files: SimulatedFiles, topic_id: uuid.UUID | None = None) -> LogStore:
    """Open it with the metadata as it is: the topic has this id, or does not exist."""
    store = LogStore(files, D, rng=random.Random(0))
    store.load(NOW_MS, is_expected=lambda name, found: name == OTHER or found == topic_id)
    return store


def entries(files: SimulatedFiles) -> dict[str, int | None]:
    return {name: read_offsets(files, f"{D}/{name}-offset-checkpoint").get(NAME) for name in CHECKPOINTS}


def with_an_old_log(files: SimulatedFiles) -> LogStore:
    """400 records, all of them deleted, and all checkpoints written."""
    store = open_store(files)
    store.create(OTHER, uuid.UUID(int=1), LogConfig(), NOW_MS)
    log = store.create(NAME, FIRST, LogConfig(), NOW_MS)
    append_values(log, *OLD)
    log.sync()
    assert store.delete_records({NAME: 400}) == {}
    store.checkpoint({NAME: 400})
    assert entries(files) == dict.fromkeys(CHECKPOINTS, 400)
    return store


def test_a_log_is_created_after_the_entries_of_an_earlier_one_are_gone() -> None:
    files = disk()
    store = with_an_old_log(files)
    store.delete([NAME], NOW_MS)
    store.create(NAME, SECOND, LogConfig(), NOW_MS)
    files.crash()
    assert entries(files) == dict.fromkeys(CHECKPOINTS)


def test_the_entries_of_a_deleted_log_go_with_the_next_checkpoint() -> None:
    files = disk()
    store = with_an_old_log(files)
    assert not store.needs_checkpoint
    store.delete([NAME], NOW_MS)
    assert store.needs_checkpoint
    store.checkpoint({})
    assert not store.needs_checkpoint
    assert entries(files) == dict.fromkeys(CHECKPOINTS)
    syncs = files.syncs
    store.create(NAME, SECOND, LogConfig(), NOW_MS)
    assert files.syncs == syncs, "there is nothing left to drop"


def test_many_logs_are_created_again_with_one_checkpoint() -> None:
    files = disk()
    store = open_store(files)
    partitions = [TopicPartition("t", number) for number in range(50)]
    for topic_id in (FIRST, SECOND):
        syncs = files.syncs
        for partition in partitions:
            store.create(partition, topic_id, LogConfig(), NOW_MS)
        assert files.syncs - syncs <= 6
        store.checkpoint({})
        if topic_id == FIRST:
            store.delete(partitions, NOW_MS)


def test_a_log_is_not_created_while_the_entries_cannot_be_dropped() -> None:
    """Deleting works on a full disk; creating waits until there is room."""
    files = disk()
    store = with_an_old_log(files)
    files.free_bytes = 0
    store.delete([NAME], NOW_MS)
    for _ in range(2):
        with pytest.raises(OSError, match="no space"):
            store.create(NAME, SECOND, LogConfig(), NOW_MS)
    assert NAME not in open_store(files.twin(), SECOND).logs
    files.free_bytes = None
    append_values(store.create(NAME, SECOND, LogConfig(), NOW_MS), *NEW)
    assert entries(files) == dict.fromkeys(CHECKPOINTS)


def test_a_log_that_cannot_be_renamed_stays_and_keeps_no_other() -> None:
    files = disk()
    store = with_an_old_log(files)
    files.rename(f"{D}/{NAME}", f"{D}/hidden")
    with pytest.raises(FileNotFoundError):
        store.delete([NAME, OTHER], NOW_MS)
    assert list(store.logs) == [NAME]
    assert str(OTHER) not in {entry.name for entry in files.list(D)}


def test_entries_of_another_log_are_replaced_before_it_grows_to_fit_them() -> None:
    """A broker of an earlier version may have left them: ignored once, they must not count at the next crash."""
    files = disk()
    store = open_store(files)
    log = store.create(NAME, SECOND, LogConfig(), NOW_MS)
    append_values(log, *NEW)
    log.sync()
    for name in CHECKPOINTS:
        write_offsets(files, f"{D}/{name}-offset-checkpoint", {NAME: 400})
    files.crash()
    store = open_store(files, SECOND)
    log = store.logs[NAME]
    append_values(log, *OLD)
    log.sync()
    files.crash()
    log = open_store(files, SECOND).logs[NAME]
    assert values_of(log) == list(enumerate([*NEW, *OLD]))


def test_a_start_on_a_full_disk_goes_on_without_a_checkpoint() -> None:
    files = disk()
    with_an_old_log(files).close({})
    files.free_bytes = 0
    store = open_store(files, SECOND)
    assert list(store.logs) == [OTHER]
    assert store.needs_checkpoint
    files.free_bytes = None
    store.checkpoint({})
    assert entries(files) == dict.fromkeys(CHECKPOINTS)


def test_the_cleaners_checkpoint_forgets_logs_that_are_gone() -> None:
    files = disk()
    with_an_old_log(files)
    write_offsets(files, f"{D}/{CLEANER_OFFSETS}", {NAME: 300, OTHER: 7})
    open_store(files.twin(), FIRST)
    again = files.twin()
    open_store(again, SECOND)
    assert read_offsets(again, f"{D}/{CLEANER_OFFSETS}") == {OTHER: 7}


def test_the_cleaners_checkpoint_is_right_before_a_log_is_created() -> None:
    """Even if the cleaner could not write it when the log was deleted."""
    files = disk()
    store = with_an_old_log(files)
    write_offsets(files, f"{D}/{CLEANER_OFFSETS}", {NAME: 300, OTHER: 7})
    store.delete([NAME], NOW_MS)
    store.checkpoint({})
    store.create(NAME, SECOND, LogConfig(), NOW_MS)
    assert read_offsets(files, f"{D}/{CLEANER_OFFSETS}") == {OTHER: 7}
    syncs = files.syncs
    store.create(TopicPartition("t", 1), SECOND, LogConfig(), NOW_MS)
    assert files.syncs == syncs


def test_a_high_watermark_is_not_beyond_the_end() -> None:
    files = disk()
    with_an_old_log(files)
    write_offsets(files, f"{D}/replication-offset-checkpoint", {NAME: 500, OTHER: 3})
    assert open_store(files.twin(), FIRST).high_watermarks == {NAME: 400, OTHER: 0}


@pytest.mark.parametrize("seed", range(6))
def test_a_crash_at_every_sync(seed: int) -> None:
    """Records are written, deleted, the topic is deleted and made again: whenever the power goes, what was done is
    done, and what is acknowledged in the new topic is there."""
    files = disk()
    crashes: list[tuple[SimulatedFiles, str]] = []
    step = "nothing"
    files.on_sync = lambda: crashes.append((files.twin(), step))
    store = with_an_old_log(files)
    step = "records deleted"
    store.checkpoint({NAME: 400})
    step = "topic deleted"
    store.delete([NAME], NOW_MS)
    step = "topic created"
    log = store.create(NAME, SECOND, LogConfig(), NOW_MS)
    append_values(log, *NEW)
    log.sync()
    step = "acknowledged"
    store.checkpoint({NAME: 10})
    append_values(log, b"more")
    log.sync()
    files.on_sync = None
    crashes.append((files, step))
    assert {name for _, name in crashes} == {"nothing", "topic deleted", "topic created", "acknowledged"}

    for number, (crashed, reached) in enumerate(crashes):
        crashed.crash(random.Random(seed * 1000 + number) if seed else None)
        topic_id = {"topic created": SECOND, "acknowledged": SECOND}.get(reached, FIRST)
        for _ in range(2):  # a crash right after the restart changes nothing
            again = open_store(crashed, None if reached == "topic deleted" else topic_id)
            found = again.get(NAME)
            if reached == "topic deleted":
                assert found is None
            elif found is None:
                assert reached in ("nothing", "topic created")
            elif topic_id == FIRST:
                assert values_of(found) == list(enumerate(OLD))[found.log_start_offset : found.end_offset]
                assert found.log_start_offset in (0, 400)
            else:
                values = [value for _, value in values_of(found)]
                assert found.log_start_offset == 0
                assert values == [*NEW, b"more"][: len(values)]
                assert reached != "acknowledged" or len(values) >= 10
            crashed.crash()
