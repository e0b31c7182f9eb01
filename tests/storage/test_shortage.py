"""A moment without descriptors: storage makes room, or says so having changed nothing, and goes on afterwards."""

import errno
import gc
import logging
import os
import random
import resource
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import read_header
from odradek.records.control import build_marker_batch
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import DiskFiles, File, pinned
from odradek.storage.disk.shortage import CannotOpen
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.log import Log
from tests.storage.batches import (
    NOW_MS,
    append,
    append_values,
    compact_first_segment,
    make_batch,
    new_log,
    reopen,
    values_of,
)
from tests.support import no_descriptors_at_all

D = "/data/topic-0"


# The real disk


def alone(test: Callable[[Path], None]) -> Callable[[Path], None]:
    """In a process that has no other threads: those of clients in earlier tests open and close descriptors, too."""

    @wraps(test)
    def in_child(tmp_path: Path) -> None:
        report = tmp_path / "failure"
        child = os.fork()
        if child == 0:
            gc.freeze()  # the end of a client waits for its threads, which are not here
            try:
                test(tmp_path)
            except BaseException:
                report.write_text(traceback.format_exc())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert not report.exists(), report.read_text()

    return in_child


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process cannot get another descriptor, unless it closes one."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def closed_file(files: DiskFiles, path: Path, content: bytes = b"data") -> File:
    file = files.create(str(path))
    file.write_at(0, content)
    file.close()
    return file


@alone
def test_idle_files_make_room(tmp_path: Path) -> None:
    files = DiskFiles()
    wanted = closed_file(files, tmp_path / "wanted")
    idle, used = files.create(str(tmp_path / "idle")), files.create(str(tmp_path / "used"))
    used.pin()
    with no_descriptors():
        assert wanted.read_at(0, 4) == b"data"
    assert idle not in files.open_files
    assert used in files.open_files
    used.unpin()


@alone
def test_the_reserve_is_used_last_and_filled_again(tmp_path: Path) -> None:
    files = DiskFiles(reserve=2)
    wanted = [closed_file(files, tmp_path / str(number)) for number in range(3)]
    idle = files.create(str(tmp_path / "idle"))
    with no_descriptors(), pinned(wanted[0]):
        assert idle not in files.open_files
        assert len(files._reserve) == 2
        with pinned(wanted[1]):
            assert len(files._reserve) == 1
            assert files.list(str(tmp_path))  # opened and closed with the last one
            assert len(files._reserve) == 0
    assert files.read(str(tmp_path / "0")) == b"data"
    assert len(files._reserve) == 2


def open_everything(files: DiskFiles, directory: Path) -> list[Callable[[], object]]:
    file = closed_file(files, directory / "file")
    (directory / "tree" / "inner").mkdir(parents=True)
    path = str(directory)
    return [
        file.fileno,
        file.size,
        file.pin,
        file.sync,
        file.ensure_open,
        lambda: file.write_at(0, b"x"),
        lambda: file.truncate(0),
        lambda: files.create(f"{path}/new"),
        lambda: files.read(f"{path}/file"),
        lambda: files.list(path),
        lambda: files.sync_directory(path),
        lambda: files.to_sync(path).sync(),
        lambda: files.remove_tree(f"{path}/tree"),
    ]


def test_whatever_opens_says_that_it_cannot_and_changes_nothing(tmp_path: Path) -> None:
    files = DiskFiles()
    calls = open_everything(files, tmp_path)
    with no_descriptors_at_all():
        for call in calls:
            with pytest.raises(CannotOpen) as raised:
                call()
            assert raised.value.errno == errno.EMFILE
    assert sorted(entry.name for entry in files.list(str(tmp_path))) == ["file", "tree"]
    assert files.read(str(tmp_path / "file")) == b"data"
    for call in calls:
        call()


def test_a_shortage_is_logged_once_and_so_is_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = DiskFiles()
    file = closed_file(files, tmp_path / "file")
    with caplog.at_level(logging.INFO):
        with no_descriptors_at_all():
            for _ in range(10):
                with pytest.raises(CannotOpen):
                    file.fileno()
        for _ in range(3):
            file.read_at(0, 1)
            file.close()
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "INFO"]
    assert str(tmp_path / "file") in caplog.records[1].message
    assert "Too many open files" in caplog.records[1].message


def test_other_errors_are_not_taken_for_a_shortage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DiskFiles().read(str(tmp_path / "nothing"))


