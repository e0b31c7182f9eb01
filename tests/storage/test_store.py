"""The logs of a data directory: shutting down, crashing, creating, deleting, looking after them."""

import errno
import random
import uuid
from pathlib import Path

import pytest

from odradek.errors import DamagedData
from odradek.model import METADATA_TOPIC, TopicPartition
from odradek.storage.config import DAY_MS, LogConfig
from odradek.storage.disk.files import DataDirectoryLocked, DiskFiles, Files
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.log import Log
from odradek.storage.store import LogStore
from tests.storage.batches import NOW_MS, TOPIC_ID, append, append_values, make_batch, values_of

D = "/data"
ONE, TWO = TopicPartition("one", 0), TopicPartition("two-part.name", 3)
MARKER = ".kafka_cleanshutdown"


def disk() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_directory(D)
    files.sync_directory("/")
    return files


def open_store(files: Files, directory: str = D, config: LogConfig | None = None) -> LogStore:
    chosen = config or LogConfig()
    return LogStore.open(files, directory, NOW_MS, lambda topic: chosen, random.Random(0))


def create(store: LogStore, partition: TopicPartition = ONE, config: LogConfig | None = None) -> Log:
    return store.create(partition, TOPIC_ID, config or LogConfig(), NOW_MS)


def names(files: Files, directory: str = D) -> set[str]:
    return {entry.name for entry in files.list(directory)}


def test_a_clean_shutdown_and_start() -> None:
    files = disk()
    store = open_store(files)
    append_values(create(store, ONE), b"a", b"b", epoch=5)
    append_values(create(store, TWO), b"c")
    store.close({ONE: 2, TWO: 1})
    assert files.read(f"{D}/{MARKER}") == b'{"version":0,"brokerEpoch":-1}'
    assert files.read(f"{D}/recovery-point-offset-checkpoint") == b"0\n2\none 0 2\ntwo-part.name 3 1\n"
    assert files.read(f"{D}/replication-offset-checkpoint") == b"0\n2\none 0 2\ntwo-part.name 3 1\n"
    files.crash()
    store = open_store(files)
    assert MARKER not in names(files)
    log = store.get(ONE)
    assert log is not None
    assert log.topic_id == TOPIC_ID
    assert values_of(log) == [(0, b"a"), (1, b"b")]
    assert log.leader_epochs.entries == [(5, 0)]
    assert log.synced_offset == 2
    assert store.high_watermarks == {ONE: 2, TWO: 1}
    assert store.get(TopicPartition("three", 0)) is None


def test_everything_of_a_partition_is_on_disk_after_a_clean_shutdown() -> None:
    files = disk()
    store = open_store(files)
    log = create(store, config=LogConfig(segment_bytes=300))
    for sequence in range(5):
        append(log, make_batch([b"x" * 90], producer_id=1, producer_epoch=0, base_sequence=sequence))
    store.close({})
    seen = {name: files.read(f"{D}/one-0/{name}") for name in names(files, f"{D}/one-0")}
    files.crash()
    assert {name: files.read(f"{D}/one-0/{name}") for name in names(files, f"{D}/one-0")} == seen
    assert f"{5:020d}.snapshot" in seen


def test_a_crash_needs_recovery_and_finds_what_was_synced() -> None:
    files = disk()
    store = open_store(files)
    log = create(store)
    append_values(log, b"synced")
    log.sync()
    append_values(log, b"lost")
    files.crash()
    store = open_store(files)
    log = store.logs[ONE]
    assert values_of(log) == [(0, b"synced")]
    assert log.synced_offset == 1


def test_a_crash_while_opening_is_not_taken_for_a_clean_stop() -> None:
    files = disk()
    store = open_store(files)
    append_values(create(store), b"a", b"b")
    store.close({})
    store = open_store(files)
    append_values(store.logs[ONE], b"torn")
    path = f"{D}/one-0/{0:020d}.log"
    files.file(path).truncate(len(files.read(path)) - 1)
    files.file(path).sync()
    files.crash()
    assert values_of(open_store(files).logs[ONE]) == [(0, b"a"), (1, b"b")]


