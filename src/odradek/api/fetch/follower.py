"""A follower's Fetch, from its first look at the leaders to its response.

It reads from leaders, to the ends of their logs. That a fetch has come counts for the leader (`replication.leader`);
what a follower has to be told is in `follower_session`.
"""

from collections.abc import Callable, Iterable

from odradek.api.fetch.follower_session import FollowerSession
from odradek.api.fetch.parts import FetchParts
from odradek.api.fetch.response import respond
from odradek.api.fetch.throttled_reads import ThrottledReads
from odradek.errors import ErrorCode, KafkaError
from odradek.fetching.sessions import NO_SESSION, FetchSession, Wanted
from odradek.replication.leader import Leader
from odradek.replication.source import Fetched, Isolation
from odradek.serving.reply import answer_error
from odradek.serving.request import Request
from odradek.wire.messages.fetch import FetchPartition, FetchRequest

LOG_END = Isolation.LOG_END


class FollowerFetch:
    # Most requests have no use for these.
    hurries = False  # consumers wait for new high watermarks at the follower: it learns them at once
    _throttled: ThrottledReads | None = None

    def __init__(
        self,
        parts: FetchParts,
        request: Request,
        message: FetchRequest,
        session: FetchSession,
        replica_id: int,
        named: list[Wanted],
    ) -> None:
        self._parts = parts
        self._request = request
        self._message = message
        self._session = session
        self._replica_id = replica_id
        self._limit = min(message.max_bytes, parts.max_bytes)
        now_ms = self._now_ms = parts.steady_ms()
        self.until_ms = now_ms + message.max_wait_ms  # the end of its wait
        if parts.selects_by_rack:
            self.hurries = session.id != NO_SESSION
        known = session.keeper
        if not isinstance(known, FollowerSession) or known.replica_id != replica_id:
            session.end()
            known = session.keeper = FollowerSession(session, replica_id, parts, now_ms)
        known.fetched(named, now_ms)
        self._known = known
        self.partitions = known.take_due()  # to be read
        self._responses: dict[Wanted, Fetched] = {}
        self._size = 0  # of all records in them
        self._ends_wait = False  # something has to be told at once

    # --- reading ---

    def read(self, partitions: Iterable[Wanted]) -> None:
        for wanted in partitions:
            self._look_at(wanted, self.read_first)

    def _look_at(self, wanted: Wanted, read: Callable[[Wanted, int], Fetched]) -> None:
        before = self._responses.get(wanted)
        size_of_others = self._size - (before.length if before is not None else 0)
        response = self._responses[wanted] = read(wanted, size_of_others)
        self._size = size_of_others + response.length
        if (
            response.error_code
            or response.divergence is not None
            or 0 <= wanted.told_log_start_offset < response.log_start_offset
            or (self.hurries and response.high_watermark != wanted.told_high_watermark)
        ):
            self._ends_wait = True
        self._known.looked_at(wanted, response)

    @property
    def is_enough(self) -> bool:
        """To respond now: there is nothing to wait for, or the follower does not wait."""
        message = self._message
        return (
            self._ends_wait
            or self._size >= message.min_bytes
            or message.max_wait_ms <= 0
            or not self._session.partitions
        )

    def read_first(self, wanted: Wanted, size_so_far: int) -> Fetched:
        """A fetch counts when it comes, and not again each time that we look for something to send."""
        try:
            leader = self._leader_of(wanted)
            counts = self._note_fetch(leader, wanted.asked)
        except KafkaError as error:
            return self._refused(wanted, error)
        has_all = wanted.asked.fetch_offset == leader.log.end_offset  # nearly always
        return leader.describe() if counts and has_all else self.read_partition(wanted, size_so_far)

    def _note_fetch(self, leader: Leader, asked: FetchPartition) -> bool:
        """Record the follower's offset; False if its log has diverged or the offset is out of range."""
        if not _continues(leader, asked):
            leader.check_leader_epoch(asked.current_leader_epoch)
            if leader.divergence(asked.last_fetched_epoch, asked.fetch_offset) is not None:
                return False
        if not leader.log.log_start_offset <= asked.fetch_offset <= leader.log.end_offset:
            return False
        epoch = self._message.replica_state.replica_epoch
        leader.replica_fetched(
            self._replica_id, epoch, asked.fetch_offset, self._now_ms, asked.log_start_offset
        )
        self._parts.replica_fetched(leader)
        return True

    def read_partition(self, wanted: Wanted, size_so_far: int) -> Fetched:
        asked = wanted.asked
        offset = asked.fetch_offset
        try:
            leader = self._leader_of(wanted)
            if not _continues(leader, asked):
                leader.check_leader_epoch(asked.current_leader_epoch)
                divergence = leader.divergence(asked.last_fetched_epoch, offset)
                if divergence is not None:
                    return leader.describe()._replace(divergence=divergence)
            room = min(asked.partition_max_bytes, self._limit - size_so_far)
            read = self._parts.follower_reads.read(leader, offset, room, size_so_far == 0, LOG_END)
            if leader.settings.throttled_as_leader:
                return self._within_quota(leader, wanted, read)
            return read
        except (KafkaError, OSError) as error:
            return self._refused(wanted, error)

    def _within_quota(self, leader: Leader, wanted: Wanted, read: Fetched) -> Fetched:
        """Some partitions of the topic are throttled."""
        if self._throttled is None:
            self._throttled = ThrottledReads(self._parts.leader_quota, self._replica_id)
        return self._throttled.within_quota(leader, wanted, read, self._parts.steady_ms())

    def _leader_of(self, wanted: Wanted) -> Leader:
        """It is looked up once for each epoch: a leader that is not closed is the current one."""
        sources = self._parts.sources
        if sources.asks:
            sources.check_follower(self._request)
        leader = wanted.leader
        if leader is None or leader.closed_with:
            uses_ids = self._session.uses_topic_ids
            topic = sources.topic_with_id(wanted.topic_id) if uses_ids else wanted.topic
            leader = wanted.leader = sources.leader_for_follower(topic, wanted.asked.partition)
        return leader

    def _refused(self, wanted: Wanted, error: KafkaError | OSError) -> Fetched:
        if isinstance(error, KafkaError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            leader = self._leader_of(wanted)  # a follower starts over where our log starts
            return leader.describe()._replace(error_code=error.code)
        return self._parts.refuse(self._request, wanted, error, is_follower=True)

    # --- waiting ---

    def begin_wait(self) -> None:
        self._known.wait(self)
        self._request.on_abandoned = self.end

    def watch(self, partitions: Iterable[Wanted]) -> None:
        """Watch also those that were read and are due again, while the fetch waits. A large Fetch is read in several
        turns: partitions that changed since the first ones are read again now.
        """
        known = self._known
        for wanted in partitions:
            if known.waiting is not self:
                return
            if known.is_due(wanted):
                leader = wanted.leader
                if leader is None or leader.closed_with:
                    self.woken(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    return
                if leader.log.end_offset > wanted.asked.fetch_offset and not self._responses[wanted].length:
                    self._look_at(wanted, self.read_partition)
                    if self._ends_wait or self._size >= self._message.min_bytes:
                        self.answer()
                        return
                self._watch_due(wanted, leader)

    def _watch_due(self, wanted: Wanted, leader: Leader) -> None:
        """Not what a quota holds back: that does not depend on what is appended."""
        has_all = leader.log.end_offset == wanted.asked.fetch_offset
        if has_all or self._responses[wanted].length:
            self._known.watch(wanted, leader, has_all)

    def woken(self, error: ErrorCode) -> None:
        due = self._look_again()
        if error or self._ends_wait or self._size >= self._message.min_bytes:
            self.answer()
            return
        for wanted in due:
            if wanted.leader is not None and self._known.is_due(wanted):
                self._watch_due(wanted, wanted.leader)

    def _look_again(self) -> list[Wanted]:
        due = self._known.take_due()
        for wanted in due:
            self._look_at(wanted, self.read_partition)
        return due

    def end(self) -> None:
        """End the wait: nothing wakes this fetch any more."""
        if self._known.waiting is self:
            self._known.waiting = None
        if not self._session.id:  # which is over, too
            self._known.end()
            self._session.keeper = None

    # --- responding ---

    def answer(self) -> None:
        """Send what was just read."""
        self.end()
        try:
            if self._throttled is not None:
                self._throttled.sent(self._parts.steady_ms())
            respond(self._request, self._session, list(self._responses.items()))
        except Exception as error:
            answer_error(self._request, self._message, error)

    def time_out(self) -> None:
        """Look again at what is due, such as partitions with a new high watermark, and respond."""
        self._known.waiting = None
        try:
            self._look_again()
        except Exception as error:
            self.end()
            answer_error(self._request, self._message, error)
        else:
            self.answer()


def _continues(leader: Leader, asked: FetchPartition) -> bool:
    """Nearly always: the follower's last record is of the leader's own epoch, so its log is the leader's."""
    return (
        asked.last_fetched_epoch == asked.current_leader_epoch == leader.leader_epoch
        and asked.fetch_offset <= leader.log.end_offset
    )
