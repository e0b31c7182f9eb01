"""One simulated run of a cluster with data, and what must hold when it is over.

Clients produce, read and commit offsets, an operator makes and deletes a topic, while one fault follows another, some
at the same time. Every seed has a mood, which says what happens often in it: the network, the power, the disks, or
restarts. A run goes on until it has seen what makes it worth anything (`Worth`), or for so long; one that has seen less
does not count.

Then the faults stop, and in some runs a disk is full for a while (`full_disks`). Within a minute every partition must
be led and all of its replicas in sync; all that was acknowledged is read, and the disks of all replicas are compared.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from odradek.errors import ErrorCode
from odradek.model import OFFSETS_TOPIC
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.cluster.chronicle import Chronicle
from tests.cluster.clusters import Cluster
from tests.cluster.damage_faults import DamageFaults
from tests.cluster.deletions import PAUSE_SECONDS, Deleter
from tests.cluster.echo import Echo
from tests.cluster.faults import LEADER_WITHIN, Fault
from tests.cluster.full_disks import FullDisks
from tests.cluster.kept import COMPACTED, DELETED, EXPIRING, LIMITED, OFFSETS
from tests.cluster.kept import SETTINGS as UPKEEP_SETTINGS
from tests.cluster.leader_faults import BROKERS, WHOLE_WITHIN
from tests.cluster.members import SETTINGS as MEMBER_SETTINGS
from tests.cluster.members import ClassicSeeker, ConsumerSeeker
from tests.cluster.operators import IN_DOUBT
from tests.cluster.replicated import ReplicatedLogs
from tests.cluster.traffic import Auditor, ClusterClient, ClusterPlay, Producer, Reader
from tests.cluster.unclean import UNCLEAN, Gambler
from tests.cluster.watch import Watch, WatchedLoop
from tests.simulation.connection import Disconnected, Violation
from tests.simulation.disk import check_disk
from tests.simulation.log_history import TopicHistory
from tests.simulation.trace import Trace
from tests.simulation.world import World

# Everything that takes seconds takes a part of one.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "150",
    "broker.session.timeout.ms": "450",
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
    "replica.fetch.backoff.ms": "50",
    "replica.fetch.wait.max.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "800",
    "replica.lag.time.max.ms": "300",
    "replica.socket.timeout.ms": "900",
}
MIN_ISR = 2
CONTROLLER = 4
QUIET_SECONDS = 0.2  # at the beginning, so that there is something to lose
MIN_SECONDS = 1.5
MAX_SECONDS = 6.0
TOPIC_RESOURCE, SET = 2, 0
REMADE = "remade"
KINDS = {"compacted": COMPACTED, "limited": LIMITED, "unclean": UNCLEAN}  # of the third topic
# In some seeds it is another one, by the rest that they leave.
KINDS_EVERY = 8
LAST_ACT_EVERY, LAST_ACT_FROM = 3, 1
RARER_KINDS = {5: ("deleted", DELETED), 6: ("expiring", EXPIRING)}


class Worth(NamedTuple):
    """The least that a seed must have seen to count."""

    acknowledged: int
    crashes: int
    elections: int
    truncations: int

    def reaches(self, other: "Worth") -> bool:
        return all(mine >= wanted for mine, wanted in zip(self, other, strict=True))


WANTED = Worth(acknowledged=40, crashes=1, elections=3, truncations=1)


class Remaker(ClusterClient):
    """Makes a topic, and deletes it again, by one name."""

    def __init__(self, play: ClusterPlay, name: str) -> None:
        super().__init__(play, name)
        self._topic: TopicHistory | None = None

    async def act(self) -> None:
        for _ in range(self.rng.randint(1, 8)):
            await self.pause(0.2)
            if self.play.is_over:
                return
        if self._topic is None:
            self._topic = await make_topic(self, REMADE, 1, 2)
            if self._topic is None and not self.play.is_over:
                await self._delete_unknown()
        else:
            self.play.logs.deleting(self._topic)
            for group in self.play.groups.groups.values():
                group.deleting_topic(REMADE)
            if await self._delete(DeleteTopicState(None, self._topic.id)):
                self.play.logs.deleted(self._topic)
                self.play.count("topics deleted")
                self._topic = None

    async def _delete_unknown(self) -> None:
        """It may be there, and nobody knows. It is deleted by its id, as always: by its name, a request that comes late
        would delete the next one."""
        response = await self.ask(MetadataRequest([MetadataRequestTopic(name=REMADE)]), 12)
        (found,) = response.topics
        if found.error_code == ErrorCode.NONE:
            await self._delete(DeleteTopicState(None, found.topic_id))

    async def _delete(self, topic: DeleteTopicState) -> bool:
        response = await self.ask(DeleteTopicsRequest([topic], timeout_ms=1_000))
        return response.responses[0].error_code in (
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
        )


async def make_topic(
    client: ClusterClient, name: str, partitions: int, min_isr: int, **configs: str
) -> TopicHistory | None:
    """Make one request; None if it cannot be made now. Raises Disconnected."""
    sent = client.play.world.now()
    configs["min_insync_replicas"] = str(min_isr)
    settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    request = CreateTopicsRequest([CreatableTopic(name, partitions, 3, configs=settings)], 1_000)
    (created,) = (await client.ask(request)).topics
    if created.error_code == ErrorCode.NONE:
        return client.play.logs.created(name, created.topic_id, sent, partitions)
    if created.error_code != ErrorCode.TOPIC_ALREADY_EXISTS and created.error_code not in IN_DOUBT:
        raise Violation(f"creating {name} was refused with {ErrorCode(created.error_code).name}")
    return None


async def insist_on_topic(
    client: ClusterClient, name: str, partitions: int, min_isr: int, **configs: str
) -> TopicHistory:
    """Try again until the topic is made."""
    while True:
        try:
            if topic := await make_topic(client, name, partitions, min_isr, **configs):
                return topic
        except Disconnected:
            pass
        await asyncio.sleep(0.1)


class Storm(DamageFaults, FullDisks):
    pace = 0.5
    brokers: tuple[int, ...] = BROKERS
    controller = CONTROLLER
    reader: type[Reader] = Reader
    plain: Mapping[str, str] = {}  # settings of topics that are neither compacted nor limited
    settings: Mapping[str, str] = {}  # of all nodes

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        loop = WatchedLoop()
        world = World(seed, trace, loop)
        rng = world.new_rng()
        controllers = rng.choice([BROKERS, BROKERS, (self.controller,)])
        settings = {**SETTINGS, **UPKEEP_SETTINGS, **MEMBER_SETTINGS, **self.settings}
        super().__init__(world, Cluster(world, controllers, self.brokers, settings), rng)
        self._has_last_act = seed % LAST_ACT_EVERY == LAST_ACT_FROM
        self.mood = rng.choice(["network", "network", "power", "disks", "restarts"])
        kind = rng.choice(list(KINDS))
        self.kind, self._configs = RARER_KINDS.get(seed % KINDS_EVERY, (kind, KINDS[kind]))
        self.chronicle = Chronicle(self.cluster)
        self.replicated = ReplicatedLogs(self.cluster, self.chronicle, MIN_ISR, has_upkeep=True)
        loop.watch = Watch(self.cluster, self.chronicle, self.replicated)
        self.play = play = ClusterPlay(world, self.cluster, self.replicated)
        pace = rng.choice([0.02, 0.05])
        self._producers = [Producer(play, f"producer{number}", pace) for number in (1, 2, 3)]
        self._gambler = Gambler(play, "gambler", pace)
        self._readers = [self.reader(play, f"reader{number}", 0.1) for number in (1, 2)]
        self._auditor = Auditor(play, "auditor", 0.2)
        self.elector = self._auditor.router
        consumers: list[ConsumerSeeker] = []
        self._clients: list[ClusterClient | ClassicSeeker | ConsumerSeeker] = [
            *self._producers,
            self._gambler,
            *self._readers,
            self._auditor,
            ClassicSeeker(play, "member1", 0.2),
            ClassicSeeker(play, "member2", 0.2),
            ConsumerSeeker(play, "consumer1", 0.1, consumers),
            ConsumerSeeker(play, "consumer2", 0.1, consumers),
            Remaker(play, "remaker"),
            Echo(play, "echo"),
        ]
        self._deleter = Deleter(play, "deleter", PAUSE_SECONDS) if self.kind == "deleted" else None
        if self._deleter is not None:
            self._clients.append(self._deleter)
        for machine in self.cluster.machines.values():
            machine.sync_seconds = rng.choice([0.0002, 0.0002, 0.004])
            machine.max_work_seconds = rng.choice([None, None, 0.03])

    @property
    def is_worth(self) -> bool:
        return self.worth.reaches(WANTED)

    @property
    def has_seen_enough(self) -> bool:
        """Storms of some kinds need more to count, and have no more time for it."""
        return self.worth.reaches(WANTED)

    @property
    def totals(self) -> dict[str, int]:
        return {
            **super().totals,
            "acknowledged batches": self.play.acknowledged,
            f"runs with a mood of {self.mood}": 1,
            f"runs with a topic that is {self.kind}": 1,
            **self.play.counts,
            **self.chronicle.counts,
            **self.replicated.counts,
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
            "power": [
                self._crash,
                self._lone_leader,
                self._crash_all,
                self._crash_at_shrink,
                self._damage_all,
            ],
            "disks": [
                self._fill_disk_for_long,
                self._wipe,
                self._damage,
                self._damage_all,
                self._lag,
                self._cut_link,
            ],
            "restarts": [self._stop, self._roll, self._stop, self._pause, self._slow_down],
        }
        return [*always, *moods[self.mood]]

    # --- the whole run ---

    async def carry_out(self) -> None:
        for node_id in self.cluster.machines:
            self._start_soon(node_id)
        await self._wait_for(self._all_serve, LEADER_WITHIN, "not all nodes serve at the beginning")
        await self._make_topics()
        await self._shrink_offsets()
        lives = [self.world.spawn(client.live()) for client in self._clients]
        await asyncio.sleep(QUIET_SECONDS)
        self._bag = [*self.bag(), self._crash_leader]
        self._rng.shuffle(self._bag)
        self._bag.append(self._strand_leader)  # comes first: nothing else makes logs diverge as often
        await self._suffer(MIN_SECONDS, MAX_SECONDS)
        if self._has_last_act and not self.replicated.without_candidates():
            await self._fill_disk_alone()
        self.play.is_over = True
        for task in lives:
            await task
        await self._check_end()

    async def _make_topics(self) -> None:
        # With one in-sync replica a record may be on one disk alone, and that may be lost. With three, two may be; but
        # then nothing is written while one disk is full, or while replicas are added.
        low = MIN_ISR if self.mood in ("disks", "rot") else 1
        if self.mood == "disks" and self.brokers == BROKERS and not self._has_last_act:
            low = self._rng.choice([MIN_ISR, 3])
        await self._make_topic("apple", 2, MIN_ISR, **self.plain)
        await self._make_topic("bear", 1, low, **self.plain)
        topic = await self._make_topic("cedar", 1, low, **self._configs)
        topic.may_be_compacted = self.kind == "compacted"
        topic.may_be_deleted = self.kind in ("limited", "deleted", "expiring")
        if self._deleter is not None:
            self._deleter.topic = topic
        if self.kind == "unclean":
            del self.play.logs.current["cedar"]  # what others expect of topics is not promised here
            self._gambler.topic = topic

    async def _shrink_offsets(self) -> None:
        """The segments of the offsets topic, so that it is compacted, too."""
        changes = [AlterableConfig(name, SET, value) for name, value in OFFSETS.items()]
        resource = AlterConfigsResource(TOPIC_RESOURCE, OFFSETS_TOPIC, changes)
        while True:
            try:
                if await self._auditor.router.coordinator_of("classic") is not None:
                    response = await self._auditor.ask(IncrementalAlterConfigsRequest([resource]))
                    if response.responses[0].error_code == ErrorCode.NONE:
                        return
            except Disconnected:
                pass
            await asyncio.sleep(0.02)

    async def _make_topic(self, name: str, partitions: int, min_isr: int, **configs: str) -> TopicHistory:
        return await insist_on_topic(self._producers[0], name, partitions, min_isr, **configs)

    async def _check_end(self) -> None:
        if self.replicated.without_candidates():
            self._count("runs whose end is left to an operator")
            return
        for producer in self._producers:
            await producer.settle()
        await self._become_whole()
        for topic in self.play.topics():
            for partition in topic.partitions:
                await self._readers[0].read_all(partition)
        await self._check_offsets()
        await self._wait_for(self.replicated.is_whole, WHOLE_WITHIN, "not all replicas stay in sync")
        self._gambler.count_lost()
        for machine in self.cluster.machines.values():
            machine.cut_power()
        self.replicated.check_disks()
        for broker_id in self.cluster.brokers:
            contents = self.replicated.disk_contents(broker_id)
            check_disk(contents, {f"{OFFSETS_TOPIC}-0", "__cluster_metadata-0", "cedar-0"})

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
