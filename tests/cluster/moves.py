"""A storm in which an operator moves partitions between four brokers: begins, replaces and cancels reassignments.

All that holds in any storm holds here. `Placements` looks at every registration that the metadata log commits, in
order, and adds what reassignments promise:

- M1 the ISR, the leader, and whoever is eligible, being added or being removed are replicas of the partition
- M2 a reassignment completes only once its new replicas are in sync
- M3 cancelling one takes no replica out of the ISR but those that it was adding, and full ones
- M4 a replica that leaves begins a new leader epoch

When the faults are over every reassignment completes, and no broker keeps the log of a partition that has left it.
"""

from collections.abc import Sequence

from odradek.errors import ErrorCode
from odradek.metadata.image import MetadataImage, Partition
from odradek.model import OFFSETS_TOPIC
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.cluster.chronicle import Chronicle
from tests.cluster.operators import IN_DOUBT
from tests.cluster.replicated import NO_LEADER
from tests.cluster.storm import Storm
from tests.cluster.traffic import ClusterClient
from tests.cluster.watch import Watch
from tests.simulation.connection import Violation
from tests.simulation.machine import DATA_DIR
from tests.simulation.trace import Trace

FEWEST = 2  # replicas: the only disk with a record may be lost
WANTED_MOVES = 2
MOVER_PAUSE = 0.15
REFUSALS = {
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,  # cancelling would need an unclean election
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class Placements:
    def __init__(self, chronicle: Chronicle) -> None:
        self._chronicle = chronicle
        self._image = MetadataImage("")
        self.counts = dict.fromkeys(("moves begun", "moves completed", "moves cancelled"), 0)

    def look(self, node_ids: Sequence[int]) -> None:
        if self._chronicle.newest is self._image:
            return
        for image in reversed(self._chronicle.images_since(self._image.offset)):
            before, self._image = self._image, image
            for topic in image.topics_by_id.values():
                earlier = before.topics_by_id.get(topic.id)
                if earlier is topic:
                    continue
                for index, partition in topic.partitions.items():
                    try:
                        self._check(earlier.partitions.get(index) if earlier else None, partition)
                    except AssertionError as error:
                        raise Violation(
                            f"{error}: {topic.name}-{index}, {partition}, after {earlier}"
                        ) from None

    def _check(self, before: Partition | None, after: Partition) -> None:
        replicas = set(after.replicas)
        named = {
            *after.isr,
            *after.eligible_leader_replicas,
            *after.adding_replicas,
            *after.removing_replicas,
        }
        assert named <= replicas, f"M1: {named - replicas} are no replicas"
        assert after.leader == NO_LEADER or after.leader in after.isr, "M1: the leader is not in sync"
        if before is None or before.replicas == after.replicas:
            return
        if not set(before.replicas) <= replicas:
            assert after.leader_epoch > before.leader_epoch, "M4: a replica left in the same leader epoch"
        adding, removing = set(before.adding_replicas), set(before.removing_replicas)
        is_over = not after.adding_replicas and not after.removing_replicas
        if not is_over:
            self.counts["moves begun"] += 1
        elif replicas == set(before.replicas) - removing and (adding or removing):
            self.counts["moves completed"] += 1
            assert adding <= set(after.isr), "M2: it completed before its new replicas were in sync"
        elif replicas == set(before.replicas) - adding and adding:
            self.counts["moves cancelled"] += 1
            kept = set(before.isr) - adding - self._image.full_brokers()  # these leave with any election
            assert kept <= set(after.isr) or after.leader_recovery_state, "M3: cancelling shrank the ISR"


class Mover(ClusterClient):
    """Often begins another reassignment, or cancels one, before the last is complete."""

    async def act(self) -> None:
        await self.pause(MOVER_PAUSE)
        partition = self.play.any_partition(self.rng)
        if partition is None:
            return
        place = partition.topic.name, partition.index
        if self.rng.random() < 0.2:
            place = OFFSETS_TOPIC, 0
        chance = self.rng.random()
        if chance < 0.7:
            await self._ask(*place, self._target())
            if chance < 0.2:
                await self._ask(*place, None)
        elif chance < 0.9:
            await self._ask(*self._moving(place), None)
        else:
            response = await self.ask(ListPartitionReassignmentsRequest(1_000, None), 0)
            if response.topics:
                self.play.count("moves listed")

    def _moving(self, other: tuple[str, int]) -> tuple[str, int]:
        """A partition that is on its way, or else this one."""
        logs = [log for log in self.play.replicated.logs.values() if log.registration.adding_replicas]
        names = [log.name.rpartition("-") for log in logs]
        return self.rng.choice([(topic, int(index)) for topic, _, index in names] or [other])

    def _target(self) -> list[int]:
        brokers = self.play.cluster.brokers
        return self.rng.sample(brokers, self.rng.choice([FEWEST, 3, 3, len(brokers)]))

    async def _ask(self, topic: str, index: int, target: list[int] | None) -> None:
        wanted = ReassignableTopic(topic, [ReassignablePartition(index, target)])
        response = await self.ask(AlterPartitionReassignmentsRequest(1_000, True, [wanted]), 1)
        code = ErrorCode(response.error_code or response.responses[0].partitions[0].error_code)
        if code and code not in REFUSALS and code not in IN_DOUBT:
            raise Violation(f"moving {topic}-{index} to {target} was answered with {code.name}")


class MovingStorm(Storm):
    brokers = (1, 2, 3, 4)
    controller = 5

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        super().__init__(seed, trace)
        self.placements = Placements(self.chronicle)
        self.world.loop.watch = Watch(  # type: ignore[attr-defined]
            self.cluster, self.chronicle, self.replicated, self.placements
        )
        self._clients.append(Mover(self.play, "mover"))

    @property
    def is_worth(self) -> bool:
        return super().is_worth and self.placements.counts["moves completed"] >= WANTED_MOVES

    @property
    def totals(self) -> dict[str, int]:
        return {**super().totals, **self.placements.counts}

    async def _check_end(self) -> None:
        await super()._check_end()
        for log in self.replicated.logs.values():
            for broker_id in self.cluster.brokers:
                if (
                    log.topic_id in self.replicated.image.topics_by_id
                    and broker_id not in log.registration.replicas
                ):
                    contents = self.cluster.machines[broker_id].files.contents()
                    if any(path.startswith(f"{DATA_DIR}/{log.name}/") for path in contents):
                        self.replicated.fail(
                            log, f"broker {broker_id} keeps the log of a partition that left it"
                        )
