"""The replicas that this broker keeps, by name. Asking for one creates and opens no files.

A handler asks for the role it needs: `leader` refuses if this broker does not lead, `leader_or_follower` if it has no
replica.
"""

from collections.abc import Callable, Iterator

from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.replication.leader import Leader
from odradek.replication.replica import Replica
from odradek.replication.role import Role


class Replicas:
    def __init__(self, begin_missing: Callable[[str, int], Replica | None]) -> None:
        """`begin_missing` starts, in memory, a replica that the metadata names but that was not used yet. It raises
        KafkaError if the replica cannot be served now."""
        self._replicas: dict[tuple[str, int], Replica] = {}
        self._begin_missing = begin_missing

    def __len__(self) -> int:
        return len(self._replicas)

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def present(self, topic: str, partition: int) -> Replica | None:
        """The replica, if it was used before or its log exists."""
        return self._replicas.get((topic, partition))

    def get(self, topic: str, partition: int) -> Replica:
        found = self._replicas.get((topic, partition)) or self._begin_missing(topic, partition)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    def leader(self, topic: str, partition: int) -> Leader:
        """The role that most requests need."""
        replica = self._replicas.get((topic, partition)) or self.get(topic, partition)
        leader = replica.leader
        if leader is None:
            raise KafkaError(replica.closed_with or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if leader.closed_with:
            raise KafkaError(leader.closed_with)
        return leader

    def leader_or_follower(self, topic: str, partition: int) -> Role:
        """The replicas that consumers may read from."""
        replica = self._replicas.get((topic, partition)) or self.get(topic, partition)
        role = replica.leader or replica.follower
        if role is None:
            raise KafkaError(replica.closed_with or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if role.closed_with:
            raise KafkaError(role.closed_with)
        return role

    def add(self, replica: Replica) -> None:
        self._replicas[replica.topic_partition] = replica

    def remove(self, topic_partition: TopicPartition) -> Replica | None:
        return self._replicas.pop(topic_partition, None)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {replica.topic_partition: replica.high_watermark for replica in self}
