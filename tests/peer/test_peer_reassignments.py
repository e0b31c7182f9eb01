"""Partitions are moved on three nodes of Kafka and on three of ours, by the same requests and by Kafka's own tool.

The tests of this module share the two clusters. Where a reassignment must not complete, the node that should get a new
replica stands still.
"""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odradek.wire.messages import alter_partition_reassignments as alter
from odradek.wire.messages import describe_cluster
from odradek.wire.messages import list_partition_reassignments as listing
from tests.peer.exchange import Cluster, compare
from tests.peer.test_peer_cluster import (
    ACCEPTED,
    TIMEOUT_MS,
    VICTIM,
    Both,
    await_isr,
    both,
    check_alike,
    connect,
    create_quietly,
    describe,
    describe_request,
    elect,
    pause,
    produce_to,
)
from tools.peer.kafka import run_tool

__all__ = ["both"]  # the fixture

# Kafka goes on naming replicas that have left the partition as eligible leaders.
LEFT_BUT_ELIGIBLE = r"moved\.topics\[m-(fewer|only)\].*eligible_leader_replicas\[\d\]: only Kafka has"
# A target without new brokers that replaces another: Kafka goes on with what the one before added or removed.
REPLACED = (
    r"Reassignments: (back\.topics\[w-back\]|to all\.topics\[w-all\].*removing_replicas\[0\]): only Kafka has"
)
TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
PREFERRED = 0


def move_request(name: str, target: list[int] | None, index: int = 0, allow: bool = True) -> Any:
    topic = alter.ReassignableTopic(name, [alter.ReassignablePartition(index, target)])
    return alter.AlterPartitionReassignmentsRequest(TIMEOUT_MS, allow, [topic])


def move(
    side: Cluster,
    name: str,
    target: list[int] | None,
    label: str = "",
    version: int | None = None,
    **more: Any,
) -> None:
    side.ask(move_request(name, target, **more), version, label=f"{label} {name} {target}")


def ongoing(side: Cluster, label: str, topics: Any = None) -> None:
    side.ask(listing.ListPartitionReassignmentsRequest(TIMEOUT_MS, topics), label=label)


def await_replicas(side: Cluster, name: str, *replicas: int) -> None:
    """Until the partition is there, in sync, and known to node 1."""

    def is_there(response: Any) -> bool:
        (partition,) = response.topics[0].partitions
        return partition.replica_nodes == list(replicas) and set(partition.isr_nodes) == set(replicas)

    side.until(describe_request(name), is_there)
    side.until(
        listing.ListPartitionReassignmentsRequest(TIMEOUT_MS, None),
        lambda response: name not in [topic.name for topic in response.topics],
    )


# Requests


def test_what_is_refused_is_refused_alike(both: Both) -> None:
    def script(side: Cluster) -> None:
        create_quietly(side, "r-topic", [1, 2], [2, 3])
        for version in (0, 1):
            for target in ([], [1, 1], [1, 9], [1, -1], None, [1, 2]):
                move(side, "r-topic", target, f"v{version}", version)
            move(side, "r-unknown", [1], f"v{version}", version)
            move(side, "r-unknown", None, f"v{version}", version)
            move(side, "r-topic", [1], f"v{version}, no such partition", version, index=7)
        for target in ([1], [1, 2, 3], [1, 1, 2], [], [9]):
            move(side, "r-topic", target, "with the same factor", 1, allow=False)
        topics = [
            alter.ReassignableTopic(
                "r-topic", [alter.ReassignablePartition(1, [9]), alter.ReassignablePartition(0, [1, 2])]
            ),
            alter.ReassignableTopic("r-unknown", [alter.ReassignablePartition(0, [1])]),
        ]
        side.ask(alter.AlterPartitionReassignmentsRequest(TIMEOUT_MS, True, topics), label="several")
        side.ask(alter.AlterPartitionReassignmentsRequest(TIMEOUT_MS, True, []), label="nothing")
        ongoing(side, "all, and there are none")
        ongoing(side, "of no topic", [])
        ongoing(
            side,
            "of some topics",
            [
                listing.ListPartitionReassignmentsTopics("r-topic", [0, 1, 7]),
                listing.ListPartitionReassignmentsTopics("r-unknown", [0]),
            ],
        )
        describe(side, "r-topic")

    check_alike(both, script)


def test_partitions_move_alike(both: Both) -> None:
    steps = [
        ("m-other", [1, 2], [2, 3]),  # another leader
        ("m-stays", [1, 2], [1, 3]),  # the same leader
        ("m-more", [1], [1, 2, 3]),
        ("m-fewer", [1, 2, 3], [3]),
        ("m-order", [1, 2, 3], [3, 2, 1]),
        ("m-only", [1], [3]),
    ]

    def script(side: Cluster) -> None:
        for name, before, after in steps:
            create_quietly(side, name, before)
            produce_to(side, name, -1, name)
            move(side, name, after)
            await_replicas(side, name, *after)
            describe(side, name, label=f"{name}, moved")
        elect(side, PREFERRED, "a preferred leader by its new place", **{"m-order": [0]})
        side.until(describe_request("m-order"), lambda found: found.topics[0].partitions[0].leader_id == 3)
        describe(side, "m-order", label="led by its new first replica")
        ongoing(side, "all are complete")

    check_alike(both, script, LEFT_BUT_ELIGIBLE)


