"""Clusters of simulated machines: directories that are formatted for one quorum, and a way to ask any node.

A node by itself is a cluster, too: one broker and no controllers. It is its own controller, listens on one port, and
formats its own directory when it starts for the first time.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from odradek.metadata.formatting import format_directory
from odradek.metadata.properties import MetaProperties
from odradek.raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.wire.codec import Message
from tests.simulation.machine import DATA_DIR, PORT, Machine
from tests.simulation.world import World

CLUSTER_ID = "a-simulated-cluster"
CONTROLLER_PORT = 9093
REPLICATION_PORT = 9094
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}


def directory_id(node_id: int, generation: int = 0) -> UUID:
    return UUID(int=0xD000_0000 + 0x1_0000 * generation + node_id, version=4)


# Nodes reach each other with TLS; clients do not.
PROTECTED = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL,REPLICATION:SSL",
    "inter.broker.listener.name": "REPLICATION",
}


class Cluster:
    """`controllers` and `brokers` are node ids; a node may be both. `racks` are those of brokers that have one.
    `is_protected`: see PROTECTED."""

    def __init__(
        self,
        world: World,
        controllers: Sequence[int] = (1, 2, 3),
        brokers: Sequence[int] = (1, 2, 3),
        settings: dict[str, str] | None = None,
        racks: Mapping[int, str] | None = None,
        is_protected: bool = False,
    ) -> None:
        self.world = world
        self._is_protected = is_protected
        self._racks = racks or {}
        self.controllers = tuple(controllers)
        self.brokers = tuple(brokers)
        self._settings = {**SETTINGS, **(PROTECTED if is_protected else {}), **(settings or {})}
        self.generations = dict.fromkeys((*controllers, *brokers), 0)  # of the disks, by node id
        self.lost_disks: dict[ReplicaKey, SimulatedFiles] = {}
        self.machines = {node_id: self._machine(node_id) for node_id in sorted({*controllers, *brokers})}
        if self.controllers:
            for node_id in self.machines:
                self.format(node_id)

    def _machine(self, node_id: int) -> Machine:
        name = f"node{node_id}"
        if not self.controllers:
            return self.world.machine(name, self._settings)
        listeners = []
        roles = []
        if node_id in self.brokers:
            roles.append("broker")
            listeners.append(f"PLAINTEXT://{name}:{PORT}")
            if self._is_protected:
                listeners.append(f"REPLICATION://{name}:{REPLICATION_PORT}")
        if node_id in self.controllers:
            roles.append("controller")
            listeners.append(f"CONTROLLER://{name}:{CONTROLLER_PORT}")
        return self.world.machine(
            name,
            {
                "node.id": str(node_id),
                "process.roles": ",".join(roles),
                "listeners": ",".join(listeners),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": ",".join(
                    f"node{controller}:{CONTROLLER_PORT}" for controller in self.controllers
                ),
                **({"broker.rack": self._racks[node_id]} if node_id in self._racks else {}),
                **self._settings,
            },
        )

    def key(self, node_id: int) -> ReplicaKey:
        return ReplicaKey(node_id, directory_id(node_id, self.generations[node_id]))

    def voter(self, node_id: int) -> VoterNode:
        endpoint = Endpoint("CONTROLLER", f"node{node_id}", CONTROLLER_PORT)
        return VoterNode(self.key(node_id), (endpoint,))

    def format(self, node_id: int, generation: int = 0) -> None:
        """Format a directory; with a generation above 0, that of a node that lost its disk and is no voter now."""
        self.generations[node_id] = generation
        is_voter = node_id in self.controllers and generation == 0
        voters = VoterSet(map(self.voter, self.controllers)) if is_voter else None
        properties = MetaProperties(CLUSTER_ID, node_id, directory_id(node_id, generation))
        format_directory(self.machines[node_id].files, DATA_DIR, properties, voters)

    def replace_disk(self, node_id: int) -> None:
        """Replace the disk by an empty one, which is formatted. The machine must be off."""
        self.lost_disks[self.key(node_id)] = self.machines[node_id].files
        self.machines[node_id].replace_disk()
        self.format(node_id, self.generations[node_id] + 1)

    async def start(self, *node_ids: int) -> None:
        """These nodes, or all, at the same time."""
        tasks = [self.world.spawn(self.machines[node_id].start()) for node_id in node_ids or self.machines]
        for task in tasks:
            await task

    def leaders(self) -> list[int]:
        return [
            node_id
            for node_id, machine in self.machines.items()
            if machine.node is not None and machine.node.metadata.quorum.is_active
        ]

    def image(self, node_id: int) -> Any:
        node = self.machines[node_id].node
        assert node is not None
        return node.metadata.image

    async def ask(self, node_id: int, request: Message, version: int, client: str = "alice") -> Any:
        connection = await self.world.connect(client, self.machines[node_id])
        try:
            return await connection.ask(request, version)
        finally:
            connection.close()


def new_cluster(seed: int, **options: Any) -> tuple[World, Cluster]:
    world = World(seed)
    return world, Cluster(world, **options)


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait in virtual time."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
