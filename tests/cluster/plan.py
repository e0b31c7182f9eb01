"""One simulated run of a cluster about metadata, and what must hold when it is over.

Operators change topics through all brokers, while one fault follows another, some at the same time: nodes lose their
power in the middle of a write, stand still, stop cleanly, lose their disks for good; links are cut, one way or both, or
slow; disks are full; all nodes restart at once. A run goes on until it has seen what makes it worth anything (`Worth`).

Then the faults stop. There must be a controller within ten seconds, all nodes must catch up, and all images must hold
what was acknowledged.
"""

from typing import NamedTuple

from tests.cluster.chronicle import Chronicle
from tests.cluster.clusters import Cluster
from tests.cluster.faults import LEADER_WITHIN, Fault, Faults
from tests.cluster.operators import Operator, Prober
from tests.cluster.watch import Watch, WatchedLoop
from tests.simulation.connection import Violation
from tests.simulation.trace import Trace
from tests.simulation.world import World

# Everything that takes seconds takes a part of one, and snapshots are written all the time.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "400",
    "broker.session.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "400",
    "controller.quorum.request.timeout.ms": "400",
    "controller.socket.timeout.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.retention.check.interval.ms": "2000",
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "metadata.max.retention.bytes": "2500",
}
OBSERVERS = (101, 102)
MIN_SECONDS = 3.0
MAX_SECONDS = 40.0


class Worth(NamedTuple):
    """The least that a seed must have seen to count."""

    acknowledged: int
    crashes: int
    elections_after_a_crash: int

    def reaches(self, other: "Worth") -> bool:
        return all(mine >= wanted for mine, wanted in zip(self, other, strict=True))


WANTED = Worth(acknowledged=30, crashes=1, elections_after_a_crash=1)


class Plan(Faults):
    pace = 0.6

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        loop = WatchedLoop()
        world = World(seed, trace, loop)
        rng = world.new_rng()
        count = rng.choice([1, 3, 3, 3, 5])
        controllers = tuple(range(1, count + 1))
        self._is_combined = rng.random() < 0.5
        brokers = (*controllers, *OBSERVERS) if self._is_combined else OBSERVERS
        super().__init__(world, Cluster(world, controllers, brokers, SETTINGS), rng)
        self.chronicle = Chronicle(self.cluster)
        loop.watch = Watch(self.cluster, self.chronicle)
        self.operators = [
            Operator(self.cluster, self.chronicle, f"operator{number}", world.new_rng()) for number in (1, 2)
        ]
        self.prober = Prober(self.cluster, self.chronicle, world.new_rng())

    def bag(self) -> list[Fault]:
        return [
            self._crash,
            self._crash,
            self._crash,
            self._pause,
            self._cut_link,
            self._isolate,
            self._slow_down,
            self._fill_disk,
            self._stop,
            self._replace_a_disk,
            self._crash_all,
        ]

    @property
    def is_worth(self) -> bool:
        return self.worth.reaches(WANTED)

    @property
    def totals(self) -> dict[str, int]:
        return {
            **super().totals,
            "acknowledged changes": self.worth.acknowledged,
            "changes in doubt": sum(operator.in_doubt for operator in self.operators),
            "refusals by former controllers": sum(operator.refused_late for operator in self.operators),
            "refusals by controllers that were not active": self.prober.refused,
            **self.chronicle.counts,
        }

    @property
    def worth(self) -> Worth:
        first = min(self._crashed_at, default=float("inf"))
        return Worth(
            sum(operator.acknowledged for operator in self.operators),
            len(self._crashed_at),
            sum(when > first for when in self.chronicle.elected_at),
        )

    # --- the whole run ---

    async def carry_out(self) -> None:
        for node_id in self.cluster.machines:
            self._start_soon(node_id)
        await self._wait_for(self._has_controller, LEADER_WITHIN, "there is no controller at the beginning")
        lives = [self.world.spawn(player.live()) for player in (*self.operators, self.prober)]
        await self._suffer(MIN_SECONDS, MAX_SECONDS, look_every=0.2)
        if not self.is_worth:
            raise Violation(f"this seed is worth nothing: {self.worth}, wanted {WANTED}")
        for player in (*self.operators, self.prober):
            player.is_over = True
        for task in lives:
            await task
        await self._check_end()

    def _all_are_caught_up(self) -> bool:
        if not self._all_serve():
            return False
        offsets = {self.cluster.image(node_id).offset for node_id in self.cluster.machines}
        return len(offsets) == 1 and max(offsets) == self.chronicle.newest.offset

    async def _check_end(self) -> None:
        await self._wait_for(self._all_are_caught_up, LEADER_WITHIN, "not all nodes have caught up")
        for node_id in self.cluster.machines:
            image = self.cluster.image(node_id)
            self.chronicle.compare(node_id, image)
            if not image.features:
                raise Violation(f"node {node_id} knows no features: the records of a new cluster are missing")
            for operator in self.operators:
                operator.check(node_id, image)
        self._check_voters()
        for machine in self.cluster.machines.values():
            machine.cut_power()  # without a majority, clean stops would take their time

    def _check_voters(self) -> None:
        (leader,) = self.cluster.leaders()
        node = self.cluster.machines[leader].node
        assert node is not None
        voters = {replica.key for replica in node.metadata.quorum.describe().voters}
        wanted = {self.cluster.key(node_id) for node_id in self.cluster.controllers}
        if voters != wanted:
            raise Violation(f"the voters are {voters}, not {wanted}")
