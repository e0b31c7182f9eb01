"""The leader of a partition, for one leader epoch: it appends records, and knows what is committed.

The **high watermark** is the offset below which everything is committed: stored by every in-sync replica. Each
replica counts as far as its log is synced (`log.sync.commit`), the leader like the others, so that every record
acknowledged with acks=all, and every record that a consumer sees, is on all those disks.

- It is the minimum over the *maximal* ISR: the current one, and the one that was proposed to the controller and may
  already be in force. Whichever of the two the controller elects a new leader from, that one has everything committed.
- It does not advance while the current ISR is smaller than min(`min.insync.replicas`, replicas).
- It never goes back.
- It starts from its checkpoint, not from the end of the log. The records in between may be missing on other replicas,
  and may be cut off there and here if one of them led meanwhile. Until every in-sync replica has fetched in this epoch,
  no more is known. For a leader without other replicas, what its log has synced is what the whole ISR has stored, so
  its high watermark starts there, however old the checkpoint is. (A start syncs what recovery found before it serves
  any of it.) So records acknowledged before a crash are readable at once after it.

An epoch is one object. When the next one begins, on this broker or another, this one is closed and all waiters are
told: an acknowledgement of the old epoch can never be sent because of what the new one commits.

The leader's code writes to the log only with `append`, so that the code that syncs the log, and everything that waits
for its end or its high watermark, is told of every append.

Pure: no sockets, no clock, no files except through the log.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import Partition
from odradek.model import TopicPartition
from odradek.records.batch import BatchHeader, read_header
from odradek.replication.progress import Progress
from odradek.replication.role import Role
from odradek.replication.settings import ReplicaSettings
from odradek.replication.waiters import ChangeWaiters, OffsetWaiters, Waiter
from odradek.storage.log.log import Log
from odradek.storage.log.marker_run import marker_batch, marker_of
from odradek.storage.log.run import AppendResult
from odradek.storage.producers.markers import TransactionEnd
from odradek.storage.producers.verification import Verification

NOBODY: Mapping[int, Progress] = {}

replica_set = lru_cache(1024)(frozenset[int])  # shared: many partitions have the same replicas


class Leader(Role):
    __slots__ = (
        "_appended",
        "_counted",
        "_end_waiters",
        "_offset_waiters",
        "_start_waiters",
        "epoch_start_offset",
        "has_enough_replicas",
        "isr",
        "maximal_isr",
        "node_id",
        "partition_epoch",
        "progress",
        "replicas",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log,
        settings: ReplicaSettings,
        node_id: int,
        registration: Partition,
        *,
        high_watermark: int,
        now_ms: int,
        appended: Callable[[], None],
    ) -> None:
        """The epoch begins here, before anything is appended in it. `high_watermark` is the last known one, from
        the checkpoint or an earlier role; `appended` is called for every append, and has the log synced."""
        super().__init__(topic_partition, log, settings, registration.leader_epoch)
        self.node_id = node_id
        self.epoch_start_offset = log.end_offset  # records below are of earlier epochs
        self._appended = appended
        self._offset_waiters = OffsetWaiters(topic_partition)
        self._end_waiters = ChangeWaiters(topic_partition)
        self._start_waiters: ChangeWaiters | None = None  # few partitions ever have any
        self.partition_epoch = registration.partition_epoch  # of the registration in force; never falls
        self.replicas = replica_set(registration.replicas)  # of the registration in force; we are one of them
        self.isr = replica_set(registration.isr)  # of the registration in force; within `replicas`
        self.maximal_isr = self.isr  # `isr` and the proposed one, which may already be in force
        self._counted: list[Progress] = []  # of the maximal ISR, but for ourselves
        self.has_enough_replicas = False  # `isr` has min(min.insync.replicas, replicas) members
        # What every other replica has fetched in this epoch.
        self.progress: Mapping[int, Progress] = NOBODY
        self._replicas_changed(now_ms)
        log.leader_epochs.begin(self.leader_epoch, log.end_offset)
        # Never falls. Only a replica that was not in sync, and was elected uncleanly, may know of a higher one than it
        # has on its disk.
        stored = log.synced_offset if settings.sync_commit else log.end_offset
        self.high_watermark = max(min(high_watermark, stored), log.log_start_offset)
        self.maybe_advance_high_watermark()

    def __repr__(self) -> str:
        return f"<Leader of {self.topic_partition} in epoch {self.leader_epoch}>"

    # --- appending ---

    def append(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        now_ms: int,
        *,
        check_sequence: bool = True,
        verification: Verification | None = None,
    ) -> AppendResult:
        """One batch, patched in place. If it raises, no part of it is in the log. Coordinators send no sequences to
        check. The first batch of a client's transaction needs a verification."""
        if self.closed_with:
            raise KafkaError(self.closed_with)
        appended = self.log.append_as_leader(
            batch, header, self.leader_epoch, now_ms, check_sequence, verification
        )
        self._tell_of_append()
        return appended

    def append_marker(self, end: TransactionEnd, now_ms: int) -> int:
        """End a producer's transaction. Returns the offset of the last record that has to be committed for that: one of
        an earlier marker, if this one repeats it."""
        if self.closed_with:
            raise KafkaError(self.closed_with)
        producers = self.log.producers
        producers.forget_committed(self.high_watermark)  # if nobody reads, nobody else does
        if producers.is_repeated_marker(end.producer_id, end.producer_epoch, end.transaction_version):
            return self.log.end_offset - 1
        batch = marker_batch(end, now_ms)
        last_offset = self.log.append_as_leader(
            batch, read_header(batch), self.leader_epoch, now_ms, False, None, marker_of(end)
        ).last_offset
        self._tell_of_append()
        return last_offset

    def append_markers(self, ends: Sequence[TransactionEnd], now_ms: int) -> list[int | KafkaError]:
        """Like `append_marker`, for several producers; in one write if possible."""
        if len(ends) > 1 and not self.closed_with:
            self.log.producers.forget_committed(self.high_watermark)
            results = self.log.append_markers_as_leader(ends, self.leader_epoch, now_ms)
            if results is not None:
                self._tell_of_append()
                return results
        return [self._try_to_append_marker(end, now_ms) for end in ends]

    def _try_to_append_marker(self, end: TransactionEnd, now_ms: int) -> int | KafkaError:
        try:
            return self.append_marker(end, now_ms)
        except KafkaError as error:
            return error

    def append_all(
        self, batches: Sequence[tuple[memoryview, BatchHeader]], now_ms: int
    ) -> list[AppendResult | KafkaError]:
        """The batches of clients, with one write if they go into one segment; returns the result of each."""
        if self.closed_with:
            return [KafkaError(self.closed_with)] * len(batches)
        results = self.log.append_all_as_leader(batches, self.leader_epoch, now_ms)
        self._tell_of_append()
        return results

    def _tell_of_append(self) -> None:
        self._appended()
        if self._end_waiters:
            self._end_waiters.wake()

    def check_enough_replicas(self) -> None:
        """Refuse acks=all before anything is written, if it could not be acknowledged."""
        if not self.has_enough_replicas:
            minimum = min(self.settings.min_insync_replicas, len(self.replicas))
            reason = (
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas, and acks=all needs {minimum}."
            )
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, reason)

    # --- what is committed ---

    def maybe_advance_high_watermark(self) -> None:
        """After an append, a sync, a replica's fetch, or a change of the ISR or the settings."""
        log = self.log
        reached = log.synced_offset if self.settings.sync_commit else log.end_offset
        if reached <= self.high_watermark:
            return
        for progress in self._counted:
            if progress.log_end_offset < reached:
                reached = progress.log_end_offset
                if reached <= self.high_watermark:
                    return
        if self.has_enough_replicas:
            self.high_watermark = reached
            self._offset_waiters.reached(reached)
            if self._high_watermark_waiters:
                self._high_watermark_waiters.wake()

    def _count_on(self, maximal_isr: frozenset[int]) -> None:
        """Make the high watermark the minimum over these replicas from now on."""
        self.maximal_isr = maximal_isr
        others = sorted(maximal_isr - {self.node_id})
        self._counted = [self.progress.get(replica) or Progress(0) for replica in others]

    @property
    def knows_high_watermark(self) -> bool:
        """Earlier leaders may have committed everything before this epoch. Until the high watermark has passed that,
        it may be lower than what clients were shown (KIP-207)."""
        return self.high_watermark >= self.epoch_start_offset

    @property
    def is_held_back_by_own_sync(self) -> bool:
        """There are records that only our own disk keeps from being committed. A client that got an acknowledgement
        for them (acks=1) expects to find them: waiting for the sync under way is worth it."""
        return self.high_watermark < self.log.end_offset and not self.progress

    # --- the other replicas ---

    def replica_fetched(
        self, replica: int, broker_epoch: int, offset: int, now_ms: int, log_start_offset: int = 0
    ) -> None:
        """A fetch from this offset on: that replica has synced all below it."""
        progress = self.progress.get(replica)
        if progress is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{replica} has no replica of {self.topic_partition}"
            )
        progress.fetched(offset, self.log.end_offset, broker_epoch, now_ms)
        has_deleted = log_start_offset != progress.log_start_offset
        progress.log_start_offset = log_start_offset
        self.maybe_advance_high_watermark()
        if has_deleted:
            self._wake_start_waiters()

    def was_caught_up(self, replica: int, then_ms: int) -> None:
        """The replica had caught up at that time: it fetched then, and its offset was still the end of the log."""
        progress = self.progress.get(replica)
        if progress is not None:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, then_ms)

    def joining_replicas(self) -> dict[int, int]:
        """Return the replicas that may join the ISR, and their broker epochs. They have everything committed, and
        everything before this epoch: the high watermark we know may be lower than what an earlier leader committed.
        """
        enough = max(self.high_watermark, self.epoch_start_offset)
        return {
            replica: progress.broker_epoch
            for replica, progress in self.progress.items()
            if replica not in self.maximal_isr and progress.log_end_offset >= enough
        }

    def lagging_replicas(self, now_ms: int, max_lag_ms: int) -> frozenset[int]:
        """Return the members of the ISR that have not caught up for this long."""
        end_offset = self.log.end_offset
        return frozenset(
            replica
            for replica, progress in self.progress.items()
            if replica in self.isr
            and progress.log_end_offset != end_offset
            and now_ms - progress.last_caught_up_ms > max_lag_ms
        )

    def propose_isr(self, isr: frozenset[int]) -> None:
        """An AlterPartition is about to be sent. From now on the proposed ISR may be in force."""
        assert self.node_id in isr and isr <= self.replicas and self.maximal_isr == self.isr
        self._count_on(self.isr | isr)

    def withdraw_proposal(self) -> None:
        """The controller refused it for good. (Without a response the outcome is unknown, and the proposal remains.)"""
        self._count_on(self.isr)
        self.maybe_advance_high_watermark()

    def adopt(self, registration: Partition, now_ms: int) -> None:
        """The metadata changed and we still lead in the same epoch. A proposal that was made for an older registration
        is refused by its partition epoch, so only the ISR in force counts."""
        assert registration.leader_epoch == self.leader_epoch
        if registration.partition_epoch <= self.partition_epoch:
            return
        self.partition_epoch = registration.partition_epoch
        self.replicas = replica_set(registration.replicas)
        self.isr = replica_set(registration.isr)
        self._replicas_changed(now_ms)
        self.maybe_advance_high_watermark()
        if self._end_waiters:
            self._end_waiters.wake()  # a parked fetch of a replica that left the ISR has to be looked at
        self._wake_start_waiters()  # a replica that nobody waits for any more may have left

    def configure(self, settings: ReplicaSettings) -> None:
        self.settings = settings
        self._count_isr()
        self.maybe_advance_high_watermark()

    def _count_isr(self) -> None:
        """min.insync.replicas cannot ask for more replicas than the topic has, as in Kafka."""
        self.has_enough_replicas = len(self.isr) >= min(self.settings.min_insync_replicas, len(self.replicas))

    def _replicas_changed(self, now_ms: int) -> None:
        """A replica in the ISR has its full time to catch up; one outside has to catch up first."""
        self._count_isr()
        others = self.replicas - {self.node_id}
        if others or self.progress:
            known = self.progress
            self.progress = {
                replica: known.get(replica) or Progress(now_ms if replica in self.isr else 0)
                for replica in sorted(others)
            }
        self._count_on(self.isr)

    # --- where the logs start ---

    def log_start_moved(self) -> None:
        """Records were deleted: the followers are told at once."""
        if self._end_waiters:
            self._end_waiters.wake()

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """Below it records are deleted on every replica whose broker is alive; UNKNOWN_OFFSET while one of them has not
        fetched in this epoch."""
        lowest = self.log.log_start_offset
        for replica, progress in self.progress.items():
            if progress.log_start_offset < lowest and is_alive(replica):
                lowest = progress.log_start_offset
        return lowest

    def when_low_watermark_may_move(self, waiter: Waiter) -> None:
        """Call once, when another replica has deleted records, or the ISR changes."""
        if self.closed_with:
            waiter(self.closed_with)
            return
        if self._start_waiters is None:
            self._start_waiters = ChangeWaiters(self.topic_partition)
        self._start_waiters.add(waiter)

    def _wake_start_waiters(self, error: ErrorCode = ErrorCode.NONE) -> None:
        if self._start_waiters is not None:
            self._start_waiters.wake(error)

    # --- waiting ---

    def when_committed(self, offset: int, waiter: Waiter) -> None:
        """Call once everything below `offset` is committed, by this leader in this epoch."""
        if self.closed_with:
            waiter(self.closed_with)
        elif offset <= self.high_watermark:
            waiter(ErrorCode.NONE)
        else:
            self._offset_waiters.add(offset, waiter)

    def watch(self, moved: Waiter, spoken: Waiter) -> None:
        """`when_log_end_moves` and `when_high_watermark_moves` at once, of a leader that is not closed."""
        self._end_waiters.add(moved)
        self._high_watermark_waiters.add(spoken)

    def when_log_end_moves(self, waiter: Waiter) -> None:
        """Call once, when there is more for followers to read: their syncs overlap with ours. Or the ISR changes."""
        if self.closed_with:
            waiter(self.closed_with)
        else:
            self._end_waiters.add(waiter)

    def forget_waiter(self, waiter: Waiter) -> None:
        super().forget_waiter(waiter)
        self._end_waiters.discard(waiter)
        if self._start_waiters is not None:
            self._start_waiters.discard(waiter)

    @property
    def has_waiters(self) -> bool:
        waiters = self._offset_waiters, self._high_watermark_waiters, self._end_waiters, self._start_waiters
        return any(waiters)

    # --- the end ---

    def close(self, error: ErrorCode) -> None:
        """Another epoch begins, the topic is deleted, the log has failed or the broker stops: all waits end, and
        nothing more is appended."""
        self.closed_with = error
        self._offset_waiters.end(error)
        self._high_watermark_waiters.wake(error)
        self._end_waiters.wake(error)
        self._wake_start_waiters(error)
