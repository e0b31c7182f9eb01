"""Logs that end before their recovery point: what was committed and synced is missing, and that is not forgotten."""

import pytest

from odradek.metadata.image import LOST_DIRECTORY, NO_LEADER, UNASSIGNED_DIRECTORY, Partition
from odradek.records.batch import HEADER_SIZE
from odradek.services.partitions.damaged_logs import is_to_be_copied_again
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.log import Log
from odradek.storage.store import LogStore
from tests.storage.batches import append_values, values_of
from tests.storage.test_store import ONE, TWO, D, create, disk, open_store

LOG = f"{D}/one-0/{0:020d}.log"


def three_batches(files: SimulatedFiles) -> tuple[LogStore, list[int]]:
    """Two logs of three batches each, all committed: where the batches of the first one end."""
    store = open_store(files)
    log, other = create(store, ONE), create(store, TWO)
    ends = []
    for value in (b"a", b"b", b"c"):
        append_values(log, value)
        append_values(other, value)
        ends.append(log.active.size)
    log.sync()
    other.sync()
    return store, ends


def cut(files: SimulatedFiles, size: int) -> None:
    file = files.file(LOG)
    file.truncate(size)
    file.sync()


def opened(files: SimulatedFiles) -> tuple[LogStore, Log]:
    store = open_store(files)
    log = store.get(ONE)
    assert log is not None
    return store, log


def crash(store: LogStore, files: SimulatedFiles) -> None:
    store.release()
    files.crash()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("extra", [0, 1, 61])
def test_a_log_that_was_cut_short_is_damaged(is_clean: bool, extra: int) -> None:
    files = disk()
    store, ends = three_batches(files)
    if is_clean:
        store.close({ONE: 3, TWO: 3})
    else:
        store.checkpoint({ONE: 3, TWO: 3})
        crash(store, files)
    cut(files, ends[0] + extra)
    store, log = opened(files)
    assert store.was_clean == is_clean
    if is_clean and extra:  # nothing is cut off: `_open_damaged`
        assert store.has_damaged_logs and log.damage is not None
        return
    assert (log.end_offset, log.missing_until, log.active.size) == (1, 3, ends[0])
    other = store.get(TWO)
    assert other is not None and not other.missing_until
    assert store.has_damaged_logs
    append_values(log, b"next")
    assert values_of(log) == [(0, b"a"), (1, b"next")], "nothing is left of the torn batch"


def test_a_clean_stop_knows_the_end_of_the_log_though_it_is_not_committed() -> None:
    files = disk()
    store, ends = three_batches(files)
    store.close({ONE: 1, TWO: 1})
    cut(files, ends[1])
    store, log = opened(files)
    assert (log.end_offset, log.missing_until) == (2, 3)


def test_a_damaged_log_stays_damaged_over_restarts_until_it_is_whole() -> None:
    files = disk()
    store, ends = three_batches(files)
    store.checkpoint({ONE: 3, TWO: 3})
    crash(store, files)
    cut(files, ends[0])
    store, log = opened(files)
    append_values(log, b"b")
    log.sync()
    store.checkpoint({ONE: 2})
    crash(store, files)
    store, log = opened(files)
    assert (log.end_offset, log.missing_until) == (2, 3)
    store.close({ONE: 2, TWO: 3})
    store, log = opened(files)
    assert log.missing_until == 3
    store.miss_nothing(
        log
    )  # the metadata says that it is in sync; a crash before the next checkpoint (seed 205369)
    crash(store, files)
    store, log = opened(files)
    assert (log.end_offset, log.missing_until) == (2, 0)


def test_what_a_damaged_log_copies_is_not_trusted_before_it_is_synced() -> None:
    """Power fails while it copies what it had lost, and takes a page from the middle of that. The log is as long as it
    was before, but its old recovery point says nothing about the new bytes: seed 202953."""
    files = disk()
    store, ends = three_batches(files)
    store.checkpoint({ONE: 3, TWO: 3})
    crash(store, files)
    cut(files, ends[0])
    store, log = opened(files)
    for value in (b"b", b"c", b"d"):
        append_values(log, value)
    store.release()
    records = ends[0] + HEADER_SIZE
    files.file(LOG).write_at(records, bytes(ends[1] - records))
    store, log = opened(files)
    assert (log.end_offset, log.missing_until, log.active.size) == (1, 3, ends[0])


def test_what_was_truncated_before_a_crash_is_not_missing() -> None:
    """Only what is not committed is truncated, and the recovery point never names it."""
    files = disk()
    store, _ = three_batches(files)
    store.checkpoint({ONE: 1, TWO: 3})
    log = store.get(ONE)
    assert log is not None
    log.truncate_to(1)
    log.sync()
    crash(store, files)
    store, log = opened(files)
    assert (log.end_offset, log.missing_until) == (1, 0)
    append_values(log, b"d", b"e", epoch=1)
    log.sync()
    store.close({ONE: 1, TWO: 3})
    store, log = opened(files)  # the end was named when it was closed, and is named no more
    log.truncate_to(1)
    log.sync()
    crash(store, files)
    assert opened(files)[1].missing_until == 0


def test_a_log_that_is_marked_as_damaged_is_damaged_after_a_restart() -> None:
    files = disk()
    store, _ = three_batches(files)
    assert store.mark_damaged(ONE)
    store.close({ONE: 3, TWO: 3})
    store, log = opened(files)
    assert (log.end_offset, log.missing_until) == (3, 3)
    assert store.has_damaged_logs


@pytest.mark.parametrize(("leader", "is_needed"), [(NO_LEADER, True), (1, True), (2, False)])
def test_a_damaged_log_is_needed_until_another_broker_leads(leader: int, is_needed: bool) -> None:
    store, _ = three_batches(disk())
    store.mark_damaged(ONE)
    directories = (LOST_DIRECTORY, UNASSIGNED_DIRECTORY)
    registration = Partition(leader, 3, 3, (), (1, 2), directories)
    assert is_to_be_copied_again(store, ONE, registration, node_id=1) is not is_needed
