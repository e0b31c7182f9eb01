"""The clients' knowledge of a cluster: who leads which partition, and who coordinates which group or transaction, as
any broker tells.
"""

from random import Random
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest
from tests.cluster.clusters import Cluster
from tests.simulation.connection import Connection, Disconnected

METADATA_VERSION = 12
FRESH_SECONDS = 0.05  # so long nobody asks again
NOBODY = (-1, -1)
GROUP, TRANSACTION = 0, 1


class Router:
    """Believes the newest leader epoch that it has heard of, as clients do."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._rng: Random | None = None  # where there is only one broker to choose
        if len(cluster.brokers) > 1:
            self._rng = cluster.world.new_rng()
        self._connections: dict[int, Connection] = {}
        self._leaders: dict[tuple[UUID, int], tuple[int, int]] = {}  # the broker and its epoch
        self._asked = -1.0

    async def connection_to(self, node_id: int) -> Connection:
        """Raises Disconnected."""
        connection = self._connections.get(node_id)
        if connection is None or not connection.is_open:
            connection = await self._cluster.world.connect(self._name, self._cluster.machines[node_id])
            self._connections[node_id] = connection
        return connection

    async def any_connection(self) -> Connection:
        """Raises Disconnected."""
        if self._rng is None:
            return await self.connection_to(self._cluster.brokers[0])
        brokers = [node_id for node_id in self._cluster.brokers if self._cluster.machines[node_id].is_on]
        if not brokers:
            raise Disconnected("no broker is on")
        return await self.connection_to(self._rng.choice(brokers))

    def leader_of(self, topic_id: UUID, index: int) -> tuple[int, int]:
        """The broker and its epoch, NOBODY if that is not known."""
        return self._leaders.get((topic_id, index), NOBODY)

    async def refresh(self) -> None:
        """Raises Disconnected."""
        if self._cluster.world.now() < self._asked + FRESH_SECONDS:
            return
        self._asked = self._cluster.world.now()
        connection = await self.any_connection()
        response = await connection.ask(MetadataRequest(None), METADATA_VERSION)
        for topic in response.topics:
            for partition in topic.partitions:
                place = topic.topic_id, partition.partition_index
                if partition.leader_epoch >= self._leaders.get(place, NOBODY)[1]:
                    self._leaders[place] = partition.leader_id, partition.leader_epoch

    async def coordinator_of(self, key: str, key_type: int = GROUP) -> int | None:
        """The coordinator of a group, or of a transactional id. Raises Disconnected."""
        connection = await self.any_connection()
        response = await connection.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6)
        (found,) = response.coordinators
        return None if found.error_code != ErrorCode.NONE else int(found.node_id)

    def hang_up(self) -> None:
        for connection in self._connections.values():
            if connection.is_open:
                connection.close()
