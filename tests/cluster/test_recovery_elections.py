"""All in-sync replicas were killed: the active controller asks for their logs, and elects by what it is told."""

import asyncio
from typing import Any

import pytest

from odradek.api import get_replica_log_info
from odradek.errors import ErrorCode
from odradek.metadata.image import LOST_DIRECTORY, NO_LEADER
from odradek.services.cluster import recovery_elections
from odradek.services.cluster.recovery_elections import RecoveryElections
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.elect_leaders import ElectLeadersRequest
from odradek.wire.messages.elect_leaders import TopicPartitions as Elected
from odradek.wire.messages.get_replica_log_info import GetReplicaLogInfoRequest, TopicPartitions
from tests.cluster import test_controller_duties as duties
from tests.cluster.clusters import Cluster, new_cluster, until
from tests.cluster.test_controller_duties import TOPIC, leaders, partitions
from tests.cluster.test_replication import produce, replica
from tests.simulation.machine import DATA_DIR

BROKERS = (1, 2, 3)
CHECKPOINTS = {"replica.high.watermark.checkpoint.interval.ms": "500"}


async def fill(cluster: Cluster) -> int:
    """Ten records in the first partition of the topic; returns its leader."""
    await until(lambda: all(TOPIC in cluster.image(broker_id).topics for broker_id in BROKERS))
    leader: int = partitions(cluster)[0].leader
    for number in range(10):
        assert (await produce(cluster, leader, b"%d" % number)).error_code == 0
    return leader


def kill_all(cluster: Cluster) -> None:
    for broker_id in BROKERS:
        cluster.machines[broker_id].cut_power()


def cut_log(cluster: Cluster, broker_id: int) -> None:
    """To two thirds, in the middle of a batch."""
    path = f"{DATA_DIR}/{TOPIC}-0/{0:020d}.log"
    file = cluster.machines[broker_id].files.file(path)
    file.truncate(file.size() * 2 // 3)
    file.sync()


async def await_whole(cluster: Cluster) -> None:
    await until(lambda: NO_LEADER not in leaders(cluster))
    await until(lambda: all(set(item.isr) == set(BROKERS) for item in partitions(cluster)))
    assert {replica(cluster, broker_id).log.end_offset for broker_id in BROKERS} == {10}


@pytest.mark.parametrize("damaged", BROKERS)
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_the_node_with_a_damaged_log_starts_last(damaged: int, has_checkpoint: bool) -> None:
    """The outcome is the same whether its broker knows of the damage or not."""

    async def scenario(cluster: Cluster) -> None:
        await fill(cluster)
        if has_checkpoint:
            await asyncio.sleep(1)
        kill_all(cluster)
        cut_log(cluster, damaged)
        await cluster.start(*(broker_id for broker_id in BROKERS if broker_id != damaged))
        await cluster.start(damaged)
        await await_whole(cluster)
        await until(
            lambda: not replica(cluster, damaged).log.missing_until
        )  # once it knows that it is in sync

    duties.run(20 + damaged, scenario, settings=CHECKPOINTS)


def test_a_log_that_is_damaged_after_a_clean_stop_does_not_lead() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await fill(cluster)
        others = [broker_id for broker_id in BROKERS if broker_id != leader]
        for broker_id in (*others, leader):
            await cluster.machines[broker_id].stop()
        await until(lambda: leaders(cluster) == {NO_LEADER})
        assert leader in partitions(cluster)[0].eligible_leader_replicas
        cut_log(cluster, leader)
        await cluster.start(leader)
        first = partitions(cluster)[0]
        assert (first.leader, first.last_known_elr) == (NO_LEADER, (leader,))
        await cluster.start(*others)
        await await_whole(cluster)

    duties.run(30, scenario)


def test_damaged_logs_wait_for_an_operator() -> None:
    """More than the promise covers: the two that are known to have had everything are damaged."""

    async def scenario(cluster: Cluster) -> None:
        await fill(cluster)
        await asyncio.sleep(1)
        kill_all(cluster)
        await until(lambda: leaders(cluster) == {NO_LEADER})
        first = partitions(cluster)[0]
        (whole,) = set(BROKERS) - set(first.eligible_leader_replicas)
        for broker_id in first.eligible_leader_replicas:
            cut_log(cluster, broker_id)
        await cluster.start(*BROKERS)
        await until(lambda: partitions(cluster)[0].directories.count(LOST_DIRECTORY) == 2)
        assert partitions(cluster)[0].leader == NO_LEADER
        response = await cluster.ask(1, ElectLeadersRequest(1, [Elected(TOPIC, [0])]), 2)
        (result,) = response.replica_election_results[0].partition_result
        assert result.error_code == ErrorCode.NONE
        await until(lambda: partitions(cluster)[0].leader == whole)
        await await_whole(cluster)

    duties.run(31, scenario, settings=CHECKPOINTS)


def test_a_broker_that_does_not_tell_is_asked_again_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ask, silent = RecoveryElections._ask, set(BROKERS)

    async def ask_some(elections: Any, broker: Any, request: Any) -> Any:
        if broker.id in silent:
            raise OSError("silent")
        return await ask(elections, broker, request)

    monkeypatch.setattr(RecoveryElections, "_ask", ask_some)

    async def scenario(cluster: Cluster) -> None:
        await fill(cluster)
        kill_all(cluster)
        await cluster.start(*BROKERS)
        await asyncio.sleep(8)
        assert leaders(cluster) == {NO_LEADER}
        missing = {broker_id for item in partitions(cluster) for broker_id in item.last_known_elr}
        (line,) = [text for text in caplog.messages if "without a leader" in text]
        assert f"brokers {', '.join(map(str, sorted(missing)))} have not told where their logs end" in line
        assert "odradek topic elect-leaders TOPIC --unclean" in line
        silent.clear()
        await await_whole(cluster)

    recovery_elections.log.addHandler(caplog.handler)  # a simulation keeps its lines from all others
    try:
        duties.run(32, scenario)
    finally:
        recovery_elections.log.removeHandler(caplog.handler)


def test_partitions_are_asked_for_and_elected_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_elections, "MAX_PARTITIONS", 1)
    monkeypatch.setattr(recovery_elections, "PARTITIONS_AT_ONCE", 1)

    async def scenario(cluster: Cluster) -> None:
        await fill(cluster)
        kill_all(cluster)
        await cluster.start(*BROKERS)
        await await_whole(cluster)

    duties.run(33, scenario)


