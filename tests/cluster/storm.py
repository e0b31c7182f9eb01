"""What befalls a cluster with data in one simulated run, and what must hold when it is over.

Clients produce, read and commit offsets, an operator makes and deletes a topic, while one fault follows another, some
at the same time. Every seed has a mood, which says what happens often in it: the network, the power, the disks, or
restarts. A run goes on until it has seen what makes it worth anything (`Worth`), or for so long; one that has seen less
does not count.

Then the faults stop. Within a minute every partition must be led and all of its replicas in sync; all that was
acknowledged is read, and the disks of all replicas are compared.
"""

import asyncio
from typing import NamedTuple

from odradek.errors import ErrorCode
from odradek.model import OFFSETS_TOPIC
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.elect_leaders import ElectLeadersRequest
from tests.cluster.chronicle import Chronicle, WatchedLoop
from tests.cluster.clusters import Cluster
from tests.cluster.echo import Echo
from tests.cluster.faults import LEADER_WITHIN, Fault, Faults
from tests.cluster.operators import IN_DOUBT
from tests.cluster.replicated import ReplicatedLogs
from tests.cluster.traffic import Auditor, ClusterClient, ClusterPlay, Member, Producer, Reader
from tests.simulation.connection import Disconnected, Violation
from tests.simulation.disk import check_disk
from tests.simulation.log_history import TopicHistory
from tests.simulation.trace import Trace
from tests.simulation.world import World

# Everything that takes seconds takes a part of one.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "250",
    "broker.session.timeout.ms": "900",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "400",
    "controller.quorum.request.timeout.ms": "400",
    "controller.socket.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "leader.imbalance.check.interval.seconds": "2",
    "log.cleaner.enable": "false",
    "log.retention.check.interval.ms": "2000",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "400",
    "replica.lag.time.max.ms": "600",
    "replica.socket.timeout.ms": "900",
}
MIN_ISR = 2
BROKERS = (1, 2, 3)
CONTROLLER = 4
MIN_SECONDS = 3.0
MAX_SECONDS = 14.0
WHOLE_WITHIN = 60.0
REMADE = "remade"


class Worth(NamedTuple):
    """What a seed must have seen to count."""

    acknowledged: int
    crashes: int
    elections: int
    truncations: int

    def reaches(self, other: "Worth") -> bool:
        return all(mine >= wanted for mine, wanted in zip(self, other, strict=True))


WANTED = Worth(acknowledged=40, crashes=1, elections=3, truncations=1)


class Watch:
    """Both chronicles look after every step."""

    def __init__(self, chronicle: Chronicle, replicated: ReplicatedLogs) -> None:
        self._chronicle = chronicle
        self._replicated = replicated

    def look(self) -> None:
        self._chronicle.look()
        self._replicated.look()


class Remaker(ClusterClient):
    """Makes a topic, and deletes it again, by one name."""

    def __init__(self, play: ClusterPlay, name: str) -> None:
        super().__init__(play, name)
        self._topic: TopicHistory | None = None

    async def act(self) -> None:
        await self.pause(1.5)
        if self._topic is None:
            self._topic = await make_topic(self, REMADE, 1, 2)
            if self._topic is None and not self.play.is_over:
                await self._delete(DeleteTopicState(REMADE))  # it may be there, and nobody knows
        else:
            self.play.logs.deleting(self._topic)
            for group in self.play.groups.groups.values():
                group.deleting_topic(REMADE)
            if await self._delete(DeleteTopicState(None, self._topic.id)):
                self.play.logs.deleted(self._topic)
                self.play.count("topics deleted")
                self._topic = None

    async def _delete(self, topic: DeleteTopicState) -> bool:
        response = await self.ask(DeleteTopicsRequest([topic], timeout_ms=1_000))
        return response.responses[0].error_code in (
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
        )