def test_a_real_log_lives_through_it(tmp_path: Path) -> None:
    files = DiskFiles()
    log = new_log(files, str(tmp_path / "topic-0"))
    append_values(log, b"before")
    log.sync()
    log.close()
    with no_descriptors_at_all():
        for _ in range(3):
            with pytest.raises(KafkaError, match="Too many open files") as raised:
                append_values(log, b"refused")
            assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    append_values(log, b"after")
    log.sync()
    assert [value for _, value in values_of(log)] == [b"before", b"after"]


# The simulated disk


def test_the_simulated_process_runs_out_and_gets_descriptors_again() -> None:
    files = SimulatedFiles()
    files.make_directory("/data")
    kept, closed = files.create("/data/pinned"), files.create("/data/file")
    kept.pin()
    files.run_out_of_descriptors(after=1)
    kept.write_at(0, b"still open")
    closed.write_at(0, b"the last one")
    with pytest.raises(CannotOpen):
        files.create("/data/another")
    closed.write_at(0, b"open")
    closed.close()
    with pytest.raises(CannotOpen):
        closed.write_at(0, b"x")
    files.free_descriptors()
    closed.write_at(0, b"open again")


SMALL = LogConfig(segment_bytes=300, index_interval_bytes=1)
TRANSACTION = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}


def abort_marker() -> bytearray:
    return build_marker_batch(
        commit=False, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp=NOW_MS
    )


def append_some(log: Log) -> None:
    append_values(log, b"more")


def append_in_a_new_epoch(log: Log) -> None:
    append_values(log, b"more", epoch=5)


def append_to_a_new_segment(log: Log) -> None:
    append_values(log, b"m" * 200)


def append_as_follower(log: Log) -> None:
    log.append_as_follower(make_batch([b"more"], base_offset=log.end_offset, leader_epoch=0), NOW_MS)


def append_together(log: Log) -> None:
    batches = [make_batch([b"more"], base_offset=9) for _ in range(3)]
    responses = log.append_all_as_leader([(memoryview(one), read_header(one)) for one in batches], 0, NOW_MS)
    refused = [response for response in responses if isinstance(response, KafkaError)]
    if refused:
        raise refused[0]


def abort_a_transaction(log: Log) -> None:
    if not log.producers.by_id:
        append(log, make_batch([b"x"], **TRANSACTION))  # type: ignore[arg-type]
    append(log, abort_marker(), check_sequence=False)


def delete_everything(log: Log) -> None:
    log.delete_segments(len(log.segments), NOW_MS)


def roll(log: Log) -> None:
    log.roll(NOW_MS)


def truncate_a_segment(log: Log) -> None:
    log.truncate_to(2)


def truncate_a_batch(log: Log) -> None:
    log.truncate_to(3)


OPERATIONS: list[Callable[[Log], object]] = [
    append_some,
    append_in_a_new_epoch,
    append_to_a_new_segment,
    append_as_follower,
    append_together,
    abort_a_transaction,
    compact_first_segment,
    delete_everything,
    Log.sync,
    Log.persist_state,
    roll,
    truncate_a_segment,
    truncate_a_batch,
]


def with_directory(files: SimulatedFiles) -> None:
    files.make_directory("/data")
    files.sync_directory("/")


def prepared(files: SimulatedFiles) -> Log:
    with_directory(files)
    log = new_log(files, D, SMALL)
    for value in (b"a", b"b", b"c", b"d"):
        append_values(log, value * 100)
    assert len(log.segments) > 1
    log.sync()
    append_values(log, b"e")
    return log


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fresh", [True, False])
def test_every_operation_at_every_open(operation: Callable[[Log], object], fresh: bool) -> None:
    """Wherever descriptors run out, the log is not failed, holds what it held, and the operation can be repeated."""
    expected = SimulatedFiles()
    result = prepared(expected)
    operation(result)
    for after in range(40):
        files = SimulatedFiles()
        log = prepared(files)
        before = values_of(log)
        if not fresh:
            log.persist_state()
            log = reopen(files, D, SMALL, clean=True)
        files.run_out_of_descriptors(after)
        try:
            operation(log)
            done = True
        except (KafkaError, CannotOpen):
            done = False
        assert not log.failed
        files.free_descriptors()
        held = values_of(log)
        assert held == before[: len(held)] or held[: len(before)] == before or operation is delete_everything
        if not done:
            repeated_append = len(held) > len(before)  # a part of what goes together may have been taken
            operation(log)
            if not repeated_append:
                assert values_of(log) == values_of(result)
        append_values(log, b"and goes on", epoch=9)
        log.sync()
        kept = values_of(log)
        files.crash()
        assert values_of(reopen(files, D, SMALL)) == kept
        if done:
            return
    raise AssertionError("the operation never succeeded")