def test_recovery_is_synced_before_the_store_is_used() -> None:
    files = disk()
    store = open_store(files)
    logs = [create(store, TopicPartition("many", number)) for number in range(8)]
    for log in logs:
        append_values(log, b"x")
    store.release()
    store = open_store(files)
    assert [log.synced_offset for log in store.logs.values()] == [1] * 8
    files.crash()
    store = open_store(files)
    assert [log.end_offset for log in store.logs.values()] == [1] * 8


def test_a_log_that_failed_leaves_no_marker() -> None:
    files = disk()
    store = open_store(files)
    append_values(create(store, ONE), b"a")
    append_values(create(store, TWO), b"b")
    store.logs[ONE]._health.fail()
    store.close({})
    assert MARKER not in names(files)
    assert values_of(open_store(files).logs[TWO]) == [(0, b"b")]


def test_a_directory_belongs_to_one_store(tmp_path: Path) -> None:
    store = open_store(DiskFiles(), str(tmp_path))
    with pytest.raises(DataDirectoryLocked, match=r"\.lock is in use"):
        open_store(DiskFiles(), str(tmp_path))
    store.close({})
    open_store(DiskFiles(), str(tmp_path)).close({})


def test_a_store_that_does_not_open_lets_go_of_its_directory() -> None:
    files = disk()
    files.create(f"{D}/recovery-point-offset-checkpoint").write_at(0, b"damaged")
    with pytest.raises(DamagedData, match="recovery-point-offset-checkpoint"):
        open_store(files)
    files.remove(f"{D}/recovery-point-offset-checkpoint")
    open_store(files)


def test_a_start_that_is_refused_leaves_the_marker_of_a_clean_stop() -> None:
    files = disk()
    store = open_store(files)
    create(store)
    store.close({})
    data = files.read(f"{D}/recovery-point-offset-checkpoint")
    files.create(f"{D}/recovery-point-offset-checkpoint").write_at(0, b"damaged")
    with pytest.raises(DamagedData):
        open_store(files)
    assert MARKER in names(files)
    files.create(f"{D}/recovery-point-offset-checkpoint").write_at(0, data)
    assert open_store(files).was_clean


def test_a_start_after_a_clean_stop_writes_no_checkpoint() -> None:
    files = disk()
    store = open_store(files)
    logs = [create(store, TopicPartition("many", number)) for number in range(8)]
    append_values(logs[0], b"a", b"b")
    assert store.delete_records({logs[0].topic_partition: 1}) == {}
    store.close({logs[0].topic_partition: 2})
    syncs = files.syncs
    open_store(files)
    assert files.syncs == syncs + 1, "the marker is removed"


def test_a_full_disk_at_the_end_is_an_unclean_stop(caplog: pytest.LogCaptureFixture) -> None:
    files = disk()
    store = open_store(files)
    log = create(store)
    append_values(log, b"a")
    log.persist_state()
    files.free_bytes = 0
    store.close({ONE: 1})
    files.free_bytes = None
    assert "no space" in caplog.text
    assert MARKER not in names(files)
    assert values_of(open_store(files).logs[ONE]) == [(0, b"a")]


def test_other_directories_are_left_alone() -> None:
    files = disk()
    for name in (
        f"{METADATA_TOPIC}-0",
        "topic-0.abc-stray",
        "topic-0.abc-future",
        "lost+found",
        "no-partition",
        "backup-2026",  # named like a log, but not one
        "backup-007",
        "not a topic-0",
        "old-delete",
        "topic-0.abc-delete",
    ):
        files.make_directory(f"{D}/{name}")
        files.create(f"{D}/{name}/notes.log")
    before = names(files)
    store = open_store(files)
    assert store.logs == {}
    assert not store.deletions.run_next(NOW_MS)
    assert before <= names(files)
    assert names(files, f"{D}/backup-2026") == {"notes.log"}, "nothing is made in there"


def test_files_in_a_log_that_are_not_its_own_are_left_alone() -> None:
    files = disk()
    append_values(create(open_store(files)), b"x")
    for name in ("notes.log", "1.log", f"{0:020d}.log.bak"):
        files.create(f"{D}/one-0/{name}")
    log = open_store(files.twin()).logs[ONE]
    assert values_of(log) == [(0, b"x")]


