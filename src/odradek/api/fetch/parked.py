"""A Fetch that waits for data, an error or its deadline, whichever comes first."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from odradek.api.fetch.reading import Reading
from odradek.errors import ErrorCode, KafkaError
from odradek.host.interface import Timer
from odradek.replication.leader import Leader
from odradek.replication.role import Role
from odradek.replication.waiters import Waiter
from odradek.wire.codec import Steps

if TYPE_CHECKING:
    from odradek.api.fetch.fetching import Fetching


class ParkedFetch:
    """A Fetch that waits. Partitions that change wake it; it reads only those again, and responds with what it
    knows about the others: waiting for ten thousand partitions costs no more than the one that has data.

    It waits on leaders and followers themselves, not on the names of partitions: when a topic is deleted the names are
    gone before these roles are closed, and those of other topics deleted with it are closed later still.
    """

    __slots__ = ("_fetch", "_min_bytes", "_news", "_reading", "_watches", "timer")

    def __init__(self, fetch: "Fetching", reading: Reading, min_bytes: int) -> None:
        self._fetch = fetch
        self._reading = reading
        self._min_bytes = min_bytes
        # The positions of what the client has not been told, if it only wants news.
        self._news: set[int] | None = set() if fetch.wants_news_only else None
        self.timer: Timer | None = None  # None once the wait is over
        self._watches: list[tuple[Role, Waiter]] = []  # none once the wait is over

    def wait(self) -> None:
        for position in range(len(self._reading.answers)):
            self._watch(position)
            if self.timer is None:
                return

    def wait_in_steps(self) -> Steps[None]:
        for position in range(len(self._reading.answers)):
            self._watch(position)
            yield
            if self.timer is None:
                return

    def _watch(self, position: int) -> None:
        """A large Fetch is read in several turns: partitions that changed since the first ones are read again now."""
        wanted, answer = self._reading.answers[position]
        if self._news is not None and wanted.has_news(answer):
            self._news.add(position)
        try:
            source = self._fetch.source_of(wanted)
        except KafkaError as error:
            self._woken(position, error.code)
            return
        self._watches.append((source, partial(self._woken, position)))
        if self._fetch.is_replica:
            has_changed = source.log.end_offset > wanted.asked.fetch_offset and not answer.length
        else:
            has_changed = source.high_watermark != answer.high_watermark
        if has_changed:
            self._woken(position, ErrorCode.NONE)
        else:
            self._wait_for(position)

    def _wait_for(self, position: int) -> None:
        source, watch = self._watches[position]
        if self._fetch.is_replica:
            assert isinstance(source, Leader)
            source.when_log_end_moves(watch)
        else:
            source.when_high_watermark_moves(watch)

    def _woken(self, position: int, error: ErrorCode) -> None:
        reading = self._reading
        self._fetch.look_again(reading, position)
        if self._news is not None:
            self._news.add(position)
        if error or reading.ends_wait or reading.size >= self._min_bytes:
            self.finish(is_fresh=reading.size == reading.answers[position][1].length)
        else:
            self._wait_for(position)

    def finish(self, is_fresh: bool = False) -> None:
        everything: Sequence[int] = range(len(self._reading.answers))
        if self._fetch.is_replica:
            self._look_at_high_watermarks()
        knows_news = self._news is not None and len(self._watches) == len(everything)
        self.end()
        self._fetch.finish_wait(
            self._reading, sorted(self._news or ()) if knows_news else everything, is_fresh
        )

    def _look_at_high_watermarks(self) -> None:
        """They do not wake a replica, but it gets them when its wait is over."""
        for position, (source, _) in enumerate(self._watches):
            if source.high_watermark != self._reading.answers[position][1].high_watermark:
                self._fetch.look_again(self._reading, position)
                if self._news is not None:
                    self._news.add(position)

    def end(self) -> None:
        """End the wait: nothing wakes it any more."""
        assert self.timer is not None
        self.timer.cancel()
        self.timer = None
        watches, self._watches = self._watches, []
        for source, watch in watches:
            source.forget_waiter(watch)