@contextmanager
def standing_still(both: Both, sides: list[Cluster]) -> Iterator[None]:
    """The third node of each cluster."""
    victims = both.kafka.processes[VICTIM].pid, both.ours[VICTIM].process.pid
    for victim in victims:
        pause(victim)
    try:
        yield
    finally:
        for victim in victims:
            os.kill(victim, signal.SIGCONT)


def await_begun(side: Cluster, *names: str) -> None:
    """Node 1 may hear of it after the controller has answered."""
    side.until(
        describe_request(*names),
        lambda response: all(VICTIM in topic.partitions[0].replica_nodes for topic in response.topics),
    )


def await_cancelled(side: Cluster, name: str) -> None:
    """Node 1 may hear of it after the controller has answered."""
    side.until(
        describe_request(name),
        lambda response: set(response.topics[0].partitions[0].replica_nodes) == {1, 2},
    )


def test_a_move_that_takes_its_time_is_listed_replaced_and_cancelled_alike(both: Both) -> None:
    topics = ("w-cancel", "w-replace", "w-more", "w-back", "w-all")

    def prepare(side: Cluster) -> None:
        for name in topics:
            create_quietly(side, name, [1, 2])
        create_quietly(side, "w-probe", [1, VICTIM])

    def script(side: Cluster) -> None:
        await_isr(side, "w-probe", [{1}])  # it was noticed
        for name in topics:
            move(side, name, [VICTIM, 1], "begun", 1)
        await_begun(side, *topics)
        ongoing(side, "all")
        ongoing(side, "one of them", [listing.ListPartitionReassignmentsTopics("w-cancel", [0, 1])])
        describe(side, *topics, label="on their way")
        produce_to(side, "w-cancel", -1, "acks=all on its way")
        for target in ([1, 2, 3], [2], [VICTIM, 2]):
            move(side, "w-replace", target, "with the same factor", 1, allow=False)
        ongoing(side, "replaced", [listing.ListPartitionReassignmentsTopics("w-replace", [0])])
        move(side, "w-more", [1, VICTIM, 2], "the same ones in another order")
        move(side, "w-cancel", [VICTIM, 1], "the same target again")
        move(side, "w-cancel", None)
        move(side, "w-cancel", None)
        await_cancelled(side, "w-cancel")
        describe(side, "w-cancel", label="cancelled")
        for name in ("w-replace", "w-more"):
            move(side, name, None, "cancelled")
            await_cancelled(side, name)
            describe(side, name, label="cancelled")
        move(side, "w-back", [1, 2], "the original replicas")
        ongoing(side, "back", [listing.ListPartitionReassignmentsTopics("w-back", [0])])
        move(side, "w-all", [1, VICTIM, 2], "all replicas")
        ongoing(side, "to all", [listing.ListPartitionReassignmentsTopics("w-all", [0])])

    sides = connect(both)
    for side in sides:
        prepare(side)
    with standing_still(both, sides):
        for side in sides:
            script(side)
    found = [line for line in compare(*sides) if not re.search("|".join((*ACCEPTED, REPLACED)), line)]
    for side in sides:
        for name in topics:
            side.ask_quietly(move_request(name, None))
        await_isr(side, "w-probe", [{1, VICTIM}])
        side.close()
    assert not found, "\n" + "\n".join(found)


# Kafka's tool


def plan(home: Path, name: str, **replicas: list[int]) -> Path:
    file = home / f"{name}.json"
    partitions = [{"topic": topic, "partition": 0, "replicas": ids} for topic, ids in replicas.items()]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return file


def tool(bootstrap: str, *arguments: str) -> str:
    done = run_tool(TOOL, "--bootstrap-server", bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafkas_tool_moves_our_partitions(both: Both, tmp_path: Path) -> None:
    bootstrap = both.ours[1].address("PLAINTEXT")
    _, side = connect(both)
    for name in ("tool", "held"):
        create_quietly(side, name, [1, 2])
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": "tool"}]}))
    generated = tool(
        bootstrap, "--generate", "--topics-to-move-json-file", str(wanted), "--broker-list", "2,3"
    )
    assert '"replicas":[1,2]' in generated and "Proposed partition reassignment" in generated

    forward = plan(tmp_path, "forward", tool=[2, 3])
    assert "Successfully started" in tool(bootstrap, "--execute", "--reassignment-json-file", str(forward))
    await_replicas(side, "tool", 2, 3)
    verified = tool(bootstrap, "--verify", "--reassignment-json-file", str(forward))
    assert "tool-0 is completed" in verified, verified

    held = plan(tmp_path, "held", held=[1, VICTIM])
    pause(both.ours[VICTIM].process.pid)
    try:
        side.ask_quietly(move_request("held", [1, VICTIM]))  # the tool refuses a broker that does not respond
        side.until(  # any broker that is not fenced may be named as the controller, which the tool asks
            describe_cluster.DescribeClusterRequest(),
            lambda found: VICTIM not in {broker.broker_id for broker in found.brokers},
        )
        assert "held-0: replicas: 1,3,2. adding: 3. removing: 2." in tool(bootstrap, "--list")
        verified = tool(bootstrap, "--verify", "--reassignment-json-file", str(held), "--preserve-throttles")
        assert "held-0 is still in progress" in verified, verified
        cancelled = tool(bootstrap, "--cancel", "--reassignment-json-file", str(held), "--preserve-throttles")
        assert "Successfully cancelled partition reassignment for: held-0" in cancelled, cancelled
    finally:
        os.kill(both.ours[VICTIM].process.pid, signal.SIGCONT)
    await_replicas(side, "held", 1, 2)
    assert "No partition reassignments found." in tool(bootstrap, "--list")
    side.close()
