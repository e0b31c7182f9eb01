"""Decides if a log accepts records, and what the errors of its disk mean for it.

An error means one of three things, and where it happens decides which:

- Nothing has changed: the caller gets KAFKA_STORAGE_ERROR and may try again (`guard`). Running out of descriptors
  (`CannotOpen`) always means this.
- Something remains to be done, such as cutting off a write that failed half-way. It is remembered (`finish_later`) and
  done before the next record is accepted.
- The state of the disk is unknown: a sync failed, or a change stopped half-way. The log has failed for good. It accepts
  no more records, but still serves reads.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.storage.disk.shortage import CannotOpen

logger = logging.getLogger(__name__)

Step = Callable[[], None]


class Health:
    """`is_sound`: not failed and nothing unfinished, so that an append checks a single field."""

    __slots__ = ("_topic_partition", "_unfinished", "failed", "is_sound")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self._topic_partition = topic_partition
        self._unfinished: list[Step] = []  # in the order in which to do them, each once
        self.failed = False  # never becomes False again
        self.is_sound = True

    def error(self, what: str, reason: OSError | str) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {self._topic_partition} could not {what}: {reason}"
        )

    def fail(self) -> None:
        self.failed = True
        self.is_sound = False

    # What errors mean

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Guard a call that changes nothing if it fails."""
        try:
            yield
        except OSError as error:
            raise self.error(what, error) from error

    @contextmanager
    def guard_change(self, what: str) -> Iterator[None]:
        """Guard a change that opens its files first: without descriptors it has not begun, and any other error leaves
        it half done.
        """
        try:
            yield
        except OSError as error:
            if not isinstance(error, CannotOpen):
                self.fail()
            raise self.error(what, error) from error

    @contextmanager
    def fatal(self) -> Iterator[None]:
        """Guard a call that leaves an unknown state behind, whatever the error is."""
        try:
            yield
        except OSError:
            self.fail()
            raise

    # Unfinished steps

    def finish_later(self, *steps: Step) -> None:
        self._unfinished += [step for step in steps if step not in self._unfinished]
        self.is_sound = self.is_sound and not self._unfinished

    def nothing_to_finish(self) -> None:
        """A larger change made all unfinished steps unnecessary."""
        self._unfinished.clear()
        self.is_sound = not self.failed

    def finish(self) -> None:
        """Do the unfinished steps. Those that fail for lack of a descriptor stay unfinished."""
        steps = self._unfinished
        with self.guard_change("finish its last change"):
            while steps:
                steps[0]()
                del steps[0]
        self.is_sound = not self.failed

    def mend(self) -> None:
        """Become sound, or raise."""
        if self.failed:
            raise self.error("be written to", "its disk has failed")
        if self._unfinished:
            self.finish()
            logger.info("the log of %s accepts records again", self._topic_partition)
