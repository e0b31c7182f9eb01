"""Maintaining the logs of a store: retention, rolling by time, forgetting producers.

A log can tell in advance when work will be due, and it may be written to. Both are kept, in a heap and a list, so that
idle logs cost nothing however many there are.
Segments go in three steps: those of all logs that are due are found, where these logs will start is written, and the
files are renamed. Whichever of the renames a crash undoes, what comes back is before the start of its log.
"""

import heapq
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count

from odradek.errors import KafkaError
from odradek.model import TopicPartition
from odradek.storage.log.log import Log
from odradek.storage.log.retention import next_due_ms, old_segments

logger = logging.getLogger(__name__)

# Logs found at start are looked at one after the other within this time, and none more often than this.
FIRST_MAINTENANCE_MS = 300_000
MIN_MAINTENANCE_MS = 30_000


class Upkeep:
    def __init__(self, producer_expiration_ms: int) -> None:
        self.producer_expiration_ms = producer_expiration_ms
        self._changed: list[Log] = []  # since they were last looked at, each once
        self._due_ms: dict[Log, int | None] = {}  # every log that is looked after: when, if that is known
        self._due: list[
            tuple[int, int, Log]
        ] = []  # a heap; an entry that does not agree with `_due_ms` is stale
        self._order = count()

    def add(self, log: Log) -> None:
        self._due_ms[log] = None
        log.changes.listen(partial(self._changed.append, log))

    def remove(self, log: Log) -> None:
        del self._due_ms[log]

    def due_ms(self, log: Log) -> int | None:
        """Return when this log is looked at, unless it changes before."""
        return self._due_ms[log]

    def begin(self, logs: Collection[Log], now_ms: int) -> None:
        """Look at these logs, but not at all of them at once: each look reads a little."""
        for slot, log in enumerate(logs):
            self._schedule(log, now_ms + MIN_MAINTENANCE_MS + FIRST_MAINTENANCE_MS * slot // len(logs))

    def do_what_is_due(
        self,
        now_ms: int,
        high_watermark: Callable[[TopicPartition], int],
        write_starts: Callable[[Mapping[TopicPartition, int]], bool],
    ) -> None:
        """`write_starts` writes where logs will start, and says whether what is before may go."""
        old: dict[Log, int] = {}
        for log in self._take_due(now_ms):
            segments = self._look_after(log, now_ms, high_watermark(log.topic_partition))
            if segments:
                old[log] = segments
        if not old:
            return
        starts = {
            log.topic_partition: max(log.log_start_offset, log.segments[segments].base_offset)
            for log, segments in old.items()
        }
        may_go = write_starts(starts)
        for log, segments in old.items():
            if may_go:
                with self._trying_again(log, now_ms):
                    log.delete_segments(segments, now_ms)
            else:
                self._schedule(log, now_ms + MIN_MAINTENANCE_MS)

    def _take_due(self, now_ms: int) -> list[Log]:
        """Each once, and none that was deleted."""
        due = dict.fromkeys(self._changed)
        self._changed.clear()
        for log in due:
            log.changes.looked()
        while self._due and self._due[0][0] <= now_ms:
            due_ms, _, log = heapq.heappop(self._due)
            if self._due_ms.get(log) == due_ms:
                self._due_ms[log] = None
                due[log] = None
        return [log for log in due if log in self._due_ms]

    def _look_after(self, log: Log, now_ms: int, high_watermark: int) -> int:
        """Return how many of the oldest segments can be deleted; another one comes after them."""
        old = 0
        with self._trying_again(log, now_ms):
            log.maybe_roll(now_ms)
            found = old_segments(log, now_ms, high_watermark)
            if found == len(log.segments):
                log.roll(now_ms)
            old = found
            log.producers.expire(now_ms, self.producer_expiration_ms)
            due_ms = next_due_ms(log, old)
            if due_ms is not None:
                self._schedule(log, max(due_ms, now_ms + MIN_MAINTENANCE_MS))
        return old

    @contextmanager
    def _trying_again(self, log: Log, now_ms: int) -> Iterator[None]:
        """Note a failure, so that the log is looked at again."""
        try:
            yield
        except (KafkaError, OSError) as error:
            logger.warning("cannot maintain the log of %s, trying again: %s", log.topic_partition, error)
            self._schedule(log, now_ms + MIN_MAINTENANCE_MS)

    def expire_producers_after(self, expiration_ms: int) -> None:
        """A new `producer.id.expiration.ms`, for every log when it is next looked at, which is soon."""
        self.producer_expiration_ms = expiration_ms
        for log in self._due_ms:
            if log.producers.by_id:
                log.producers.next_expiry_ms = None
                self._schedule(log, 0)

    def _schedule(self, log: Log, due_ms: int) -> None:
        """One entry per log is enough: one that is due too early is scheduled again."""
        scheduled_ms = self._due_ms[log]
        if scheduled_ms is None or due_ms < scheduled_ms:
            self._due_ms[log] = due_ms
            heapq.heappush(self._due, (due_ms, next(self._order), log))