def test_many_logs_are_set_aside_with_one_sync() -> None:
    files = disk()
    store = open_store(files)
    for number in range(20):
        create(store, TopicPartition("gone", number))
    store.close({})
    syncs = files.syncs
    store = LogStore(files, D, rng=random.Random(0))
    store.load(NOW_MS, is_expected=lambda partition, topic_id: False)
    assert files.syncs - syncs <= 2 + 4, "for the marker, for the names, and for two checkpoints without them"
    assert sum(name.endswith("-stray") for name in names(files)) == 20


def test_a_log_that_is_not_expected_is_kept_under_another_name(caplog: pytest.LogCaptureFixture) -> None:
    files = disk()
    store = open_store(files)
    append_values(create(store, ONE), b"one")
    append_values(create(store, TWO), b"two")
    store.close({})
    damaged = f"{D}/one-0/{0:020d}.log"
    files.file(damaged).truncate(70)
    store = LogStore(files, D, rng=random.Random(0))
    store.load(NOW_MS, is_expected=lambda partition, topic_id: partition == TWO and topic_id == TOPIC_ID)
    assert list(store.logs) == [TWO]
    (stray,) = [name for name in names(files) if name.endswith("-stray")]
    assert stray.startswith("one-0.") and len(stray) == len("one-0.") + 32 + len("-stray")
    assert len(files.read(f"{D}/{stray}/{0:020d}.log")) == 70, "it is not touched"
    assert f"{D}/{stray}" in caplog.text
    create(store, ONE)
    store.close({})
    files.crash()
    store = open_store(files)
    assert (store.logs[ONE].end_offset, store.logs[TWO].end_offset) == (0, 1)
    assert stray in names(files)
    assert len(store.deletions) == 0


def load_without_topics(files: SimulatedFiles, *deleted: uuid.UUID) -> LogStore:
    """Open the directory as a node does whose metadata has no topic, and has read that these were deleted."""
    store = LogStore(files, D, lambda topic: LogConfig(file_delete_delay_ms=1000), rng=random.Random(0))
    store.load(NOW_MS, is_expected=lambda partition, topic_id: False, deleted_topics=deleted)
    return store


def stop_with_one_log() -> SimulatedFiles:
    files = disk()
    store = open_store(files)
    append_values(create(store), b"x")
    store.close({})
    return files


def test_a_log_whose_topic_was_deleted_meanwhile_is_deleted_too(caplog: pytest.LogCaptureFixture) -> None:
    files = stop_with_one_log()
    with caplog.at_level("INFO"):
        store = load_without_topics(files, uuid.UUID(int=1), TOPIC_ID)
    assert "deleting the log of one-0: its topic was deleted while this node was down" in caplog.messages
    assert "deleted 1 log of deleted topics" in str(store.report) and "stray" not in str(store.report)
    files.crash()
    (renamed,) = [name for name in names(files) if name.startswith("one-0")]
    assert renamed.endswith("-delete")
    assert not store.deletions.run_next(NOW_MS + 999)
    assert store.deletions.run_next(NOW_MS + 1000)
    assert renamed not in names(files)


def test_a_stray_log_is_kept_and_named_until_its_topic_is_known_to_be_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = stop_with_one_log()
    for deleted in ((), (uuid.UUID(int=1),)):
        store = load_without_topics(files, *deleted)
        (stray,) = [name for name in names(files) if name.startswith("one-0")]
        assert stray.endswith("-stray") and len(store.deletions) == 0
        store.close({})
    assert caplog.text.count(f"1 stray log from earlier starts in {D}") == 1
    store = load_without_topics(files, TOPIC_ID)
    (renamed,) = [name for name in names(files) if name.startswith("one-0")]
    assert renamed == stray.removesuffix("-stray") + "-delete"
    assert not store.deletions.run_next(NOW_MS + 999) and store.deletions.run_next(NOW_MS + 1000)
    assert renamed not in names(files)


def test_a_stray_log_goes_when_its_topic_is_deleted_later() -> None:
    files = stop_with_one_log()
    store = load_without_topics(files)
    store.topics_deleted([uuid.UUID(int=1)], NOW_MS)
    assert len(store.deletions) == 0
    store.topics_deleted([TOPIC_ID], NOW_MS)
    assert store.deletions.run_next(NOW_MS + 1000)
    assert not [name for name in names(files) if name.startswith("one-0")]