class FullAndShort(SimulatedFiles):
    """At the moment in which the disk is full, the descriptors run out as well: nothing can be undone."""

    def take_space(self, wanted: int) -> int:
        given = super().take_space(wanted)
        if given < wanted:
            self.run_out_of_descriptors()
        return given


def torn(append_more: Callable[[Log], object]) -> tuple[FullAndShort, Log]:
    files = FullAndShort()
    with_directory(files)
    log = new_log(files, D)
    append_values(log, b"before")
    log.sync()
    files.free_bytes = 40
    with pytest.raises(KafkaError) as raised:
        append_more(log)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.failed
    assert (
        len(files._root.seen["data"].seen["topic-0"].seen["00000000000000000000.log"].seen) > log.active.size
    )  # type: ignore[union-attr]
    return files, log


APPENDS = [append_some, append_together, append_as_follower]


@pytest.mark.parametrize("append_more", APPENDS)
def test_what_could_not_be_undone_is_cut_before_the_next_append(
    append_more: Callable[[Log], object], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        files, log = torn(append_more)
        for _ in range(3):
            with pytest.raises(KafkaError):
                append_values(log, b"refused")
        files.free_bytes = None
        files.free_descriptors()
        append_values(log, b"x")
    assert [value for _, value in values_of(log)] == [b"before", b"x"]
    assert len(files.read(f"{D}/00000000000000000000.log")) == log.active.size
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "accepts records again" in caplog.records[-1].message
    log.sync()
    files.crash()
    assert [value for _, value in values_of(reopen(files, D))] == [b"before", b"x"]


@pytest.mark.parametrize("append_more", APPENDS)
@pytest.mark.parametrize("seed", range(10))
def test_a_crash_before_it_is_cut(append_more: Callable[[Log], object], seed: int) -> None:
    files, _ = torn(append_more)
    files.free_descriptors()
    files.crash(random.Random(seed))
    files.free_bytes = None
    again = reopen(files, D)
    assert values_of(again)[0] == (0, b"before")
    append_values(again, b"new")
    assert len(files.read(f"{D}/00000000000000000000.log")) == again.active.size


def test_it_is_not_taken_for_a_clean_stop() -> None:
    files, log = torn(append_some)
    with pytest.raises(KafkaError):
        log.persist_state()
    files.free_descriptors()
    files.free_bytes = None
    log.persist_state()
    assert len(files.read(f"{D}/00000000000000000000.log")) == log.active.size
    assert values_of(reopen(files, D, clean=True)) == values_of(log)


def test_more_files_than_may_be_open_are_synced_in_parts() -> None:
    files = SimulatedFiles()
    with_directory(files)
    log = new_log(files, D, SMALL)
    for _ in range(80):
        append_values(log, b"x" * 200)
    again = reopen(files, D, SMALL)  # recovery has read all of them, and knows none to be on disk
    ticket = again.begin_sync()
    assert ticket is not None
    assert ticket.is_partial
    assert len(ticket.files) < 100
    again.complete_sync(ticket, None)
    assert again.synced_offset == 0
    files.run_out_of_descriptors(after=3)
    ticket = again.begin_sync()
    assert ticket is not None
    assert (len(ticket.files), ticket.is_partial) == (3, True)
    again.complete_sync(ticket, None)
    with pytest.raises(KafkaError):
        again.begin_sync()
    files.free_descriptors()
    again.sync()
    assert again.synced_offset == 80


def test_a_failed_sync_stays_final() -> None:
    files = SimulatedFiles()
    log = new_log(files, D)
    append_values(log, b"x")
    files.fail_syncs = 1
    with pytest.raises(KafkaError):
        log.sync()
    assert log.failed
    with pytest.raises(KafkaError, match="its disk has failed"):
        append_values(log, b"y")


def test_a_segment_that_could_not_be_made_is_not_there_after_a_crash() -> None:
    """Records went on into the segment before: a later start must not end the log where the new one would begin."""
    for after in range(12):
        files = SimulatedFiles()
        log = prepared(files)
        files.run_out_of_descriptors(after)
        try:
            log.roll(NOW_MS)
        except KafkaError:
            pass
        files.free_descriptors()
        append_values(log, b"f")
        log.sync()
        append_values(log, b"g")
        kept = values_of(log)
        files.crash(random.Random(after))
        again = reopen(files, D, SMALL)
        assert values_of(again) in (kept, kept[:-1])
        assert [segment.base_offset for segment in again.segments][-1] <= again.end_offset
