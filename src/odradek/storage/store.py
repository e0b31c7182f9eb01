"""All logs of one data directory: opening, creating, deleting and looking after them.

The directory belongs to one broker (`.lock`). A marker left by a clean shutdown says that nothing needs
recovery; it is removed before any log is opened, so that a crash while opening is not taken for a clean
stop. What the logs cannot tell by themselves is in checkpoint files: how far they were synced, where they
start, what was committed.

A log's maintenance (retention, rolling by time, forgetting producers) is due at a time that it can tell in
advance, or when it was written to. Both are kept, in a heap and a list, so that idle logs cost nothing
however many there are.

The metadata log lives in the same directory and is opened by those who own it.
"""

import heapq
import logging
import random
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import count

from odradek.errors import KafkaError
from odradek.model import METADATA_TOPIC, TopicPartition
from odradek.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    clean_shutdown_marker,
    format_partition_metadata,
    parse_partition_metadata,
    read_if_present,
    read_offsets,
    write_atomically,
    write_offsets,
)
from odradek.storage.config import LogConfig
from odradek.storage.deletions import Deletions
from odradek.storage.files import Files
from odradek.storage.log import Log
from odradek.storage.producers import DEFAULT_EXPIRATION_MS
from odradek.storage.recovery import Opening, create_log, open_log
from odradek.storage.retention import delete_old_segments, next_due_ms
from odradek.storage.sync import SyncTicket, sync_tickets

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"
DELETE_SUFFIX = "-delete"
FOREIGN_SUFFIXES = ("-future", "-stray")  # of Kafka's, which we do not make
MAX_NAME_LENGTH = 255
LOGS_OF_A_SYNC = 256

# Logs found at start are looked at one after the other within this time, and none more often than this.
FIRST_MAINTENANCE_MS = 300_000
MIN_MAINTENANCE_MS = 30_000


def parse_directory_name(name: str) -> TopicPartition | None:
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition)) if topic and partition.isdecimal() else None