def test_the_next_controller_asks_again() -> None:
    world, cluster = new_cluster(34)

    async def scenario() -> None:
        await cluster.start()
        settings = [CreatableTopicConfig("min.insync.replicas", "2")]
        await cluster.ask(1, CreateTopicsRequest([CreatableTopic(TOPIC, 3, 3, configs=settings)]), 7)
        for _ in range(3):
            kill_all(cluster)
            await cluster.start()
        await until(lambda: bool(cluster.leaders()))
        image = cluster.machines[cluster.leaders()[0]].node.metadata  # type: ignore[union-attr]
        await until(
            lambda: all(
                item.leader != NO_LEADER and len(item.isr) == 3
                for item in image.image.topics[TOPIC].partitions.values()
            )
        )

    world.run(scenario())


def test_the_only_replica_of_a_partition_leads_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*arguments: Any) -> Any:
        raise AssertionError("nobody has to be asked")

    monkeypatch.setattr(RecoveryElections, "_ask_about", refuse)
    world, cluster = new_cluster(35, controllers=(1,), brokers=(1,))

    async def scenario() -> None:
        await cluster.start()
        await cluster.ask(1, CreateTopicsRequest([CreatableTopic(TOPIC, 3, 1)]), 7)
        cluster.machines[1].cut_power()
        await cluster.start()
        assert {item.leader for item in cluster.image(1).topics[TOPIC].partitions.values()} == {1}

    world.run(scenario())


def test_a_broker_tells_where_its_logs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await fill(cluster)
        topic = cluster.image(leader).topics[TOPIC]
        unknown = cluster.image(leader).topics["u"].id.__class__(int=1)
        request = GetReplicaLogInfoRequest([TopicPartitions(topic.id, [0, 9]), TopicPartitions(unknown, [0])])
        response = await cluster.ask(leader, request, 0)
        assert response.broker_epoch == cluster.image(leader).brokers[leader].epoch
        assert not response.has_more_data
        (first, missing), (other,) = (
            item.partition_log_info for item in response.topic_partition_log_info_list
        )
        epoch = topic.partitions[0].leader_epoch
        assert (first.log_end_offset, first.last_written_leader_epoch) == (10, epoch)
        assert (first.current_leader_epoch, first.error_code) == (epoch, ErrorCode.NONE)
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert other.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        replica(cluster, leader).log.missing_until = 11
        monkeypatch.setattr(get_replica_log_info, "MAX_PARTITIONS", 1)
        response = await cluster.ask(leader, request, 0)
        (only,) = response.topic_partition_log_info_list[0].partition_log_info
        assert (only.error_code, response.has_more_data) == (ErrorCode.KAFKA_STORAGE_ERROR, True)

    duties.run(36, scenario)