def test_a_deleted_log_is_renamed_now_and_removed_later() -> None:
    files = disk()
    store = open_store(files)
    log = create(store, config=LogConfig(file_delete_delay_ms=1000))
    append_values(log, b"x")
    part = log.read(0, 1000, 1)
    store.delete([ONE], NOW_MS)
    assert store.get(ONE) is None
    (renamed,) = [name for name in names(files) if name.endswith("-delete")]
    assert renamed.startswith("one-0.") and len(renamed) == len("one-0.") + 32 + len("-delete")
    create(store, ONE)  # the name is free
    assert part is not None and len(part.file.read_at(part.position, part.length)) == part.length
    assert not store.deletions.run_next(NOW_MS + 999)
    assert renamed in names(files)
    assert store.deletions.run_next(NOW_MS + 1000)
    assert renamed not in names(files)


def test_a_deletion_survives_a_crash() -> None:
    files = disk()
    store = open_store(files)
    append_values(create(store), b"x")
    store.delete([ONE], NOW_MS)
    files.crash()
    reopened = open_store(files)
    assert reopened.logs == {}
    assert any(name.endswith("-delete") for name in names(files)), "a start does not wait for that"
    assert reopened.deletions.run_next(NOW_MS)
    assert not any(name.endswith("-delete") for name in names(files))


def test_the_name_of_a_deleted_log_is_not_too_long() -> None:
    files = disk()
    store = open_store(files)
    partition = TopicPartition("t" * 249, 12)
    create(store, partition)
    store.delete([partition], NOW_MS)
    (renamed,) = [name for name in names(files) if name.endswith("-delete")]
    assert len(renamed) == 255


def test_a_new_log_comes_to_disk_with_its_first_records() -> None:
    files = disk()
    store = open_store(files)
    syncs = files.syncs
    logs = [create(store, partition) for partition in (ONE, TWO)]
    assert files.syncs == syncs
    append_values(logs[0], b"a")
    logs[0].sync()
    files.crash()
    log = open_store(files).logs[ONE]
    assert (log.topic_id, log.end_offset) == (TOPIC_ID, 1)


def test_a_new_log_that_outlived_its_process_comes_to_disk_at_the_next_start() -> None:
    files = disk()
    store = open_store(files)
    create(store)
    store.release()
    open_store(files).release()
    files.crash()
    assert ONE in open_store(files).logs


def test_a_new_log_can_be_synced_after_it_was_deleted() -> None:
    files = disk()
    store = open_store(files)
    log = create(store)
    append_values(log, b"a")
    store.delete([ONE], NOW_MS)
    log.sync()
    assert log.synced_offset == 1


def test_an_empty_log_that_does_not_know_whose_it_is_is_created_again() -> None:
    files = disk()
    create(open_store(files))
    files.remove(f"{D}/one-0/partition.metadata")
    store = open_store(files.twin())
    assert store.logs == {}
    files = store._files
    append_values(create(store), b"x")
    store.close({})
    log = open_store(files).logs[ONE]
    assert (log.topic_id, values_of(log)) == (TOPIC_ID, [(0, b"x")])


def test_records_that_do_not_know_whose_they_are_are_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    """Power failed before the first sync, and took the id, but not the records. Nobody was told that they are on disk.
    Meanwhile the topic may have been deleted and created again: they must not be taken for those of the new one."""
    files = disk()
    append_values(create(open_store(files)), b"of whom?")
    files.remove(f"{D}/one-0/partition.metadata")
    store = open_store(files.twin())
    assert store.logs == {}
    (stray,) = [name for name in names(store._files) if name.endswith("-stray")]
    assert stray.startswith("one-0.") and store._files.file(f"{D}/{stray}/{0:020d}.log").size() > 0
    assert f"renamed the log of one-0 to {D}/{stray}: it has no topic id" in caplog.text
    assert values_of(create(store)) == []


def test_a_log_whose_making_was_interrupted() -> None:
    """Its directory may have come to disk without what was in it: then it is made again."""
    files = disk()
    files.make_directory(f"{D}/one-0")
    store = open_store(files)
    assert store.logs == {}
    append_values(create(store), b"x")
    store.close({})
    assert values_of(open_store(files).logs[ONE]) == [(0, b"x")]


