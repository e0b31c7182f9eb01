"""Group commit: everything appended since the last sync goes to disk with the next one.

An append marks its partition dirty. At the end of the current turn of the event loop, all dirty partitions are synced
together; what is appended during that sync waits for the next round. So a single request waits for one sync, and a
thousand requests share one.

A sync runs in a thread, unless it is one file on a disk that has been fast lately: the hand-over to a thread would then
cost as much as the sync itself, so it runs in place.

A round takes no more files than may be open at a time; the rest waits for the next round. So does a partition whose
files cannot be opened because the process has no descriptor left.

With `log.sync.commit=false` nothing waits for a sync: records count as committed once written, as in Kafka, and only
`flush.messages` and `flush.ms` decide when a log is synced.
"""

import asyncio
import errno
import logging

from odradek.errors import ErrorCode, KafkaError
from odradek.host.interface import Host
from odradek.host.log_lines import counted
from odradek.host.metrics import Histogram
from odradek.replication.replica import Replica
from odradek.storage.config import NEVER
from odradek.storage.disk.files import Files
from odradek.storage.disk.sync import SyncTicket, sync_tickets
from odradek.wording import count_of, duration, some

log = logging.getLogger(__name__)

INLINE_BELOW_SECONDS = 0.001
RETRY_SECONDS = 0.2
SMOOTHING = 0.2  # weight of the newest sync in the average

Round = list[tuple[Replica, SyncTicket]]


class Flusher:
    def __init__(
        self, host: Host, files: Files, slow_ms: int = -1, sync_time: Histogram | None = None
    ) -> None:
        """A round that takes longer than `slow_ms` is logged; -1 means never. `sync_time` records every round."""
        self._sync_time = sync_time or Histogram()
        self._slow_seconds = slow_ms / 1000 if slow_ms >= 0 else float("inf")
        self._host = host
        self._files = files
        self._max_files = max(1, files.max_open // 2)  # the rest stay open for reads and appends
        self._unopened: set[Replica] = set()  # their files could not be opened at the last attempt
        self._dirty: dict[Replica, None] = {}
        self._scheduled = False  # a round is due or under way
        self._average_seconds = 0.0
        self._thread = host.new_thread("sync")

    def appended(self, replica: Replica) -> None:
        """Call after every append."""
        if replica.settings.sync_commit:
            self._mark(replica)
            return
        replica.log_written()
        written = replica.log
        config = written.config
        unsynced = 0 if config.flush_messages == NEVER else written.end_offset - written.synced_offset
        if unsynced >= config.flush_messages:
            self._mark(replica)
        elif config.flush_ms != NEVER:
            self._host.call_later(config.flush_ms / 1000, self._mark, replica)

    def _mark(self, replica: Replica) -> None:
        self._dirty[replica] = None
        if not self._scheduled:
            self._scheduled = True
            self._host.call_soon(self._begin_round)

    def _begin_round(self) -> None:
        tickets, count = self._take_tickets()
        if not tickets:
            self._scheduled = False
        elif count == 1 and self._disk_is_fast:
            self._finish_round(tickets, *self._sync(tickets))
        else:
            self._host.create_task(self._sync_in_thread(tickets))

    def _take_tickets(self) -> tuple[Round, int]:
        """Tickets for what is dirty, up to the number of files that may be open, and the number of their files."""
        tickets: Round = []
        count = 0
        dirty, self._dirty = iter(self._dirty), {}
        for replica in dirty:
            ticket = self._ticket(replica)
            if ticket is not None:
                tickets.append((replica, ticket))
                count += len(ticket.files)
                if count >= self._max_files:
                    break
        self._dirty.update(dict.fromkeys(dirty))
        return tickets, count

    def _ticket(self, replica: Replica) -> SyncTicket | None:
        """Return what must be synced of a replica; None if there is nothing to sync, or not now. A deleted topic is
        skipped, and files that cannot be opened are retried later, so one replica cannot hold up the others.
        """
        if replica.closed_with:
            self._unopened.discard(replica)
            return None
        try:
            ticket = replica.log.begin_sync()
        except KafkaError as error:
            if replica not in self._unopened:
                self._unopened.add(replica)
                log.error("cannot sync: %s. Trying again every %g s", error, RETRY_SECONDS)
            self._host.call_later(RETRY_SECONDS, self._mark, replica)
            return None
        if replica in self._unopened:
            self._unopened.remove(replica)
            log.info("%s can be synced again", replica.topic_partition)
        if ticket is None:
            self._already_synced(replica)
        return ticket

    def _already_synced(self, replica: Replica) -> None:
        """The log was rolled since the append (by retention, segment.ms or DeleteRecords), and that synced it or failed
        to. No round follows, so the waiters are told here."""
        if replica.log.failed:
            self._tell(replica, OSError(errno.EIO, "its disk has failed"))
        else:
            self._tell(replica, None)

    @property
    def _disk_is_fast(self) -> bool:
        return self._average_seconds < INLINE_BELOW_SECONDS and not self._files.syncs_may_block

    async def _sync_in_thread(self, tickets: Round) -> None:
        errors, seconds = await self._thread.run(self._sync, tickets)
        self._finish_round(tickets, errors, seconds)

    def _sync(self, tickets: Round) -> tuple[list[OSError | None], float]:
        start = self._host.monotonic()
        errors = sync_tickets(self._files, [ticket for _, ticket in tickets])
        return errors, self._host.monotonic() - start

    def _finish_round(self, tickets: Round, errors: list[OSError | None], seconds: float) -> None:
        self._average_seconds += SMOOTHING * (seconds - self._average_seconds)
        self._scheduled = False
        self._sync_time.observe(seconds)
        if seconds > self._slow_seconds:
            _log_slow(tickets, seconds)
        if self._dirty:
            self._mark(next(iter(self._dirty)))
        for (replica, ticket), error in zip(tickets, errors, strict=True):
            replica.log.complete_sync(ticket, error)
            if ticket.is_partial and error is None:
                self._mark(replica)
        for (replica, _), error in zip(tickets, errors, strict=True):
            self._tell(replica, error)

    @staticmethod
    def _tell(replica: Replica, error: OSError | None) -> None:
        """Tell the waiters of one replica. An error in one of them must not affect the other replicas."""
        try:
            if error is None:
                replica.log_written()
                return
            log.error(
                "the sync of %s failed, so it accepts no more records until this broker is restarted: %s",
                replica.topic_partition,
                error,
            )
            replica.close(ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception:
            log.exception(
                "%s: a request that waited for its sync failed: this is a bug", replica.topic_partition
            )

    async def close(self) -> None:
        """Wait for the current round, if any."""
        while self._scheduled:
            await asyncio.sleep(0.001)
        self._thread.close()


def _log_slow(tickets: Round, seconds: float) -> None:
    names = [str(replica.topic_partition) for replica, _ in tickets]
    counted(
        log,
        logging.WARNING,
        "this disk",
        "slow syncs",
        "slow sync: %s took %s (%s). Producers with acks=all wait for it: look at the disk",
        count_of(len(names), "partition"),
        duration(seconds),
        some(names),
        seconds=round(seconds, 3),
        partitions=len(names),
    )
