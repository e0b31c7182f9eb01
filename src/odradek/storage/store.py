"""All logs of one data directory: opening, creating, deleting and maintaining them.

The directory belongs to one broker (`.lock`). A marker left by a clean shutdown says that nothing needs
recovery; it is removed before any log is opened, so that a crash while opening is not taken for a clean
stop. What the logs themselves do not say is in checkpoint files (`checkpoints`).

Before a log is created, the entries of an earlier one of that name are removed from these files, and only then is
its directory created: a log never exists together with the entry of another. Deleting needs no space on the disk: it
renames the directory, and the entries are removed with the next checkpoint or the next log of that name.

A log start offset that a client asked for is on disk before the client gets its response, so deleted records do not
reappear; one that retention moved is written right after. The records below it are synced before that, so a log
never ends before it starts.

At start only the logs that the metadata expects are opened. The log of a topic that no longer exists, or has another
id by now, is renamed and kept: if the metadata is wrong, its records are not lost. It is deleted only if the deletion
of its topic is known (`strays`).

The metadata log is in the same directory and is opened by its owner.
"""

import errno
import logging
import random
import uuid
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import suppress
from functools import partial

from odradek.errors import ErrorCode, KafkaError
from odradek.model import METADATA_TOPIC, NO_TOPIC_ID, TopicPartition
from odradek.storage.checkpoints import StoreCheckpoints
from odradek.storage.config import LogConfig
from odradek.storage.directories import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    is_deleted,
    is_set_aside,
    name_for,
    parse_directory_name,
)
from odradek.storage.disk.checkpoints import (
    CLEAN_SHUTDOWN,
    DAMAGED,
    PARTITION_METADATA,
    clean_shutdown_marker,
    read_topic_id,
    write_atomically,
)
from odradek.storage.disk.deletions import Deletions
from odradek.storage.disk.files import Files
from odradek.storage.log.contents import LogHome
from odradek.storage.log.log import Log
from odradek.storage.log.opening import create_log, list_log_files, open_log
from odradek.storage.log.recovery import Opening
from odradek.storage.log.report import RecoveryReport
from odradek.storage.log.syncing import sync_logs
from odradek.storage.producers.state import DEFAULT_EXPIRATION_MS
from odradek.storage.segments.damage import Damages
from odradek.storage.strays import Strays
from odradek.storage.upkeep import Upkeep

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"

# True if the metadata knows this partition of the topic with this id.
Expected = Callable[[TopicPartition, uuid.UUID], bool]


