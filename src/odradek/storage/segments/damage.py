"""Damage: bytes in a segment that are not the batch that was written there.

A disk may return other bytes than it was given. What follows a damaged batch header cannot be reached, because each
header says where the next batch begins. So damage is never the end of a segment: whoever reads it gets
KAFKA_STORAGE_ERROR, and the records before it are still served.
"""

from collections.abc import Callable

from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition


class DamagedSegment(KafkaError):
    """`offset` is the first one that cannot be read; the damage begins at byte `position` of the file."""

    def __init__(self, path: str, position: int, offset: int, reason: str) -> None:
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{path} is damaged at byte {position}: {reason}, so the records from offset {offset} on cannot be read",
        )
        self.path = path
        self.position = position
        self.offset = offset
        self.reason = reason

    def again(self) -> "DamagedSegment":
        """Return a copy for another reader: an exception that is kept and raised would keep what raised it, too."""
        return DamagedSegment(self.path, self.position, self.offset, self.reason)


Told = Callable[[TopicPartition, DamagedSegment], None]


class Damages:
    """The place where the logs of a store report that they are damaged, each segment once. What was found before
    there is a listener is kept for it.
    """

    def __init__(self) -> None:
        self._listener: Told | None = None
        self._untold: list[tuple[TopicPartition, DamagedSegment]] = []
        self.found = 0  # damaged segments since the start

    def listen(self, listener: Told) -> None:
        self._listener = listener
        untold, self._untold = self._untold, []
        for topic_partition, damage in untold:
            listener(topic_partition, damage)

    def tell(self, topic_partition: TopicPartition, damage: DamagedSegment) -> None:
        self.found += 1
        if self._listener is None:
            self._untold.append((topic_partition, damage))
        else:
            self._listener(topic_partition, damage)