def test_a_log_that_lacks_its_segment_is_a_log() -> None:
    files = disk()
    create(open_store(files))
    files.remove(f"{D}/one-0/{0:020d}.log")
    log = open_store(files.twin()).logs[ONE]
    assert (log.topic_id, log.end_offset) == (TOPIC_ID, 0)


def test_a_log_start_is_kept_over_restarts() -> None:
    files = disk()
    store = open_store(files)
    log = create(store)
    append_values(log, b"a", b"b", b"c")
    log.sync()
    log.delete_records_before(2)
    store.checkpoint({ONE: 3})
    assert files.read(f"{D}/log-start-offset-checkpoint") == b"0\n1\none 0 2\n"
    files.crash()
    assert open_store(files).logs[ONE].log_start_offset == 2


def test_a_checkpoint_is_written_only_if_it_changed() -> None:
    files = disk()
    store = open_store(files)
    create(store)
    store.checkpoint({ONE: 0})
    syncs = files.syncs
    store.checkpoint({ONE: 0})
    assert files.syncs == syncs
    store.checkpoint({ONE: 1})
    assert files.syncs == syncs + 2


# Maintenance


def test_retention_is_due_by_itself() -> None:
    files = disk()
    store = open_store(files)
    log = create(store, config=LogConfig(retention_ms=DAY_MS))
    append_values(log, b"x")
    store.maintain(NOW_MS, lambda _: 1)
    assert store.upkeep.due_ms(log) == NOW_MS + DAY_MS + 1
    store.maintain(NOW_MS + DAY_MS, lambda _: 1)
    assert log.log_start_offset == 0
    store.maintain(NOW_MS + DAY_MS + 1, lambda _: 1)
    assert log.log_start_offset == 1


def test_retention_is_due_after_a_restart() -> None:
    files = disk()
    store = open_store(files)
    append_values(create(store), b"x")
    store.close({})
    store = open_store(files, config=LogConfig(retention_ms=1))
    store.maintain(NOW_MS + 600_000, lambda _: 1)
    assert store.logs[ONE].log_start_offset == 1


def test_idle_logs_cost_nothing() -> None:
    files = disk()
    store = open_store(files)
    logs = [create(store, TopicPartition("idle", number)) for number in range(50)]
    append_values(logs[0], b"x")
    asked: list[TopicPartition] = []

    def high_watermark(partition: TopicPartition) -> int:
        asked.append(partition)
        return 0

    for second in range(100):
        store.maintain(NOW_MS + second * 1000, high_watermark)
    assert asked == [TopicPartition("idle", 0)]


def test_the_heap_does_not_grow_with_a_busy_log() -> None:
    files = disk()
    store = open_store(files)
    log = create(store)
    for second in range(200):
        append_values(log, b"x", timestamp=NOW_MS + second * 1000)
        store.maintain(NOW_MS + second * 1000, lambda _: 0)
    assert len(store.upkeep._due) == 1


def test_uncommitted_segments_are_not_asked_about_all_the_time() -> None:
    files = disk()
    store = open_store(files)
    log = create(store, config=LogConfig(retention_ms=1))
    append_values(log, b"x")
    asked = []
    for second in range(120):
        store.maintain(NOW_MS + 10_000 + second * 1000, lambda partition: asked.append(partition) or 0)
    assert 2 <= len(asked) <= 5
    assert log.log_start_offset == 0


def test_silent_producers_are_forgotten() -> None:
    files = disk()
    store = open_store(files)
    log = create(store, config=LogConfig(retention_ms=-1))
    append(log, make_batch([b"x"], producer_id=1, producer_epoch=0, base_sequence=0))
    store.maintain(NOW_MS, lambda _: 1)
    assert store.upkeep.due_ms(log) == NOW_MS + DAY_MS
    store.maintain(NOW_MS + DAY_MS, lambda _: 1)
    assert log.producers.by_id == {}


def test_a_log_that_cannot_be_looked_after_is_tried_again() -> None:
    files = disk()
    store = open_store(files)
    log = create(store, config=LogConfig(retention_ms=1))
    append_values(log, b"x")
    files.fail_syncs = 1
    store.maintain(NOW_MS + 1000, lambda _: 1)
    assert log.failed
    assert store.upkeep.due_ms(log) == NOW_MS + 31_000