class LogStore:
    def __init__(
        self,
        files: Files,
        directory: str,
        config_for: Callable[[str], LogConfig] | None = None,
        rng: random.Random | None = None,
        producer_expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> None:
        """Take hold of the directory; `open` loads what is in it."""
        files.make_directory(directory)
        self._files = files
        self.directory = directory
        self._config_for = config_for or (lambda topic: LogConfig())
        self._rng = rng or random.Random()
        self._producer_expiration_ms = producer_expiration_ms
        self._lock = files.lock(f"{directory}/{LOCK_FILE}")
        self._checkpointed: dict[str, Mapping[TopicPartition, int]] = {}
        self.logs: dict[TopicPartition, Log] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}  # as of the last checkpoint
        self.deletions = Deletions()
        self.was_clean = False  # the last stop left nothing to recover
        self._changed: list[Log] = []
        self._due: list[tuple[int, int, Log]] = []
        self._order = count()

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        now_ms: int,
        config_for: Callable[[str], LogConfig] | None = None,
        rng: random.Random | None = None,
        producer_expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> "LogStore":
        store = cls(files, directory, config_for, rng, producer_expiration_ms)
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

    # Opening

    def load(self, now_ms: int, config_for: Callable[[str], LogConfig] | None = None) -> None:
        """Open every log; `config_for` where it was not known when the directory was taken hold of."""
        self._config_for = config_for or self._config_for
        entries = self._files.list(self.directory)
        self.was_clean = any(entry.name == CLEAN_SHUTDOWN for entry in entries)
        if self.was_clean:
            self._files.remove(self.path(CLEAN_SHUTDOWN))
            self._files.sync_directory(self.directory)
        recovery_points = read_offsets(self._files, self.path(RECOVERY_POINTS))
        start_offsets = read_offsets(self._files, self.path(LOG_START_OFFSETS))
        self.high_watermarks = read_offsets(self._files, self.path(HIGH_WATERMARKS))
        for entry in entries:
            if not entry.is_directory or entry.name.endswith(FOREIGN_SUFFIXES):
                continue
            topic_partition = parse_directory_name(entry.name)
            if entry.name.endswith(DELETE_SUFFIX):
                self.deletions.schedule(now_ms, partial(self._files.remove_tree, self.path(entry.name)))
            elif topic_partition is None:
                logger.warning("%s is no partition's directory and is left alone", self.path(entry.name))
            elif topic_partition.topic != METADATA_TOPIC:
                opening = Opening(
                    self.was_clean,
                    recovery_points.get(topic_partition, 0),
                    start_offsets.get(topic_partition, 0),
                )
                self._open_log(topic_partition, opening, now_ms)
        self._sync(list(self.logs.values()))
        self._schedule_first(now_ms)

    def _open_log(self, topic_partition: TopicPartition, opening: Opening, now_ms: int) -> None:
        directory = self.path(str(topic_partition))
        topic_id = parse_partition_metadata(read_if_present(self._files, f"{directory}/{PARTITION_METADATA}"))
        log = open_log(
            self._files,
            directory,
            topic_partition,
            topic_id,
            self._config_for(topic_partition.topic),
            opening,
            now_ms,
            self._rng,
            self.deletions,
        )
        self._add(log)

    def _add(self, log: Log) -> None:
        self.logs[log.topic_partition] = log
        log.on_change = self._changed.append

    def _schedule_first(self, now_ms: int) -> None:
        """Not all at once: each look at a log reads a little of it."""
        logs = [log for log in self.logs.values() if log.active.size > 0 or len(log.segments) > 1]
        for slot, log in enumerate(logs):
            self._schedule(log, now_ms + MIN_MAINTENANCE_MS + FIRST_MAINTENANCE_MS * slot // len(logs))

    # Creating and deleting

    def create(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: LogConfig, now_ms: int
    ) -> Log:
        assert topic_partition not in self.logs
        directory = self.path(str(topic_partition))
        log = create_log(
            self._files, directory, topic_partition, topic_id, config, now_ms, self._rng, self.deletions
        )
        self._add(log)
        return log

    def set_topic_id(self, log: Log, topic_id: uuid.UUID) -> None:
        """For a log that does not know whose it is: a crash came before its first sync."""
        log.topic_id = topic_id
        path = f"{log.directory}/{PARTITION_METADATA}"
        write_atomically(self._files, path, format_partition_metadata(topic_id))

    def delete(self, topic_partitions: Collection[TopicPartition], now_ms: int) -> None:
        """Rename the logs' directories, which is what makes them deleted, and remove them later."""
        if not topic_partitions:
            return
        for topic_partition in topic_partitions:
            self._delete(topic_partition, now_ms)
        self._files.sync_directory(self.directory)

    def _delete(self, topic_partition: TopicPartition, now_ms: int) -> None:
        log = self.logs.pop(topic_partition)
        self.high_watermarks.pop(topic_partition, None)
        log.due_ms = None
        unique = uuid.UUID(int=self._rng.getrandbits(128)).hex
        suffix = f"-{topic_partition.partition}.{unique}{DELETE_SUFFIX}"
        directory = self.path(topic_partition.topic[: MAX_NAME_LENGTH - len(suffix)] + suffix)
        self._files.rename(log.directory, directory)
        log.move(directory)

        def remove() -> None:
            log.close()
            self._files.remove_tree(directory)

        self.deletions.schedule(now_ms + log.config.file_delete_delay_ms, remove)

    # Looking after

    def maintain(self, now_ms: int, high_watermark: Callable[[TopicPartition], int]) -> None:
        """Do what is due: retention, rolling by time, forgetting producers."""
        changed, self._changed[:] = list(self._changed), []
        for log in changed:
            log.changed = False
            self._maintain_log(log, now_ms, high_watermark)
        while self._due and self._due[0][0] <= now_ms:
            due_ms, _, log = heapq.heappop(self._due)
            if log.due_ms == due_ms:
                log.due_ms = None
                self._maintain_log(log, now_ms, high_watermark)

    def _maintain_log(self, log: Log, now_ms: int, high_watermark: Callable[[TopicPartition], int]) -> None:
        if self.logs.get(log.topic_partition) is not log:
            return
        try:
            log.maybe_roll(now_ms)
            delete_old_segments(log, now_ms, high_watermark(log.topic_partition))
            log.producers.expire(now_ms, self._producer_expiration_ms)
            due_ms = next_due_ms(log)
        except (KafkaError, OSError) as error:
            logger.warning("%s: %s", log.topic_partition, error)
            due_ms = now_ms
        if due_ms is not None:
            self._schedule(log, max(due_ms, now_ms + MIN_MAINTENANCE_MS))

    def _schedule(self, log: Log, due_ms: int) -> None:
        """One entry for each log is enough: one that comes too early finds out when to come back."""
        if log.due_ms is None or due_ms < log.due_ms:
            log.due_ms = due_ms
            heapq.heappush(self._due, (due_ms, next(self._order), log))

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write how far each log is synced, where it starts and what is committed, if that changed."""
        logs = self.logs.items()
        self.high_watermarks.update(high_watermarks)
        current = {
            RECOVERY_POINTS: {partition: log.synced_offset for partition, log in logs},
            LOG_START_OFFSETS: {
                partition: log.log_start_offset
                for partition, log in logs
                if log.log_start_offset > log.segments[0].base_offset
            },
            HIGH_WATERMARKS: {partition: self.high_watermarks.get(partition, 0) for partition, _ in logs},
        }
        for name, offsets in current.items():
            if self._checkpointed.get(name) != offsets:
                write_offsets(self._files, self.path(name), offsets)
                self._checkpointed[name] = offsets

    def _sync(self, logs: list[Log]) -> None:
        """Sync these logs together, as many at a time as may have their files open."""
        unsynced = deque(logs)
        while unsynced:
            tickets = self._take_tickets(unsynced)
            errors = sync_tickets(self._files, [ticket for _, ticket in tickets])
            for (log, ticket), error in zip(tickets, errors, strict=True):
                log.complete_sync(ticket, error)
                if ticket.is_partial and error is None:
                    unsynced.append(log)

    def _take_tickets(self, unsynced: deque[Log]) -> list[tuple[Log, SyncTicket]]:
        """Of the next logs, as far as there are descriptors: those taken are free again after the sync."""
        tickets: list[tuple[Log, SyncTicket]] = []
        count = 0
        while unsynced and len(tickets) < LOGS_OF_A_SYNC and count < self._files.max_open:
            try:
                ticket = unsynced[0].begin_sync()
            except KafkaError:
                if not tickets:
                    raise
                break
            log = unsynced.popleft()
            if ticket is not None:
                tickets.append((log, ticket))
                count += len(ticket.files)
        return tickets

    # Closing

    def close(self, high_watermarks: Mapping[TopicPartition, int], broker_epoch: int = -1) -> None:
        """Bring everything to disk. The marker of a clean shutdown is written only if all of it worked."""
        unclean = [log for log in self.logs.values() if log.failed or not self._persist(log)]
        self._sync(list(self.logs.values()))
        self.checkpoint(high_watermarks)
        for log in self.logs.values():
            log.close()
        if not unclean and not any(log.failed for log in self.logs.values()):
            write_atomically(self._files, self.path(CLEAN_SHUTDOWN), clean_shutdown_marker(broker_epoch))
        self.release()

    @staticmethod
    def _persist(log: Log) -> bool:
        """One log that cannot be closed must not keep the others from it."""
        try:
            if log.unsaved or log.leader_epochs.is_unsaved:
                log.persist_state()
        except (KafkaError, OSError) as error:
            logger.error(
                "%s cannot be closed, and is recovered at the next start: %s", log.topic_partition, error
            )
            return False
        return True

    def release(self) -> None:
        """Let go of the directory without any further word: what a crash would leave."""
        self._lock.release()
