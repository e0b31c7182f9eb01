"""Tests of what a cluster promises, as short scripts on simulated machines."""

import asyncio
from random import Random
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.metadata import records as r
from odradek.metadata.delta import apply_records
from odradek.metadata.formatting import format_directory
from odradek.metadata.image import MetadataImage
from odradek.metadata.log import MetadataLog
from odradek.metadata.mapping import with_changes
from odradek.metadata.properties import MetaProperties
from odradek.metadata.snapshot import digest
from odradek.raft.election import QUORUM_STATE_FILE
from odradek.raft.store import METADATA_PARTITION
from odradek.storage.config import LogConfig
from odradek.wire.messages import add_raft_voter
from odradek.wire.messages.add_raft_voter import AddRaftVoterRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from tests.cluster.clusters import CLUSTER_ID, CONTROLLER_PORT, Cluster, directory_id, new_cluster
from tests.cluster.plan import SETTINGS
from tests.simulation.machine import DATA_DIR, CannotStart
from tests.simulation.trace import Trace
from tests.simulation.world import World

NO_SNAPSHOTS = {**SETTINGS, "metadata.log.max.record.bytes.between.snapshots": str(1 << 20)}
ELECTION_SECONDS = int(SETTINGS["controller.quorum.fetch.timeout.ms"]) / 1000


def create(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1) for name in names], timeout_ms=1_000)


async def until(world: World, condition: Any, seconds: float = 10.0) -> None:
    end = world.now() + seconds
    while not condition():
        assert world.now() < end, "it does not happen"
        await asyncio.sleep(0.01)


def others_than(cluster: Cluster, node_id: int) -> list[int]:
    return [other for other in cluster.machines if other != node_id]


def cut_off(cluster: Cluster, node_id: int) -> None:
    for other in others_than(cluster, node_id):
        cluster.world.network.cut_both_ways(cluster.machines[node_id].name, cluster.machines[other].name)


def quorum_of(cluster: Cluster, node_id: int) -> Any:
    node = cluster.machines[node_id].node
    assert node is not None
    return node.metadata.quorum


def test_topics_are_created_on_while_the_controller_fails_over() -> None:
    world, cluster = new_cluster(1, settings=SETTINGS)
    acknowledged: list[str] = []

    async def create_many(node_id: int) -> None:
        for number in range(20):
            name = f"topic-{node_id}-{number}"
            (response,) = (await cluster.ask(node_id, create(name), 7)).topics
            if not response.error_code:
                acknowledged.append(name)

    async def scenario() -> None:
        await cluster.start()
        (leader,) = cluster.leaders()
        others = others_than(cluster, leader)
        work = [world.spawn(create_many(node_id)) for node_id in others]
        await asyncio.sleep(0.1)
        before = len(acknowledged)
        cluster.machines[leader].cut_power(Random(1))
        for task in work:
            await task
        assert 0 < before < len(acknowledged)
        await cluster.start(leader)
        await until(world, lambda: len({cluster.image(node_id).offset for node_id in cluster.machines}) == 1)
        for node_id in cluster.machines:
            assert set(acknowledged) <= set(cluster.image(node_id).topics)
        assert len({digest(cluster.image(node_id)) for node_id in cluster.machines}) == 1

    world.run(scenario())