def test_a_crash_while_retention_deletes_leaves_no_hole() -> None:
    """A crash may undo any of several renames: what it brings back is before the start that was written."""
    files = disk()
    store = open_store(files)
    config = LogConfig(segment_bytes=300, retention_ms=DAY_MS)
    log = create(store, config=config)
    for number in range(6):
        append_values(log, b"x" * 90, timestamp=NOW_MS + number // 5 * DAY_MS)
    log.persist_state()
    store.checkpoint({ONE: 6})
    crashed: list[SimulatedFiles] = []
    files.on_change = lambda _: crashed.append(files.twin())
    store.maintain(NOW_MS + DAY_MS + 1, lambda _: 6)
    assert log.log_start_offset > 1
    assert len(crashed) > 10
    for seed, left in enumerate(crashed * 5):
        left = left.twin()
        left.crash(random.Random(seed), is_scattered=True)
        again = open_store(left, config=config).logs[ONE]
        offsets = [offset for offset, _ in values_of(again)]
        assert offsets == list(range(again.log_start_offset, 6))


def test_retention_keeps_a_start_within_a_segment() -> None:
    files = disk()
    store = open_store(files)
    config = LogConfig(segment_bytes=300)
    log = create(store, config=config)
    for _ in range(4):
        append_values(log, b"x" * 40, b"y" * 40)
    log.persist_state()
    store.delete_records({ONE: 5})
    store.maintain(NOW_MS, lambda _: 8)
    assert log.segments[0].base_offset == 4
    files.crash()
    assert open_store(files, config=config).logs[ONE].log_start_offset == 5


@pytest.mark.parametrize(
    ("code", "is_deleted"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EMFILE, False)]
)
def test_retention_deletes_without_writing_where_only_if_the_disk_is_full(
    code: int, is_deleted: bool
) -> None:
    files = disk()
    store = open_store(files)
    log = create(store, config=LogConfig(segment_bytes=300, retention_ms=1))
    for _ in range(4):
        append_values(log, b"x" * 90)

    def refuse(path: str) -> None:
        if "log-start-offset-checkpoint" in path:
            raise OSError(code, "refused", path)

    files.on_change = refuse
    store.maintain(NOW_MS + 1000, lambda _: 4)
    assert store.needs_checkpoint
    assert log.log_start_offset == (4 if is_deleted else 0)
    assert (len(log.segments) == 1) == is_deleted
    files.on_change = None
    store.maintain(NOW_MS + 40_000, lambda _: 4)
    assert log.log_start_offset == 4
    assert len(log.segments) == 1


@pytest.mark.parametrize("seed", range(15))
def test_a_store_on_a_disk_that_forgets(seed: int) -> None:
    """Random work on several partitions, checkpoints and crashes: what was synced is there, in order."""
    rng = random.Random(seed)
    files = disk()
    config = LogConfig(segment_bytes=500)
    store = open_store(files, config=config)
    written: dict[TopicPartition, list[bytes]] = {}
    for step in range(120):
        partition = TopicPartition("topic", rng.randrange(3))
        log = store.get(partition)
        choice = rng.random()
        if log is None:
            create(store, partition, config)
            written[partition] = []
        elif choice < 0.6:
            value = b"%d" % step * rng.randrange(1, 30)
            append_values(log, value, epoch=step // 40)
            written[partition].append(value)
        elif choice < 0.75:
            log.sync()
        elif choice < 0.8:
            store.checkpoint({})
        elif choice < 0.82:
            store.delete([partition], NOW_MS)
            del written[partition]
        elif choice < 0.92:
            synced = {partition: log.synced_offset for partition, log in store.logs.items()}
            files.crash(rng)
            store = open_store(files, config=config)
            assert {partition for partition, offset in synced.items() if offset} <= set(store.logs)
            assert set(store.logs) <= set(written)
            written = {partition: values for partition, values in written.items() if partition in store.logs}
            for partition, log in store.logs.items():
                assert log.end_offset >= synced[partition]
                del written[partition][log.end_offset :]
        elif choice < 0.95:
            store.close({})
            store = open_store(files, config=config)
        for partition, values in written.items():
            assert values_of(store.logs[partition]) == list(enumerate(values))
