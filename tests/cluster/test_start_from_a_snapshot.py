"""A broker that starts from its own snapshot of the metadata, which is older than what was committed since."""

from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from tests.cluster.clusters import Cluster, until
from tests.cluster.test_deleted_while_down import SNAPSHOTS, delete, write_metadata
from tests.cluster.test_reassignment import directories, run
from tests.cluster.test_replication import TOPIC, log_bytes, produce, replica


def test_the_log_of_a_topic_that_is_younger_than_the_snapshot_is_opened() -> None:
    """The leader of the quorum is still the same, so its epoch does not show that the snapshot is old."""

    async def scenario(cluster: Cluster) -> None:
        machine = cluster.machines[2]
        await delete(cluster)
        await until(lambda: TOPIC not in cluster.image(2).topics and not directories(cluster, 2))
        await write_metadata(cluster)
        await until(lambda: bool(machine.node.metadata.quorum.log.snapshots.ids))
        topic = CreatableTopic(TOPIC, -1, -1, [CreatableReplicaAssignment(0, [2])])
        await cluster.ask(1, CreateTopicsRequest([topic]), 7)
        await until(lambda: TOPIC in cluster.image(2).topics)
        await until(lambda: replica(cluster, 2) is not None and replica(cluster, 2).leader is not None)
        assert (await produce(cluster, 2, b"the only copy")).error_code == 0
        before = log_bytes(cluster, 2)
        await machine.stop()
        await cluster.start(2)
        assert directories(cluster, 2) == [f"{TOPIC}-0"]
        assert log_bytes(cluster, 2) == before

    run(21, scenario, **{name.replace(".", "_"): value for name, value in SNAPSHOTS.items()})
