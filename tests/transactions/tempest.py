"""One simulated run of a cluster with transactions: what befalls it, and what must hold when it is over.

Producers of both protocols write transactions, readers read, while leaders, coordinators and controllers lose their
power, stand still, stop and are cut off, often in a state of a transaction that was chosen before. A run goes on until
it has seen what makes it worth anything (`Worth`), or for so long; one that has seen less does not count.

Then the faults stop, and all producers stop dead. Within their timeout and ten seconds every transaction has ended
(T8), and soon all replicas are in sync; all is read once more, and compared with what was sent. At last all nodes start
again, and one topic is compacted.
"""

import asyncio
from random import Random
from typing import NamedTuple

from odradek.coordinators.transactions.states import COMPLETE_COMMIT, ONGOING, PREPARE_ABORT, PREPARE_COMMIT
from odradek.errors import ErrorCode
from odradek.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.cluster.chronicle import Chronicle
from tests.cluster.clusters import Cluster
from tests.cluster.faults import LEADER_WITHIN, Fault
from tests.cluster.leader_faults import BROKERS, WHOLE_WITHIN, LeaderFaults
from tests.cluster.members import SETTINGS as MEMBER_SETTINGS
from tests.cluster.replicated import ReplicatedLogs
from tests.cluster.router import Router
from tests.cluster.storm import CONTROLLER, MIN_ISR, Remaker, insist_on_topic
from tests.cluster.storm import SETTINGS as STORM_SETTINGS
from tests.cluster.watch import Watch, WatchedLoop
from tests.simulation.connection import Disconnected, Violation
from tests.simulation.trace import Trace
from tests.simulation.world import World
from tests.transactions.membership import ClassicMembership, ConsumerMembership
from tests.transactions.play import TransactionPlay
from tests.transactions.readers import COMMITTED, UNCOMMITTED, OffsetsReader, TransactionReader
from tests.transactions.worker import NEWER, OLDER, OLDER_BY_LEVEL, TIMEOUT_MS, NewMembership, Worker

