"""Reassignments as things that are done to three nodes under load (`record_faults`): replicas leave, and come back.

All partitions, those of the groups' offsets too, are moved to two of the nodes, and back to all three. Meanwhile the
third node is killed or paused, or the move is cancelled. Two in-sync replicas are enough for records to be acknowledged
all the time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from odradek.client.connection import ConnectionLost
from odradek.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tests.processes.nodes import Node, until
from tests.processes.record_faults import Stage

Target = Callable[[int], Sequence[int] | None]  # of a partition; None: cancel
DONE = {ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}


def move_away_and_back(stage: Stage) -> None:
    with drained(stage):
        pass


def move_to_a_killed_node(stage: Stage) -> None:
    with drained(stage) as (node, others):
        node.kill()
        reassign(stage, others[0], _around(stage))
        stage.await_records()
        node.start()


def move_to_a_paused_node(stage: Stage) -> None:
    """Until it is resumed, nothing that it should get is complete."""
    with drained(stage) as (node, others):
        node.pause()
        reassign(stage, others[0], lambda index: (node.id, others[index % 2].id))
        stage.await_records()
        node.resume()
        stage.await_in_sync()
        await_complete(others[0])


def cancel_a_move(stage: Stage) -> None:
    with drained(stage) as (node, others):
        node.pause()
        reassign(stage, others[0], lambda index: (node.id, others[index % 2].id))
        stage.await_records()
        reassign(stage, others[0], lambda index: None)
        await_complete(others[0])
        stage.await_records()
        node.resume()


MOVES = (move_away_and_back, move_to_a_killed_node, move_to_a_paused_node, cancel_a_move)


@contextmanager
def drained(stage: Stage) -> Iterator[tuple[Node, list[Node]]]:
    """A node that keeps no replica, and the two others. In the end every node has one of every partition."""
    node = stage.leader()
    others = stage.nodes.others(node)
    reassign(stage, others[0], lambda index: [one.id for one in (others[index % 2], others[(index + 1) % 2])])
    await_complete(others[0])
    until(lambda: _keeps_nothing(node), f"node {node.id} has deleted its logs")
    stage.await_records()
    yield node, others
    reassign(stage, others[0], _around(stage))
    await_complete(others[0])


def _around(stage: Stage) -> Target:
    """All nodes, so that each is the first for some partitions."""
    ids = [node.id for node in stage.nodes.brokers]
    return lambda index: ids[index % len(ids) :] + ids[: index % len(ids)]


def _keeps_nothing(node: Node) -> bool:
    names = [path.name for path in node.data_dir.iterdir() if path.is_dir()]
    return all(name.endswith("-delete") or name.startswith("__cluster_metadata") for name in names)


def reassign(stage: Stage, broker: Node, target: Target) -> None:
    """All partitions. The same request again does no harm."""
    topics = [
        ReassignableTopic(
            name,
            [
                ReassignablePartition(one.partition_index, _listed(target(one.partition_index)))
                for one in topic.partitions
            ],
        )
        for name, topic in broker.topics().items()
    ]
    request = AlterPartitionReassignmentsRequest(topics=topics)

    def is_accepted() -> bool:
        try:
            response = broker.ask(request, AlterPartitionReassignmentsResponse)
        except (ConnectionLost, KafkaError):
            return False
        return all(item.error_code in DONE for topic in response.responses for item in topic.partitions)

    until(is_accepted, "the controller accepts a reassignment")


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def await_complete(broker: Node) -> None:
    def is_complete() -> bool:
        try:
            response = broker.ask(
                ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse
            )
        except (ConnectionLost, KafkaError):
            return False
        return not response.error_code and not response.topics

    until(is_complete, "no reassignment is left")
