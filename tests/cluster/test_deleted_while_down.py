"""Topics that are deleted while a broker is down: its logs of them go once it has read of that, and not before."""

import pytest

from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.cluster.clusters import Cluster, until
from tests.cluster.test_reassignment import directories, have_a_log_set_aside, run
from tests.cluster.test_replication import TOPIC, produce
from tests.simulation.machine import DATA_DIR

SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "metadata.max.retention.bytes": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.retention.check.interval.ms": "2000",
}


async def delete(cluster: Cluster, name: str = TOPIC) -> None:
    response = await cluster.ask(1, DeleteTopicsRequest([DeleteTopicState(name)]), 6)
    assert [topic.error_code for topic in response.responses] == [0]


async def write_metadata(cluster: Cluster) -> None:
    for number in range(20):
        name = f"filler-{number}"
        await cluster.ask(1, CreateTopicsRequest([CreatableTopic(name, 1, 1)]), 7)
        await delete(cluster, name)


def start_of_metadata(cluster: Cluster, node_id: int) -> int:
    return cluster.machines[node_id].node.metadata.quorum.log.start_offset


def test_the_log_of_a_topic_that_was_deleted_meanwhile_is_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await produce(cluster, 1, b"one")
        await cluster.machines[2].stop()
        await delete(cluster)
        await cluster.start(2)
        assert not [name for name in directories(cluster, 2) if name.endswith("-stray")]
        await until(lambda: not directories(cluster, 2))

    run(11, scenario)


def test_also_if_the_deletion_is_in_a_snapshot_by_then() -> None:
    """The broker has the topic in its own snapshot: that the leader's is without it shows that it was deleted."""

    async def scenario(cluster: Cluster) -> None:
        await produce(cluster, 1, b"one")
        await write_metadata(cluster)
        await until(lambda: bool(cluster.machines[2].node.metadata.quorum.log.snapshots.ids))
        await cluster.machines[2].stop()
        end = cluster.image(1).offset
        await delete(cluster)
        await write_metadata(cluster)
        await until(lambda: start_of_metadata(cluster, 5) > end)
        await cluster.start(2)
        assert not [name for name in directories(cluster, 2) if name.endswith("-stray")]
        await until(lambda: not directories(cluster, 2))

    run(12, scenario, **{name.replace(".", "_"): value for name, value in SNAPSHOTS.items()})


def test_a_log_that_was_set_aside_goes_when_its_topic_is_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await have_a_log_set_aside(cluster)
        await delete(cluster)
        await until(lambda: not directories(cluster, 2))

    run(13, scenario)


@pytest.mark.parametrize("deletes", [False, True])
def test_a_broker_that_lost_its_metadata_keeps_the_logs_of_topics_that_it_does_not_know(
    deletes: bool,
) -> None:
    """Without its own earlier metadata it cannot tell a deleted topic from a lost one."""

    async def scenario(cluster: Cluster) -> None:
        await produce(cluster, 1, b"one")
        await write_metadata(cluster)
        await until(lambda: start_of_metadata(cluster, 5) > 0)
        await cluster.machines[2].stop()
        if deletes:
            end = cluster.image(1).offset
            await delete(cluster)
            await write_metadata(cluster)
            await until(lambda: start_of_metadata(cluster, 5) > end)
        cluster.machines[2].files.remove_tree(f"{DATA_DIR}/__cluster_metadata-0")
        await cluster.start(2)
        (left,) = directories(cluster, 2)
        assert left.endswith("-stray") is deletes

    run(14, scenario, **{name.replace(".", "_"): value for name, value in SNAPSHOTS.items()})
