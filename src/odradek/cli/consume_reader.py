"""The loop of `odradek consume`: fetch, print, stop at the end, and wait when brokers die."""

import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

from odradek.admin.access import Access
from odradek.admin.librdkafka import kafka
from odradek.admin.message_filter import Predicate
from odradek.admin.message_text import Formatter, timestamp_ms
from odradek.admin.places import Place
from odradek.cli.consume_range import Ends
from odradek.cli.failures import CommandError
from odradek.cli.output import check_reader, note, warn
from odradek.wording import counted

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition


UNREACHABLE_LIMIT_S = 30.0
PROBE_INTERVAL_S = 1.0
PROBE_TIMEOUT_S = 0.5
BATCH_MESSAGES = 1000
BATCH_WAIT_S = 0.1


@dataclass(frozen=True)
class Limits:
    """The conditions that end reading; None and False never do."""

    max_messages: int | None = None
    exit_at_end: bool = False
    timeout_s: float | None = None


class ClusterWatch:
    """Notices when no broker is reachable, says so once, and says when one is reachable again.

    When following a topic it waits as long as it takes; when reading to an end it gives up after a while.
    """

    def __init__(self, cluster: Access, waits_for_ever: bool) -> None:
        self._cluster = cluster
        self._waits_for_ever = waits_for_ever
        self._down_since_s: float | None = None
        self._next_probe_s = 0.0
        self._is_told = False
        self._failure: KafkaError | None = None

    def note_error(self, error: "KafkaError") -> None:
        self._cluster.heard.note(error)
        if error.code() == kafka.KafkaError._ALL_BROKERS_DOWN and self._down_since_s is None:
            self._down_since_s = time.monotonic()
        elif error.code() == kafka.KafkaError._AUTHENTICATION or error.fatal():
            self._failure = error

    def note_life(self) -> None:
        if self._is_told:
            assert self._down_since_s is not None
            note(f"reconnected after {time.monotonic() - self._down_since_s:.0f} s")
        self._down_since_s, self._is_told = None, False
        self._cluster.heard.forget()

    def check(self, consumer: "Consumer") -> None:
        if self._failure is not None:
            raise kafka.KafkaException(self._failure)
        now_s = time.monotonic()
        if self._down_since_s is None or now_s < self._next_probe_s:
            return
        self._next_probe_s = now_s + PROBE_INTERVAL_S
        try:
            consumer.list_topics(timeout=PROBE_TIMEOUT_S)
        except kafka.KafkaException:
            self._tell(now_s - self._down_since_s)
        else:
            self.note_life()

    def _tell(self, down_s: float) -> None:
        cause = self._cluster.heard.cause or self._cluster.bootstrap
        if not self._waits_for_ever and down_s >= UNREACHABLE_LIMIT_S:
            raise CommandError(f"no broker reachable for {UNREACHABLE_LIMIT_S:g} s: {cause}")
        if not self._is_told:
            self._is_told = True
            warn(f"no broker reachable ({cause}): waiting for one to come back")