class LogStore:
    def __init__(
        self,
        files: Files,
        directory: str,
        config_for: Callable[[str], LogConfig] | None = None,
        *,
        rng: random.Random,
        producer_expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> None:
        """Lock the directory; `open` loads its logs."""
        files.make_directory(directory)
        self._files = files
        self.directory = directory
        self._config_for = config_for or (lambda topic: LogConfig())
        self._rng = rng
        self._lock = files.lock(f"{directory}/{LOCK_FILE}")
        self.logs: dict[TopicPartition, Log] = {}
        self._checkpoints = StoreCheckpoints(files, directory, self.logs)
        self.deletions = Deletions()
        self.damages = Damages()
        self.marked: dict[TopicPartition, Log] = {}  # damaged, to be copied from other replicas
        self._strays = Strays(files, directory, self.deletions)
        self.was_clean = False  # the last stop left nothing to recover; it says nothing about damage since
        self.report = RecoveryReport()  # what `load` found
        self.upkeep = Upkeep(producer_expiration_ms)

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        now_ms: int,
        config_for: Callable[[str], LogConfig] | None,
        rng: random.Random,
        producer_expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> "LogStore":
        store = cls(files, directory, config_for, rng=rng, producer_expiration_ms=producer_expiration_ms)
        try:
            store.load(now_ms)
        except BaseException:
            store.release()
            raise
        return store

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self.logs.get(topic_partition)

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    @property
    def needs_checkpoint(self) -> bool:
        return self._checkpoints.are_due

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """High watermarks as of the last checkpoint."""
        return self._checkpoints.high_watermarks

    @property
    def has_damaged_logs(self) -> bool:
        return self.damages.found > 0 or any(log.missing_until for log in self.logs.values())

    def _home(self, directory: str) -> LogHome:
        return LogHome(self._files, directory, self.deletions, self._rng, self.damages)

    # Opening

    def load(
        self,
        now_ms: int,
        config_for: Callable[[str], LogConfig] | None = None,
        is_expected: Expected = lambda topic_partition, topic_id: True,
        deleted_topics: Collection[uuid.UUID] = (),
    ) -> None:
        """Open every log that is expected, and set the others aside; give `config_for` if it was not known when the
        directory was locked. The logs of `deleted_topics` are deleted instead."""
        self._config_for = config_for or self._config_for
        checkpoints = self._checkpoints.read()
        entries = self._files.list(self.directory)
        self.was_clean = any(entry.name == CLEAN_SHUTDOWN for entry in entries)
        self.report.was_clean = self.was_clean
        if self.was_clean:
            self._files.remove(self.path(CLEAN_SHUTDOWN))
            self._files.sync_directory(self.directory)
        is_complete = True
        directories = [entry.name for entry in entries if entry.is_directory]
        self._strays.find(directories)
        self.topics_deleted(deleted_topics, now_ms)
        self._strays.log_kept()
        for name in self._find_logs(directories, now_ms):
            opening = Opening(
                self.was_clean,
                checkpoints.recovery_points.get(name, 0),
                checkpoints.start_offsets.get(name, 0),
                missing_until=checkpoints.missing.get(name, 0),
            )
            is_complete &= self._open_log(name, opening, is_expected, deleted_topics, now_ms)
        if not is_complete:
            self._files.sync_directory(self.directory)
        self._checkpoints.opened(checkpoints.high_watermarks)
        sync_logs(self._files, self.logs.values())
        self._try_to_checkpoint()
        self.upkeep.begin(
            [log for log in self.logs.values() if log.active.size > 0 or len(log.segments) > 1], now_ms
        )

    def _find_logs(self, names: list[str], now_ms: int) -> list[TopicPartition]:
        """The partitions that have directories; deleted logs are scheduled for removal, others left alone."""
        found = []
        for name in names:
            topic_partition = parse_directory_name(name)
            if is_deleted(name):
                self.deletions.schedule(now_ms, partial(self._files.remove_tree, self.path(name)))
            elif topic_partition is not None:
                found.append(topic_partition)
            elif not is_set_aside(name):
                logger.warning("leaving %s alone: it is not the log of a partition", self.path(name))
        return [name for name in found if name.topic != METADATA_TOPIC]

    def _open_log(
        self,
        topic_partition: TopicPartition,
        opening: Opening,
        is_expected: Expected,
        deleted_topics: Collection[uuid.UUID],
        now_ms: int,
    ) -> bool:
        """Open the log in a directory, if there is one. False if the directory was renamed."""
        directory = self.path(str(topic_partition))
        sizes = list_log_files(self._files, directory)
        if not sizes:
            # If the topic exists, a crash interrupted the creation of the log, and it is created again.
            if not is_expected(topic_partition, NO_TOPIC_ID):
                logger.warning("leaving %s alone: it does not contain a log", directory)
            return True
        topic_id = read_topic_id(self._files, f"{directory}/{PARTITION_METADATA}")
        if topic_id == NO_TOPIC_ID and _has_records(sizes):
            # The id comes to disk with the first records, so none of these was ever acknowledged as being there. They
            # may be those of a topic that was deleted since, and created again.
            self._set_aside(
                topic_partition, topic_id, "it has no topic id: power failed before its first sync"
            )
            return False
        if not is_expected(topic_partition, topic_id):
            if topic_id in deleted_topics:
                self._delete_unopened(topic_partition, now_ms)
                return False
            self._set_aside(
                topic_partition,
                topic_id,
                "its topic was deleted, the partition was moved to other brokers, or the metadata does not know it",
            )
            return False
        if topic_id == NO_TOPIC_ID:
            return True  # an empty log, which is created again
        config = self._config_for(topic_partition.topic)
        log = open_log(
            self._home(directory), topic_partition, topic_id, config, opening, now_ms, sizes, self.report
        )
        self.report.logs += 1
        self._add(log)
        if DAMAGED in sizes:
            self.marked[topic_partition] = log
            log.is_marked = True
            log.missing_until = max(log.missing_until, log.end_offset)
        return True

    def _delete_unopened(self, topic_partition: TopicPartition, now_ms: int) -> None:
        directory = self.path(name_for(topic_partition, DELETE_SUFFIX, self._rng))
        self._files.rename(self.path(str(topic_partition)), directory)
        self.deletions.schedule(self._removal_ms(now_ms), partial(self._files.remove_tree, directory))
        self.report.deleted += 1
        logger.info("deleting the log of %s: its topic was deleted while this node was down", topic_partition)

    def _removal_ms(self, now_ms: int) -> int:
        """Return when a log is removed whose topic has no settings any more."""
        return now_ms + self._config_for("").file_delete_delay_ms

    def topics_deleted(self, topic_ids: Collection[uuid.UUID], now_ms: int) -> None:
        """Delete the logs of these topics that were set aside: now it is known that nobody needs them."""
        if topic_ids and self._strays:
            self._strays.delete_those_of(topic_ids, self._removal_ms(now_ms))

    def _set_aside(self, topic_partition: TopicPartition, topic_id: uuid.UUID, reason: str) -> None:
        directory = self.path(name_for(topic_partition, STRAY_SUFFIX, self._rng))
        self._files.rename(self.path(str(topic_partition)), directory)
        self._strays.add(directory, topic_id)
        self.report.strays += 1
        logger.warning(
            "renamed the log of %s to %s: %s. Remove it if you do not need it",
            topic_partition,
            directory,
            reason,
        )

    def _try_to_checkpoint(self) -> None:
        """Remove entries of logs that are gone, and correct those found to be wrong. After a clean stop nothing is
        written."""
        try:
            self.checkpoint({})
        except OSError as error:
            if any(log.missing_until for log in self.logs.values()):
                raise  # what such a log copies next would count as synced up to its old recovery point
            logger.warning("cannot write checkpoints, trying again: %s", error)

    def _add(self, log: Log) -> None:
        self.logs[log.topic_partition] = log
        self.upkeep.add(log)

    # Creating and deleting

    def create(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: LogConfig, now_ms: int
    ) -> Log:
        """Raises OSError if it cannot be created, and removes the remains."""
        assert topic_partition not in self.logs
        self._checkpoints.forget(topic_partition)
        directory = self.path(str(topic_partition))
        is_new = self._check_free(directory)
        try:
            log = create_log(self._home(directory), topic_partition, topic_id, config, now_ms)
        except OSError:
            if is_new:
                with suppress(OSError):
                    self._files.remove_tree(directory)
            raise
        self._add(log)
        return log

    def _check_free(self, directory: str) -> bool:
        """The remains of an attempt to create a log are overwritten; records never are, whoever's they may be. True if
        there is no such directory."""
        try:
            entries = self._files.list(directory)
        except FileNotFoundError:
            return True
        if _has_records({entry.name: entry.size for entry in entries}):
            raise OSError(errno.EEXIST, "it already contains records of another log", directory)
        return False

    def delete(self, topic_partitions: Collection[TopicPartition], now_ms: int) -> None:
        """Rename the logs' directories, which is what makes them deleted, and remove them later.

        If that fails for some, the others are deleted, those stay in `logs`, and the first error is raised.
        """
        if not topic_partitions:
            return
        self._checkpoints.are_due = self._checkpoints.has_deleted = True
        failure: OSError | None = None
        for topic_partition in topic_partitions:
            try:
                self._delete(topic_partition, now_ms)
            except OSError as error:
                failure = failure or error
        self._files.sync_directory(self.directory)
        if failure is not None:
            raise failure

    def _delete(self, topic_partition: TopicPartition, now_ms: int) -> None:
        log = self.logs[topic_partition]
        directory = self.path(name_for(topic_partition, DELETE_SUFFIX, self._rng))
        self._files.rename(log.directory, directory)
        del self.logs[topic_partition]
        self.marked.pop(topic_partition, None)
        self._checkpoints.deleted(topic_partition)
        self.upkeep.remove(log)
        log.move(directory)

        def remove() -> None:
            log.close()
            self._files.remove_tree(directory)

        self.deletions.schedule(now_ms + log.config.file_delete_delay_ms, remove)

    def mark_damaged(self, topic_partition: TopicPartition) -> bool:
        """Remember, also after a restart, that this log is damaged. False if it is marked already."""
        if topic_partition in self.marked:
            return False
        log = self.logs[topic_partition]
        write_atomically(self._files, f"{log.directory}/{DAMAGED}", f"{log.damage}\n".encode())
        self.marked[topic_partition] = log
        log.is_marked = True
        return True

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, KafkaError]:
        """Let these logs start at these offsets for good. Returns errors by log: those have not changed."""
        moved, errors = {}, {}
        for name, offset in offsets.items():
            log = self.logs[name]
            if offset > log.log_start_offset:
                try:
                    self._sync_below(log, offset)
                    moved[name] = offset
                except KafkaError as error:
                    errors[name] = error
        try:
            if moved:
                self._checkpoints.write_starts(moved)
        except OSError as error:
            logger.error(
                "cannot delete records, because their log start offsets cannot be written: %s", error
            )
            self._checkpoints.are_due = True
            refusal = KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The log start offset was not written: {error}"
            )
            return errors | dict.fromkeys(moved, refusal)
        for name, offset in moved.items():
            self.logs[name].delete_records_before(offset)
        return errors

    @staticmethod
    def _sync_below(log: Log, offset: int) -> None:
        """Sync up to the new start: deleted records may not be on disk, and a crash must not cut below it."""
        if offset > log.synced_offset:
            if log.failed:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"The disk of {log.topic_partition} has failed"
                )
            log.persist_state()

    # Looking after

    def maintain(self, now_ms: int, high_watermark: Callable[[TopicPartition], int]) -> None:
        """Do the work that is due: retention, rolling by time, forgetting producers."""
        self.upkeep.do_what_is_due(now_ms, high_watermark, self._write_start_offsets)

    def _write_start_offsets(self, moved: Mapping[TopicPartition, int]) -> bool:
        """True if what is before them may be deleted. On a full disk it must: that makes room."""
        try:
            self._checkpoints.write_starts(moved)
        except OSError as error:
            logger.warning("cannot write log start offsets, trying again: %s", error)
            self._checkpoints.are_due = True
            return error.errno in (errno.ENOSPC, errno.EDQUOT)
        return True

    def expire_producers_after(self, expiration_ms: int) -> None:
        self.upkeep.expire_producers_after(expiration_ms)

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int], *, is_last: bool = False) -> None:
        """Write how far each log is synced, where it starts and what is committed, if that changed. The last one, when
        the store is closed, names the ends of all logs: nothing is truncated after it."""
        self._checkpoints.write(high_watermarks, is_last=is_last)

    def miss_nothing(self, log: Log) -> None:
        """Forget at once that a log had lost records: it is in sync again. A broker that is killed before the file
        says so comes back with a log that counts as damaged, and it may be the only one that could lead."""
        log.missing_until = 0
        try:
            self._checkpoints.write_missing_records()
        except OSError as error:
            logger.warning(
                "cannot write that %s is whole again, trying again: %s", log.topic_partition, error
            )
            self._checkpoints.are_due = True

    # Closing

    def close(self, high_watermarks: Mapping[TopicPartition, int], broker_epoch: int = -1) -> None:
        for _ in self.closing(high_watermarks, broker_epoch):
            pass

    def persisting(self) -> Generator[None, None, None]:
        """Write what logs keep in memory while they are still in use, so that `closing` has less to do. Yields after
        each log. What cannot be written now is left to `closing`."""
        for log in list(self.logs.values()):
            if _is_unsaved(log) and not log.failed and self.logs.get(log.topic_partition) is log:
                with suppress(KafkaError, OSError):
                    log.persist_state()
                yield

    def closing(
        self, high_watermarks: Mapping[TopicPartition, int], broker_epoch: int = -1
    ) -> Generator[None, None, None]:
        """Bring everything to disk, and yield after each log. The marker of a clean shutdown is written only if all of
        it worked."""
        unclean = []
        for log in list(self.logs.values()):
            if log.failed or not self._persist(log):
                unclean.append(log)
            yield
        sync_logs(self._files, self.logs.values())
        yield
        try:
            self.checkpoint(high_watermarks, is_last=True)
            if not unclean and not any(log.failed for log in self.logs.values()):
                write_atomically(self._files, self.path(CLEAN_SHUTDOWN), clean_shutdown_marker(broker_epoch))
        except OSError as error:
            logger.error("cannot write checkpoints, so the next start recovers all logs: %s", error)
        for log in self.logs.values():
            log.close()
        self.release()

    @staticmethod
    def _persist(log: Log) -> bool:
        """One log that cannot be closed must not stop the others from being closed."""
        try:
            if _is_unsaved(log):
                log.persist_state()
        except (KafkaError, OSError) as error:
            logger.error(
                "cannot close the log of %s, so the next start recovers it: %s", log.topic_partition, error
            )
            return False
        return True

    def release(self) -> None:
        """Release the directory without writing anything, as a crash would."""
        self._lock.release()


def _is_unsaved(log: Log) -> bool:
    return log.is_unsaved or log.leader_epochs.is_unsaved


def _has_records(sizes: Mapping[str, int]) -> bool:
    """True if the files of a log, given by their sizes, hold records."""
    return any(size > 0 and name.endswith(".log") for name, size in sizes.items())