SETTINGS = {
    **STORM_SETTINGS,
    "request.timeout.ms": "1500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
}
SMALL_SEGMENTS = {"internal_segment_bytes": "700"}
# Compaction begins when the rest has been checked.
COMPACTED = {"internal_segment_bytes": "400", "cleanup_policy": "compact", "delete_retention_ms": "500"}
CLEANER = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
TOPICS = (("apple", 2, SMALL_SEGMENTS), ("bear", 1, COMPACTED))
DOWNGRADE = 2
# Some seeds have more in them, by the rest that they leave.
MORE_EVERY = 8
EXPIRING, MEMBERS = 6, 3
EXPIRATION_MS = 600
EXPIRING_SETTINGS = {
    "transactional.id.expiration.ms": str(EXPIRATION_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "150",
}
PAIR = "pair"  # the group of two workers
MIN_SECONDS = 3.0
MAX_SECONDS = 12.0
ENDED_WITHIN = TIMEOUT_MS / 1000 + 10.0


class Worth(NamedTuple):
    """The least that a seed must have seen to count."""

    commits: int
    aborts: int
    timeouts: int
    fenced: int
    moves: int  # of coordinators

    def reaches(self, other: "Worth") -> bool:
        return all(mine >= wanted for mine, wanted in zip(self, other, strict=True))


WANTED = Worth(commits=6, aborts=2, timeouts=1, fenced=1, moves=1)


class Tempest(LeaderFaults):
    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        loop = WatchedLoop()
        world = World(seed, trace, loop)
        rng = world.new_rng()
        controllers = rng.choice([BROKERS, BROKERS, (CONTROLLER,)])
        more = seed % MORE_EVERY
        settings = {EXPIRING: EXPIRING_SETTINGS, MEMBERS: MEMBER_SETTINGS}.get(more, {})
        super().__init__(world, Cluster(world, controllers, BROKERS, {**SETTINGS, **settings}), rng)
        self.mood = rng.choice(["network", "power", "restarts", "disks"])
        self.chronicle = Chronicle(self.cluster)
        self.replicated = ReplicatedLogs(self.cluster, self.chronicle, MIN_ISR)
        loop.watch = Watch(self.cluster, self.chronicle, self.replicated)
        self.play = play = TransactionPlay(world, self.cluster, self.replicated)
        self.replicated.witness = play.witness
        self.elector = Router(self.cluster, "operator")
        self._loop = loop
        self._level = rng.choice([2, 2, 2, 2, 1, 0])  # of transaction.version
        self._faults_at_once = rng.choice([1, 1, 1, 2])
        newer, older = (NEWER, OLDER) if self._level == 2 else (OLDER_BY_LEVEL, OLDER_BY_LEVEL)
        kinds = [newer, older, rng.choice([newer, older])]
        members = self._members(Random(f"members of {seed}")) if more == MEMBERS else {}
        self._workers = [
            Worker(play, f"worker{number}", versions, number != 3, members.get(number))
            for number, versions in enumerate(kinds, 1)
        ]
        self._groups = [PAIR] if members else [worker.transactional_id for worker in self._workers]
        self._readers = [TransactionReader(play, f"reader{number}", 0.06) for number in (1, 2)]
        self._offsets_reader = OffsetsReader(play, "offsets", self._groups[:2], 0.15)
        self._remaker = None
        if more == EXPIRING:
            play.witness.expiration_ms = EXPIRATION_MS
            self._remaker = Remaker(play, "remaker")
        for machine in self.cluster.machines.values():
            machine.sync_seconds = rng.choice([0.0002, 0.0002, 0.004])
            machine.max_work_seconds = rng.choice([None, None, 0.03])

    def _members(self, rng: Random) -> dict[int, NewMembership]:
        """The memberships of the two workers that share a group."""
        kind = rng.choice([ClassicMembership, ConsumerMembership])
        is_static = rng.random() < 0.5

        def new(instance_id: str | None) -> NewMembership:
            return lambda name: kind(self.play, name, PAIR, instance_id)

        return {number: new(f"instance{number}" if is_static else None) for number in (1, 2)}

    @property
    def is_worth(self) -> bool:
        return self.worth.reaches(WANTED)

    @property
    def worth(self) -> Worth:
        counts = self.play.ledger.counts
        return Worth(
            counts["commits"],
            counts["aborts"],
            counts["timeouts"],
            counts["fenced producers"],
            self.play.witness.counts["moves of coordinators"],
        )

    @property
    def totals(self) -> dict[str, int]:
        return {
            **super().totals,
            "acknowledged batches": self.play.acknowledged,
            f"runs with a mood of {self.mood}": 1,
            f"runs with transaction.version {self._level}": 1,
            **self.play.counts,
            **self.play.ledger.counts,
            **self.play.witness.counts,
            **self.replicated.counts,
        }

    def bag(self) -> list[Fault]:
        always = [
            self._crash_coordinator,
            self._crash_coordinator,
            self._crash_leader,
            self._strand_leader,
            self._elect,
        ]
        moods: dict[str, list[Fault]] = {
            "network": [self._cut_link, self._isolate, self._lag, self._slow_down, self._pause],
            "power": [self._crash, self._lone_leader, self._crash_all, self._crash_at_shrink],
            "disks": [self._fill_disk, self._wipe, self._crash, self._lag],
            "restarts": [self._stop, self._roll, self._stop, self._pause, self._slow_down],
        }
        return [*always, *moods[self.mood]]

    async def _crash_coordinator(self) -> None:
        """A coordinator loses its power, or is stopped, when one of its transactions has just reached some state."""
        wanted = self._rng.choice([ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT])
        seen = dict(self.play.witness.states)
        end = self.world.now() + 1.0
        found = ""
        while not found and self.world.now() < end and not self._is_over:
            await asyncio.sleep(0.003)
            states = self.play.witness.states
            found = next(
                (key for key, state in states.items() if state.state is wanted and state != seen.get(key)), ""
            )
        node_id = self._coordinator_of(found)
        if node_id is None:
            return
        self._count(f"coordinators lost in {wanted.label}")
        self._busy[node_id] = None
        if self._rng.random() < 0.2:
            await self._stop_and_start(node_id)
            return
        self.cluster.machines[node_id].cut_power(self.world.new_rng() if self._rng.random() < 0.5 else None)
        await self._wait(0.0, 1.2)
        self._start_soon(node_id)
        del self._busy[node_id]

    def _coordinator_of(self, transactional_id: str) -> int | None:
        log = self.play.coordinator_log(transactional_id) if transactional_id else None
        if log is None or not self._is_free_broker(log.registration.leader):
            return None
        return log.registration.leader

    def _is_free_broker(self, node_id: int) -> bool:
        return node_id in self.cluster.machines and self._is_free(node_id)

    # --- the whole run ---

    async def carry_out(self) -> None:
        for node_id in self.cluster.machines:
            self._start_soon(node_id)
        await self._wait_for(self._all_serve, LEADER_WITHIN, "not all nodes serve at the beginning")
        if self._level < 2:
            await self._set_level()
        await self._make_topics()
        clients = [*self._workers, *self._readers, self._offsets_reader]
        lives = [self.world.spawn(client.live()) for client in clients]
        if self._remaker is not None:
            lives.append(self.world.spawn(self._remaker.live()))
        await self._suffer(MIN_SECONDS, MAX_SECONDS, self._faults_at_once)
        self.play.is_over = True
        for task in lives:
            await task
        await self._check_end()

    async def _set_level(self) -> None:
        update = FeatureUpdateKey("transaction.version", self._level, DOWNGRADE)
        while self.chronicle.newest.features.get("transaction.version", 0) != self._level:
            try:
                connection = await self.elector.any_connection()
                response = await connection.ask(UpdateFeaturesRequest(1_000, [update]), 2)
                if response.error_code:
                    self.world.note("operator", f"{ErrorCode(response.error_code).name}")
            except Disconnected:
                pass
            await asyncio.sleep(0.1)

    async def _make_topics(self) -> None:
        for name, partitions, configs in TOPICS:
            await insist_on_topic(self._readers[0], name, partitions, MIN_ISR, **configs)

    async def _check_end(self) -> None:
        if self.replicated.without_candidates():
            self._count("runs whose end is left to an operator")
            return
        witness = self.play.witness
        try:
            await self._wait_for(
                lambda: not witness.unfinished(), ENDED_WITHIN, "T8: transactions are hanging"
            )
        except Violation as error:
            raise Violation(f"{error}, though all faults are over: {witness.unfinished()}") from None
        await self._become_whole()
        for partition in self.play.partitions():
            await self._readers[0].read_all(partition, COMMITTED)
            await self._readers[1].read_all(partition, UNCOMMITTED)
        self.play.ledger.check_end(witness.stored, (OFFSETS_TOPIC, 0), self.play.names())
        await self._check_offsets()
        witness.check_all()
        self._check_coordinators()
        await self._wait_for(self.replicated.is_whole, WHOLE_WITHIN, "not all replicas stay in sync")
        for machine in self.cluster.machines.values():
            machine.cut_power()
        self.replicated.check_disks()
        await self._check_compaction()

    async def _check_compaction(self) -> None:
        """T11: what compaction leaves shows the newest of what is committed, and nothing that was aborted; also once
        the markers are gone."""
        self._loop.watch = None  # the logs change from here on
        for machine in self.cluster.machines.values():
            machine.configure(CLEANER)
        await self.cluster.start()
        for partition in self.play.partitions():
            if partition.topic.name == "bear":
                for _ in range(2):
                    await asyncio.sleep(1.5)
                    await self._readers[0].read_compacted(partition)
                self._count("compacted logs")

    async def _check_offsets(self) -> None:
        """T9: what each group is told in the end is what its last committed transaction has sent."""
        for group in self._groups:
            end = self.world.now() + LEADER_WITHIN
            while self.play.offsets_log(group) is not None:
                try:
                    coordinator = await self._offsets_reader.router.coordinator_of(group)
                    offset = None
                    if coordinator is not None:
                        offset = await self._offsets_reader.read(coordinator, group, True)
                    if offset is not None:
                        if offset != self.play.position(group):
                            raise Violation(
                                f"T9: {group} is told {offset}, and {self.play.position(group)} is committed"
                            )
                        break
                except Disconnected:
                    pass
                if self.world.now() > end:
                    raise Violation(f"T9: the offsets of {group} cannot be read, though all faults are over")
                await asyncio.sleep(0.05)

    def _check_coordinators(self) -> None:
        """T10: whoever coordinates now knows what the log says."""
        for log in self.replicated.logs.values():
            if log.name.startswith(TRANSACTIONS_TOPIC):
                self.play.check_coordinator(log)
