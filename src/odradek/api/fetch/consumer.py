"""A consumer's Fetch, from its first read to its response.

It reads committed records from any source, and waits for the high watermarks of its sources to move.
"""

from collections.abc import Iterable, Sequence

from odradek.api.fetch.parts import FetchParts
from odradek.api.fetch.response import respond, respond_throttled
from odradek.errors import ErrorCode, KafkaError
from odradek.fetching.sessions import FetchSession, Wanted
from odradek.fetching.waiting import Wait
from odradek.replication.selector import NO_PREFERENCE, preferred_replica
from odradek.replication.source import Fetched, Isolation, Source
from odradek.serving.reply import answer_error
from odradek.serving.request import Request
from odradek.wire.messages.fetch import FetchRequest

READ_COMMITTED = 1
FOLLOWERS_SINCE = 11


class ConsumerFetch:
    # Most requests have no use for these.
    _rack = ""  # of a consumer that may be sent to another replica
    _wait: Wait | None = None
    _news: set[int] | None = None  # positions of what a client that only wants news has not been told

    def __init__(
        self, parts: FetchParts, request: Request, message: FetchRequest, session: FetchSession
    ) -> None:
        self._parts = parts
        self._request = request
        self._message = message
        self._session = session
        self._limit = min(message.max_bytes, parts.max_bytes)
        if request.metered is not None:
            self._limit = request.metered.max_fetched_bytes(self._limit)
        self._min_bytes = min(message.min_bytes, self._limit)
        is_committed = message.isolation_level == READ_COMMITTED
        self._isolation = Isolation.TXN_COMMITTED if is_committed else Isolation.HIGH_WATERMARK
        if parts.selects_by_rack:
            self._rack = message.rack_id
        self.partitions = list(session.partitions.values())  # to be read, in this order
        self._responses: list[tuple[Wanted, Fetched]] = []  # what was read of each of them
        self._size = 0  # of all records in them
        self._ends_wait = False  # something has to be told at once

    # --- reading ---

    def read(self, partitions: Iterable[Wanted]) -> None:
        for wanted in partitions:
            response = self.read_partition(wanted, self._size)
            self._responses.append((wanted, response))
            self._size += response.length
            if response.error_code or response.divergence is not None or response.preferred_replica >= 0:
                self._ends_wait = True

    @property
    def is_enough(self) -> bool:
        """To respond now: there is nothing to wait for, or the client does not wait."""
        message = self._message
        return (
            self._size >= self._min_bytes
            or self._ends_wait
            or message.max_wait_ms <= 0
            or not self._responses
        )

    def read_partition(self, wanted: Wanted, size_so_far: int) -> Fetched:
        asked = wanted.asked
        offset = asked.fetch_offset
        try:
            source = self._source_of(wanted)
            source.check_leader_epoch(asked.current_leader_epoch)
            if self._rack:
                brokers, listener = self._parts.cluster.image.brokers, self._request.caller.listener
                preferred = preferred_replica(self._rack, listener, offset, source, brokers)
                if preferred != NO_PREFERENCE:
                    return source.describe()._replace(preferred_replica=preferred)
            divergence = source.divergence(asked.last_fetched_epoch, offset)
            if divergence is not None:
                return source.describe()._replace(divergence=divergence)
            room = min(asked.partition_max_bytes, self._limit - size_so_far)
            return source.read(offset, room, size_so_far == 0, self._isolation)
        except (KafkaError, OSError) as error:
            return self._parts.refuse(self._request, wanted, error)

    def _source_of(self, wanted: Wanted) -> Source:
        request, sources, topic = self._request, self._parts.sources, wanted.topic
        if self._session.uses_topic_ids:
            topic = sources.topic_with_id(wanted.topic_id)
        if request.version < FOLLOWERS_SINCE:
            return sources.leader(request, topic, wanted.asked.partition)
        return sources.leader_or_follower(request, topic, wanted.asked.partition)

    # --- waiting ---

    def begin_wait(self) -> None:
        """Wait for data, an error or the deadline, whichever comes first; in a session, the response has only that."""
        self._wait = Wait(self._parts.deadlines, self._message.max_wait_ms, self._woken, self._finish)
        self._request.on_abandoned = self._wait.end
        if self._session.is_incremental:
            self._news = set()

    def watch(self, partitions: Iterable[Wanted]) -> None:
        """A large Fetch is read in several turns: partitions that changed since the first ones are read again now."""
        wait = self._wait
        assert wait is not None
        for wanted in partitions:
            if wait.is_over:
                return
            position = len(wait)
            response = self._responses[position][1]
            if self._news is not None and wanted.has_news(response):
                self._news.add(position)
            try:
                source = self._source_of(wanted)
            except KafkaError as error:
                self._woken(position, error.code)
                return
            wait.add(source)
            if source.high_watermark != response.high_watermark:
                self._woken(position, ErrorCode.NONE)
            else:
                wait.again(position)

    def _woken(self, position: int, error: ErrorCode) -> None:
        """Read one partition again, and keep what was read of the others."""
        assert self._wait is not None
        wanted, before = self._responses[position]
        response = self.read_partition(wanted, self._size - before.length)
        self._responses[position] = wanted, response
        self._size += response.length - before.length
        if response.error_code or response.divergence is not None or response.preferred_replica >= 0:
            self._ends_wait = True
        if self._news is not None:
            self._news.add(position)
        if error or self._ends_wait or self._size >= self._min_bytes:
            self._finish(is_fresh=self._size == response.length)
        else:
            self._wait.again(position)

    def _finish(self, is_fresh: bool = False) -> None:
        """Respond after a wait. `is_fresh` if all that has data was read just now."""
        assert self._wait is not None
        positions: Sequence[int] = range(len(self._responses))
        if self._news is not None and len(self._wait) == len(self._responses):
            positions = sorted(self._news)
        self._wait.end()
        try:
            if not is_fresh:
                self._read_again(positions)
            if len(positions) < len(self._responses):
                self._responses = [self._responses[position] for position in positions]
            self.answer()
        except Exception as error:
            answer_error(self._request, self._message, error)

    def _read_again(self, positions: Iterable[int]) -> None:
        """Read those with data again: files may have been replaced meanwhile, and there is one limit for all."""
        size = 0
        for position in positions:
            wanted, response = self._responses[position]
            if response.length:
                response = self.read_partition(wanted, size)
                self._responses[position] = wanted, response
                size += response.length

    # --- responding ---

    def answer(self) -> None:
        metered = self._request.metered
        if metered is not None and not metered.fetched(self._request, _size_of(self._responses)):
            respond_throttled(self._request, self._session)
            return
        respond(self._request, self._session, self._responses)


def _size_of(responses: Iterable[tuple[Wanted, Fetched]]) -> int:
    return sum(response.length for _, response in responses)
