"""The partitions that this broker holds, by name. One that is named before its log is there is opened for that."""

from collections.abc import Callable, Iterator

from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.replication.partition import Partition


class Replicas:
    def __init__(self, open_missing: Callable[[str, int], Partition | None]) -> None:
        """`open_missing` opens a partition that should be here and is not open yet."""
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._open_missing = open_missing

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def find(self, topic: str, partition: int) -> Partition | None:
        return self._partitions.get((topic, partition)) or self._open_missing(topic, partition)

    def opened(self, topic: str, partition: int) -> Partition | None:
        """If it is open already."""
        return self._partitions.get((topic, partition))

    def get(self, topic: str, partition: int) -> Partition:
        found = self._partitions.get((topic, partition)) or self._open_missing(topic, partition)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    def add(self, partition: Partition) -> None:
        self._partitions[partition.topic_partition] = partition

    def remove(self, topic_partition: TopicPartition) -> Partition | None:
        return self._partitions.pop(topic_partition, None)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {partition.topic_partition: partition.high_watermark for partition in self}
