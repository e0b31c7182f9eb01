"""Disks that are full for long. A broker without room must give its leaderships away, where another in-sync replica can
lead, live on without room, and come back by itself.

In the storm this happens together with other faults. In the last act of some runs it happens alone, and then writes
must be accepted again within seconds, though the disk is still full.
"""

import asyncio

from tests.cluster.leader_faults import LeaderFaults
from tests.cluster.traffic import ClusterPlay, Producer
from tests.simulation.connection import Disconnected, Violation
from tests.simulation.log_history import PartitionHistory

IN_SYNC_WITHIN = 60.0
ACCEPTED_WITHIN = 4.0  # seconds, of the first write to a partition after its leader's disk is full
FULL_SECONDS = 1.0  # that the disk stays full after that


class FullDisks(LeaderFaults):
    play: ClusterPlay

    async def _fill_disk_for_long(self) -> None:
        """Until the faults are over, or nearly."""
        node_id = self._leading()
        if node_id is None:
            return
        self._count("disks that are full for long")
        self._busy[node_id] = None
        machine = self.cluster.machines[node_id]
        machine.fill_disk(self._rng.choice([0, 300, 3_000, 100_000]))
        await self._wait(3.0, 8.0)
        machine.heal()
        if not machine.is_on:
            self._start_soon(node_id)
        del self._busy[node_id]

    # --- the last act ---

    async def _fill_disk_alone(self) -> None:
        """Nothing else happens."""
        try:
            await self._wait_for(self.replicated.all_in_sync, IN_SYNC_WITHIN, "not all replicas are in sync")
        except Violation as error:
            reasons = [*self.replicated.missing(), *self.replicated.damages.names()]
            raise Violation(f"{error}, though all faults are over: {reasons}") from None
        node_id = self._leading()
        if node_id is None:
            return
        self._count("full disks in the last act")
        machine, starts = self.cluster.machines[node_id], self.cluster.machines[node_id].starts
        led = [partition for partition in self._stable() if self._leader_of(partition) == node_id]
        machine.fill_disk(self._rng.choice([0, 300, 3_000, 100_000]))
        client = Producer(self.play, "insister", 0.0)
        for partition in led:
            await self._insist(client, partition, node_id)
        await asyncio.sleep(FULL_SECONDS)
        if not machine.is_on or machine.starts != starts:
            raise Violation(f"node {node_id} stopped, because its disk is full")
        machine.heal()

    def _stable(self) -> list[PartitionHistory]:
        """Without those that need every replica: they accept nothing while one of them cannot write."""
        topics = [topic for topic in self.play.topics() if topic.name != "remade"]
        partitions = [partition for topic in topics for partition in topic.partitions]
        return [partition for partition in partitions if not self._needs_all(partition)]

    def _needs_all(self, partition: PartitionHistory) -> bool:
        log = self.replicated.logs[partition.topic.id, partition.index]
        return self.replicated.min_isr(log) >= len(log.registration.replicas)

    def _leader_of(self, partition: PartitionHistory) -> int:
        return self.replicated.logs[partition.topic.id, partition.index].registration.leader

    async def _insist(self, client: Producer, partition: PartitionHistory, full: int) -> None:
        end = self.world.now() + ACCEPTED_WITHIN
        while not await self._is_accepted(client, partition):
            if self.world.now() > end:
                raise Violation(
                    f"{partition.topic.name}-{partition.index} accepts nothing for {ACCEPTED_WITHIN:g} s, because the "
                    f"disk of node {full} is full; {self._leader_of(partition)} leads"
                )
            await asyncio.sleep(0.05)
        self._count("writes accepted while a disk is full")

    async def _is_accepted(self, client: Producer, partition: PartitionHistory) -> bool:
        try:
            return await client.produce(partition)
        except Disconnected:
            return False