@dataclass
class Reader:
    consumer: "Consumer"
    formatter: Formatter
    passes: Predicate
    limits: Limits
    watch: ClusterWatch
    is_quiet: bool = False
    is_in_group: bool = False
    ends: Ends = field(default_factory=Ends)
    printed: int = 0
    read: int = 0
    _to_read: set[Place] = field(
        default_factory=set
    )  # partitions with more messages to read before their end
    _behind: set[Place] = field(default_factory=set)  # partitions that are not known to be read to the end
    _assigned: bool = False
    _stopped: bool = False
    _is_waiting_told: bool = False

    @property
    def has_end(self) -> bool:
        """True if reading stops at the end of the partitions."""
        return self.limits.exit_at_end or self.ends.are_known

    def subscribe(self, topics: Sequence[str]) -> None:
        self.consumer.subscribe(list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke)

    def assign(self, positions: "Sequence[TopicPartition]") -> None:
        wanted = [one for one in positions if not self.ends.is_reached(_place(one), one.offset)]
        if wanted:
            self.consumer.assign(wanted)
        self._on_assign(self.consumer, wanted)

    def _on_assign(self, consumer: "Consumer", partitions: "Sequence[TopicPartition]") -> None:
        self._assigned = True
        self._behind |= {_place(one) for one in partitions}
        self._to_read |= {_place(one) for one in partitions}

    def _on_revoke(self, consumer: "Consumer", partitions: "Sequence[TopicPartition]") -> None:
        self._behind -= {_place(one) for one in partitions}
        self._to_read -= {_place(one) for one in partitions}

    def run(self) -> None:
        previous = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._loop()
        except BrokenPipeError:  # nobody reads our output any more, so a count of it would mislead
            self.is_quiet = True
            raise
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            if not self.is_quiet:
                note(self._summary())

    def _summary(self) -> str:
        if self.read == self.printed:
            return f"consumed {counted(self.read, 'message')}"
        return f"consumed {counted(self.read, 'message')}, printed {self.printed}"

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopped = True

    def _loop(self) -> None:
        last_message_s = time.monotonic()
        while not self._stopped and not self._is_done():
            read_before = self.read
            for message in self.consumer.consume(self._batch_size(), BATCH_WAIT_S):
                self._take(message)
            if self.read > read_before:
                last_message_s = time.monotonic()
            sys.stdout.buffer.flush()
            check_reader()
            self._tell_waiting()
            self.watch.check(self.consumer)
            if self._is_timed_out(last_message_s):
                return

    def _tell_waiting(self) -> None:
        """Tell a person once who sees nothing because there is nothing to see."""
        if self._is_waiting_told or self.read or not self._assigned or self._behind or self.has_end:
            return
        self._is_waiting_told = True
        if sys.stderr.isatty() and not self.is_quiet:
            note("waiting for new messages; Ctrl-C stops (--from-beginning reads those that are there)")

    def _batch_size(self) -> int:
        """Return how many messages to fetch, never more than needed: in a group, those would count as read."""
        if self.limits.max_messages is None:
            return BATCH_MESSAGES
        return min(BATCH_MESSAGES, self.limits.max_messages - self.printed)

    def _is_done(self) -> bool:
        if self.limits.max_messages is not None and self.printed >= self.limits.max_messages:
            return True
        if not self._assigned:
            return False
        if self.ends.are_known:
            over = {place for place in self._to_read - self._behind if self.ends.is_over(place)}
            self._to_read -= over
            if not self._to_read:
                return True
        return self.limits.exit_at_end and not self._behind & self._to_read

    def _is_timed_out(self, last_message_s: float) -> bool:
        if self.limits.timeout_s is None or time.monotonic() - last_message_s < self.limits.timeout_s:
            return False
        if self.limits.max_messages is not None and self.printed < self.limits.max_messages:
            raise CommandError(f"{self.printed} of {self.limits.max_messages} messages arrived in time")
        return True

    def _take(self, message: "Message") -> None:
        """Print a message, or note the error that came instead."""
        error = message.error()
        if error is None:
            self._take_record(message)
        elif error.code() == kafka.KafkaError._PARTITION_EOF:
            self.watch.note_life()
            place = Place(message.topic(), message.partition())
            self._behind.discard(place)
            if self.ends.is_reached(place, message.offset()):
                self._to_read.discard(place)
        elif not error.retriable() and (self.is_in_group or message.topic() is not None):
            # Without a group, an error that does not concern a partition is about the group that librdkafka insists
            # on: a cluster without groups, or one that does not let us into this one, can still be read.
            raise kafka.KafkaException(error)

    def _take_record(self, message: "Message") -> None:
        self.watch.note_life()
        place = Place(message.topic(), message.partition())
        if self.ends.is_past(place, message.offset(), timestamp_ms(message)):
            self._to_read.discard(place)
        if place not in self._to_read:
            return
        self._behind.add(place)
        self.read += 1
        if self.passes(message):
            sys.stdout.buffer.write(self.formatter(message))
            self.printed += 1
        if self.ends.is_reached(place, message.offset() + 1):
            self._to_read.discard(place)


def _place(partition: "TopicPartition") -> Place:
    return Place(partition.topic, partition.partition)
