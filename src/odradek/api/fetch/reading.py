"""What a Fetch has read so far of each of its partitions, and whether that is enough to respond."""

from odradek.api.fetch.replica_sessions import Answers
from odradek.api.fetch.sessions import Wanted
from odradek.wire.fetch_response import FetchedPartition


class Reading:
    """What was read of each partition."""

    __slots__ = ("answers", "ends_wait", "size")

    def __init__(self) -> None:
        self.answers: Answers = []
        self.size = 0
        self.ends_wait = False  # something has to be told at once

    def add(self, wanted: Wanted, answer: FetchedPartition) -> None:
        self.answers.append((wanted, answer))
        self.size += answer.length
        if answer.error_code or answer.divergence is not None or answer.preferred_replica >= 0:
            self.ends_wait = True

    def replace(self, position: int, answer: FetchedPartition) -> None:
        """One of the partitions was looked at again."""
        wanted, before = self.answers[position]
        self.answers[position] = wanted, answer
        self.size += answer.length - before.length
        if answer.error_code or answer.divergence is not None or answer.preferred_replica >= 0:
            self.ends_wait = True