def test_a_leader_without_its_quorum_answers_not_controller_and_undoes_what_it_had_appended() -> None:
    world, cluster = new_cluster(2, settings=SETTINGS)

    async def scenario() -> None:
        await cluster.start()
        (leader,) = cluster.leaders()
        other = others_than(cluster, leader)[0]
        cut_off(cluster, leader)
        # One is appended and not committed; that it exists already must not be said either.
        asked = [world.spawn(check_refused(leader, "apple")) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert "apple" in quorum_of(cluster, leader).log.newest.topics
        assert "apple" not in cluster.image(leader).topics
        for task in asked:
            await task
        assert not quorum_of(cluster, leader).is_active
        await until(world, lambda: any(node_id != leader for node_id in cluster.leaders()))
        (response,) = (await cluster.ask(other, create("bear"), 7)).topics
        assert response.error_code == ErrorCode.NONE
        world.network.heal_all()
        await until(world, lambda: "bear" in cluster.image(leader).topics)
        assert "apple" not in cluster.image(leader).topics
        log = quorum_of(cluster, leader).log
        assert log.newest is log.image

    async def check_refused(leader: int, name: str) -> None:
        connection = await world.connect("alice", cluster.machines[leader], CONTROLLER_PORT)
        (response,) = (await connection.ask(create(name), 7)).topics
        assert response.error_code == ErrorCode.NOT_CONTROLLER

    world.run(scenario())


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_controller_whose_sync_fails_stops_and_nothing_acknowledged_is_lost(is_leader: bool) -> None:
    world, cluster = new_cluster(7, controllers=(1, 2, 3), brokers=(4, 5), settings=SETTINGS)
    acknowledged: list[str] = []

    async def create_some(names: list[str]) -> None:
        for name in names:
            (response,) = (await cluster.ask(4, create(name), 7)).topics
            if not response.error_code:
                acknowledged.append(name)

    async def scenario() -> None:
        await cluster.start()
        await create_some(["before"])
        (leader,) = cluster.leaders()
        failing = leader if is_leader else next(node for node in cluster.controllers if node != leader)
        machine = cluster.machines[failing]
        machine.files.fail_syncs = 1
        await create_some(["during-0", "during-1", "during-2"])
        await until(world, lambda: not machine.is_on)
        assert failing not in cluster.leaders()
        await create_some(["after"])
        await machine.start()
        await until(world, lambda: set(acknowledged) <= set(cluster.image(failing).topics))

    world.run(scenario())
    assert {"before", "after"} <= set(acknowledged)


def test_a_node_of_another_cluster_is_refused_with_a_word() -> None:
    trace = Trace()
    world = World(3, trace)
    cluster = Cluster(world, settings=SETTINGS)
    stranger = cluster.machines[3]
    stranger.replace_disk()
    format_directory(stranger.files, DATA_DIR, MetaProperties("another-cluster", 3, directory_id(3)), None)

    async def scenario() -> None:
        for node_id in (1, 2):
            world.spawn(cluster.machines[node_id].start())
        world.spawn(stranger.start())
        await until(world, cluster.leaders)
        await asyncio.sleep(30.0)
        assert cluster.image(3).offset == -1

    world.run(scenario())
    lines = [line.split("log        ")[1] for line in trace.lines if "foreign_nodes" in line]
    asking = [line for line in lines if line.startswith("ERROR [node 3]")]
    assert "the bootstrap server at node1:9093 belongs to another cluster than this node" in asking[0]
    assert "asked again every 10 s. Check controller.quorum.bootstrap.servers" in asking[0]
    asked = [line for line in lines if line.startswith(("WARNING [node 1]", "WARNING [node 2]"))]
    assert len(asked) == 2 and all('belongs to cluster "another-cluster", but asks' in line for line in asked)
    assert len(lines) == len(set(lines)), "each is said once"


def test_a_leader_that_stops_cleanly_hands_over_before_anybody_misses_it() -> None:
    world, cluster = new_cluster(4, controllers=(1, 2, 3), brokers=(101,), settings=SETTINGS)

    async def scenario() -> None:
        await cluster.start()
        (leader,) = cluster.leaders()
        began = world.now()
        await cluster.machines[leader].stop()
        await until(world, cluster.leaders)
        assert world.now() - began < ELECTION_SECONDS
        assert cluster.leaders() != [leader]

    world.run(scenario())


def test_a_quorum_without_work_keeps_its_leader_however_short_its_timeouts_are() -> None:
    timeouts = {"controller.quorum.fetch.timeout.ms": "400", "controller.quorum.request.timeout.ms": "400"}
    world, cluster = new_cluster(9, settings=timeouts)

    async def scenario() -> None:
        await cluster.start()
        epoch = quorum_of(cluster, 1).epoch
        await asyncio.sleep(60.0)
        assert {quorum_of(cluster, node_id).epoch for node_id in cluster.machines} == {epoch}

    world.run(scenario())


def test_a_broker_that_comes_late_learns_everything_from_a_snapshot() -> None:
    settings = {**SETTINGS, "metadata.max.retention.bytes": "1"}
    world, cluster = new_cluster(5, controllers=(1, 2, 3), brokers=(1, 101), settings=settings)

    async def scenario() -> None:
        await cluster.start(1, 2, 3)
        for number in range(30):
            await cluster.ask(1, create(f"topic-{number}"), 7)
        await until(world, lambda: all(quorum_of(cluster, node).log.start_offset > 20 for node in (1, 2, 3)))
        await cluster.start(101)
        log = quorum_of(cluster, 101).log
        assert log.start_offset > 20 and not log.raft.is_voter
        (leader,) = cluster.leaders()
        await until(world, lambda: cluster.image(101).offset == cluster.image(leader).offset)
        assert digest(cluster.image(101)) == digest(cluster.image(leader))

    world.run(scenario())


def test_a_controller_on_a_new_disk_does_not_vote_until_it_is_added_again() -> None:
    world, cluster = new_cluster(6, settings=SETTINGS)

    async def scenario() -> None:
        await cluster.start()
        (leader,) = cluster.leaders()
        lost, third = others_than(cluster, leader)
        old = cluster.key(lost)
        cluster.machines[lost].cut_power()
        cluster.replace_disk(lost)
        await cluster.start(lost)
        cluster.machines[leader].cut_power()
        await asyncio.sleep(5.0)
        assert cluster.leaders() == []  # of three voters one is there, and one that is none any more
        await cluster.start(leader)
        await until(world, cluster.leaders)
        remove = RemoveRaftVoterRequest(CLUSTER_ID, lost, old.directory_id)
        assert (await cluster.ask(third, remove, 0)).error_code == ErrorCode.NONE
        assert not quorum_of(cluster, lost).log.raft.is_voter
        listener = add_raft_voter.Listener("CONTROLLER", f"node{lost}", CONTROLLER_PORT)
        key = cluster.key(lost)
        add = AddRaftVoterRequest(CLUSTER_ID, 1_000, lost, key.directory_id, [listener])
        while (await cluster.ask(third, add, 1)).error_code == ErrorCode.REQUEST_TIMED_OUT:
            await asyncio.sleep(0.1)
        await until(world, lambda: quorum_of(cluster, lost).log.raft.is_voter)
        cluster.machines[third].cut_power()
        await until(world, lambda: any(node_id != third for node_id in cluster.leaders()))

    world.run(scenario())


def test_a_corrupt_quorum_state_stops_the_start_and_says_what_to_do() -> None:
    world, cluster = new_cluster(7, settings=SETTINGS)

    async def scenario() -> None:
        await cluster.start()
        machine = cluster.machines[2]
        await machine.stop()
        path = f"{DATA_DIR}/{METADATA_PARTITION}/{QUORUM_STATE_FILE}"
        machine.files.file(path).truncate(5)
        with pytest.raises(CannotStart, match=r"quorum-state cannot be trusted: .*Restore it from a backup"):
            await machine.start()

    world.run(scenario())


def test_a_directory_of_an_older_release_is_upgraded_with_a_word() -> None:
    trace = Trace()
    world = World(8, trace)
    cluster = Cluster(world, controllers=(1,), brokers=(1,), settings=SETTINGS)
    machine = cluster.machines[1]
    machine.replace_disk()
    properties = MetaProperties(CLUSTER_ID, 1, directory_id(1))
    format_directory(machine.files, DATA_DIR, properties)
    older = MetadataLog.open(machine.files, DATA_DIR, properties, LogConfig(), 0)
    older.commit([r.FeatureLevelRecord("metadata.version", 25)], 0)
    assert older.raft.log.voters.kraft_version == 0
    older.close()

    async def scenario() -> None:
        await cluster.start()
        voters = quorum_of(cluster, 1).log.raft.log.voters
        assert voters.kraft_version == 1
        assert [voter.key for voter in voters.last] == [cluster.key(1)]
        assert cluster.image(1).features["metadata.version"] == 25

    world.run(scenario())
    assert any("kraft.version 1" in line for line in trace.lines if "  log  " in line)


def test_a_change_costs_what_it_changes_among_ten_thousand_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted, not timed: how many entries of mappings are copied for one more topic."""
    import odradek.metadata.delta as delta

    topics = 1_000
    image = MetadataImage(CLUSTER_ID)
    for number in range(topics):
        topic_id = directory_id(number)
        records: list[r.MetadataRecord] = [r.TopicRecord(f"topic-{number}", topic_id)]
        records += [
            r.PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1)
            for index in range(10)
        ]
        image, _ = apply_records(image, records, image.offset + len(records), 1)
    changed: list[int] = []

    def counting(before: Any, changes: Any) -> Any:
        changed.append(len(changes))
        return with_changes(before, changes)

    monkeypatch.setattr(delta, "with_changes", counting)
    new = directory_id(topics)
    added = [
        r.TopicRecord("one-more", new),
        r.PartitionRecord(partition_id=0, topic_id=new, replicas=[1], isr=[1]),
    ]
    after, difference = apply_records(image, added, image.offset + 2, 1)
    assert [topic.name for topic in difference.created_topics] == ["one-more"]
    assert sum(changed) <= 10
    assert after.topics["topic-7"] is image.topics["topic-7"]
    assert len(after.topics) == topics + 1