async def make_topic(client: ClusterClient, name: str, partitions: int, min_isr: int) -> TopicHistory | None:
    """None if it cannot be made now. Raises Disconnected."""
    sent = client.play.world.now()
    settings = [CreatableTopicConfig("min.insync.replicas", str(min_isr))]
    request = CreateTopicsRequest([CreatableTopic(name, partitions, 3, configs=settings)], 1_000)
    (created,) = (await client.ask(request)).topics
    if created.error_code == ErrorCode.NONE:
        return client.play.logs.created(name, created.topic_id, sent, partitions)
    if created.error_code != ErrorCode.TOPIC_ALREADY_EXISTS and created.error_code not in IN_DOUBT:
        raise Violation(f"creating {name} was refused with {ErrorCode(created.error_code).name}")
    return None


class Storm(Faults):
    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        loop = WatchedLoop()
        world = World(seed, trace, loop)
        rng = world.new_rng()
        controllers = rng.choice([BROKERS, BROKERS, (CONTROLLER,)])
        super().__init__(world, Cluster(world, controllers, BROKERS, SETTINGS), rng)
        self.mood = rng.choice(["network", "network", "power", "disks", "restarts"])
        self.chronicle = Chronicle(self.cluster)
        self.replicated = ReplicatedLogs(self.cluster, self.chronicle, MIN_ISR)
        loop.chronicle = Watch(self.chronicle, self.replicated)
        self.play = play = ClusterPlay(world, self.cluster, self.replicated)
        pace = rng.choice([0.02, 0.05])
        self._producers = [Producer(play, f"producer{number}", pace) for number in (1, 2, 3)]
        self._readers = [Reader(play, f"reader{number}", 0.06) for number in (1, 2)]
        self._auditor = Auditor(play, "auditor", 0.2)
        self._clients: list[ClusterClient | Member] = [
            *self._producers,
            *self._readers,
            self._auditor,
            Member(play, "member1", 0.2),
            Member(play, "member2", 0.2),
            Remaker(play, "remaker"),
            Echo(play, "echo"),
        ]
        for machine in self.cluster.machines.values():
            machine.sync_seconds = rng.choice([0.0002, 0.0002, 0.004])
            machine.max_work_seconds = rng.choice([None, None, 0.03])

    @property
    def is_worth(self) -> bool:
        return self.worth.reaches(WANTED)

    @property
    def totals(self) -> dict[str, int]:
        return {
            "acknowledged batches": self.play.acknowledged,
            f"runs with a mood of {self.mood}": 1,
            **self.play.counts,
            **self.chronicle.counts,
            **self.replicated.counts,
            **self.counts,
        }

    @property
    def worth(self) -> Worth:
        counts = self.replicated.counts
        return Worth(
            self.play.acknowledged,
            len(self._crashed_at),
            counts["elections of leaders"],
            counts["truncations of replicas"],
        )

    def bag(self) -> list[Fault]:
        always = [
            self._strand_leader,
            self._crash_leader,
            self._elect,
            self._rng.choice([self._lone_leader, self._crash_at_shrink]),
        ]
        moods: dict[str, list[Fault]] = {
            "network": [self._cut_link, self._isolate, self._lag, self._lag, self._slow_down, self._pause],
            "power": [self._crash, self._lone_leader, self._crash_all, self._crash_at_shrink, self._lag],
            "disks": [self._fill_disk, self._wipe, self._crash, self._lag, self._cut_link],
            "restarts": [self._stop, self._roll, self._stop, self._pause, self._slow_down],
        }
        return [*always, *moods[self.mood]]

    # --- the whole run ---

    async def carry_out(self) -> None:
        for node_id in self.cluster.machines:
            self._start_soon(node_id)
        await self._wait_for(self._all_serve, LEADER_WITHIN, "not all nodes serve at the beginning")
        await self._make_topics()
        lives = [self.world.spawn(client.live()) for client in self._clients]
        faults = [self.world.spawn(self._have_faults()) for _ in range(2)]
        faults.append(self.world.spawn(self._keep_running()))
        began = self.world.now()
        while True:
            await asyncio.sleep(0.1)
            passed = self.world.now() - began
            if (passed > MIN_SECONDS and self.worth.reaches(WANTED)) or passed > MAX_SECONDS:
                break
        self._is_over = True
        for task in faults:
            await task
        await self._settle()
        self.play.is_over = True
        for task in lives:
            await task
        await self._check_end()

    async def _make_topics(self) -> None:
        # With one in-sync replica a record may be on one disk alone, and that may be lost.
        low = MIN_ISR if self.mood == "disks" else 1
        for name, partitions, min_isr in (("apple", 2, MIN_ISR), ("bear", 1, low)):
            while True:
                try:
                    if await make_topic(self._producers[0], name, partitions, min_isr):
                        break
                except Disconnected:
                    pass
                await asyncio.sleep(0.1)

    async def _check_end(self) -> None:
        if self.replicated.without_candidates():
            self._count("runs whose end is left to an operator")
            return
        for producer in self._producers:
            await producer.settle()
        try:
            await self._wait_for(self.replicated.is_whole, WHOLE_WITHIN, "not all replicas are in sync")
        except Violation as error:
            raise Violation(f"{error}, though all faults are over: {self.replicated.missing()}") from None
        for topic in self.play.topics():
            for partition in topic.partitions:
                await self._readers[0].read_all(partition)
        await self._check_offsets()
        await self._wait_for(self.replicated.is_whole, WHOLE_WITHIN, "not all replicas stay in sync")
        for machine in self.cluster.machines.values():
            machine.cut_power()
        self.replicated.check_disks()
        for broker_id in self.cluster.brokers:
            contents = self.cluster.machines[broker_id].files.contents()
            check_disk(contents, {f"{OFFSETS_TOPIC}-0", "__cluster_metadata-0"})

    async def _check_offsets(self) -> None:
        for name in self.play.groups.groups:
            end = self.world.now() + LEADER_WITHIN
            while OFFSETS_TOPIC in self.chronicle.newest.topics:
                try:
                    coordinator = await self._auditor.router.coordinator_of(name)
                    if coordinator is not None and await self._auditor.audit(coordinator, name):
                        break
                except Disconnected:
                    pass
                if self.world.now() > end:
                    raise Violation(f"the offsets of group {name} cannot be read, though all faults are over")
                await asyncio.sleep(0.05)

    # --- faults of clusters with data ---

    def _leading(self) -> int | None:
        """A broker that leads something, and that nothing else happens to."""
        leaders = {log.registration.leader for log in self.replicated.logs.values()}
        free = [node_id for node_id in sorted(leaders) if node_id > 0 and self._is_free(node_id)]
        return self._rng.choice(free) if free else None

    async def _strand_leader(self) -> None:
        """A leader is cut off from all other nodes, but not from its clients: what it still takes is lost later."""
        node_id = self._leading()
        if node_id is None:
            return
        self._count("stranded leaders")
        name = self.cluster.machines[node_id].name
        others = [machine.name for machine in self.cluster.machines.values() if machine.name != name]
        way = self._rng.choice(["in", "out", "both", "both"])
        self.world.note("network", f"{name} is cut off from all others: {way}")
        for other in others:
            if way != "in":
                self.world.network.cut(name, other)
            if way != "out":
                self.world.network.cut(other, name)
        await self._wait(0.8, 2.0)
        self.world.note("network", f"{name} is connected again")
        for other in others:
            self.world.network.heal_both_ways(name, other)
        if self._rng.random() < 0.3:
            await self._wait(0.1, 0.5)
            await self._elect()

    async def _lone_leader(self) -> None:
        """Nobody can fetch from a leader, so that it is alone in sync; then it loses its power, and the others are left
        without it."""
        node_id = self._leading()
        if node_id is None:
            return
        self._count("lone leaders")
        self._busy[node_id] = None
        machine = self.cluster.machines[node_id]
        others = [broker_id for broker_id in BROKERS if broker_id != node_id]
        for other in others:
            self.world.note("network", f"cut from node{other} to {machine.name}")
            self.world.network.cut(f"node{other}", machine.name)
        await self._wait(0.8, 1.4)
        if machine.is_on:
            machine.cut_power(self.world.new_rng())
        for other in others:
            self.world.network.heal_both_ways(f"node{other}", machine.name)
        await self._wait(0.3, 1.0)
        self._start_soon(node_id)
        del self._busy[node_id]

    async def _crash_at_shrink(self) -> None:
        """A leader loses its power just after a follower has left the ISR, and the other one does not know yet what was
        committed without it."""
        node_id = self._leading()
        if node_id is None:
            return
        self._count("power cuts after an ISR has shrunk")
        self._busy[node_id] = None
        machine = self.cluster.machines[node_id]
        other = f"node{self._rng.choice([broker_id for broker_id in BROKERS if broker_id != node_id])}"
        self.world.note("network", f"cut from {other} to {machine.name}")
        self.world.network.cut(other, machine.name)
        shrinks, end = self.replicated.counts["shrinks"], self.world.now() + 1.5
        while self.replicated.counts["shrinks"] == shrinks and self.world.now() < end:
            await asyncio.sleep(0.005)
        await self._wait(0.0, 0.08)
        if machine.is_on:
            machine.cut_power(self.world.new_rng())
        self.world.network.heal_both_ways(other, machine.name)
        await self._wait(0.3, 1.0)
        self._start_soon(node_id)
        del self._busy[node_id]

    async def _crash_leader(self) -> None:
        node_id = self._leading()
        if node_id is None:
            return
        self._count("power cuts of leaders")
        self._busy[node_id] = None
        self.cluster.machines[node_id].cut_power(
            self.world.new_rng() if self._rng.random() < 0.5 else None, self._rng.random() < 0.3
        )
        await self._wait(0.0, 1.5)
        self._start_soon(node_id)
        del self._busy[node_id]

    async def _lag(self) -> None:
        """A broker cannot fetch from another for a while, one way or the other, or its disk is slow."""
        one, other = self._rng.sample(BROKERS, 2)
        self._count("lags")
        names = self.cluster.machines[one].name, self.cluster.machines[other].name
        if self._rng.random() < 0.7:
            self.world.note("network", f"cut from {names[0]} to {names[1]}")
            self.world.network.cut(*names)
            await self._wait(0.1, 1.5)
            self.world.note("network", f"healed from {names[0]} to {names[1]}")
            self.world.network.heal_both_ways(*names)
            return
        host = self.cluster.machines[one].host
        if host is not None:
            usual, host.max_work_seconds = host.max_work_seconds, 0.4
            await self._wait(0.2, 1.0)
            host.max_work_seconds = usual

    async def _elect(self) -> None:
        """An operator gives all partitions to their preferred leaders."""
        self._count("preferred elections")
        try:
            connection = await self._auditor.router.any_connection()
            await connection.ask(ElectLeadersRequest(0, None), 2)
        except Disconnected:
            pass

    async def _roll(self) -> None:
        """All nodes are stopped and started, one after the other."""
        self._count("rolling restarts")
        for node_id, machine in self.cluster.machines.items():
            if self._is_free(node_id):
                self._busy[node_id] = None
                await self._stop_and_start(node_id)
                while not machine.is_on or node_id in self._starting:
                    await asyncio.sleep(0.05)
                    if self._is_over:
                        return

    async def _wipe(self) -> None:
        """A disk is lost for good while everybody is in sync: never that of an only voter, and no second one before the
        first has caught up."""
        if self.replicated.all_in_sync():
            await self._replace_a_disk()
