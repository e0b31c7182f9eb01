"""Faults of a quorum under load, one after the other, and what must come of each.

Each fault leaves the cluster whole again: the next one begins when all nodes have caught up.
"""

import random
from collections.abc import Callable
from pathlib import Path

from tests.processes.load import Ledger, Load
from tests.processes.nodes import BOTH, TIMEOUT_S, Node, Nodes, cluster, until
from tests.processes.scan import StoredLog, check_equal

CHANGES_BETWEEN = 5
# Snapshots are due often, and little is kept below them: a node that was away is given one.
SETTINGS = {
    "metadata_log_max_record_bytes_between_snapshots": "20000",
    "metadata_max_retention_bytes": "20000",
    "replica_high_watermark_checkpoint_interval_ms": "200",
}

Fault = Callable[[Nodes, Ledger], None]


def kill_the_leader(nodes: Nodes, ledger: Ledger) -> None:
    view, leader = nodes.view_and_leader()
    leader.kill()
    nodes.new_leader(view)
    ledger.wait_for(CHANGES_BETWEEN, TIMEOUT_S)
    leader.start()


def kill_a_follower(nodes: Nodes, ledger: Ledger) -> None:
    follower = nodes.others(nodes.leader())[0]
    follower.kill()
    ledger.wait_for(CHANGES_BETWEEN, TIMEOUT_S)
    follower.start()


def pause_the_leader(nodes: Nodes, ledger: Ledger) -> None:
    view, leader = nodes.view_and_leader()
    leader.pause()
    nodes.new_leader(view)
    ledger.wait_for(CHANGES_BETWEEN, TIMEOUT_S)
    leader.resume()


def cut_the_leader_off(nodes: Nodes, ledger: Ledger) -> None:
    view, leader = nodes.view_and_leader()
    nodes.proxy.cut(leader.id, *(one.id for one in nodes.others(leader)))
    nodes.new_leader(view)
    ledger.wait_for(CHANGES_BETWEEN, TIMEOUT_S)
    nodes.proxy.heal()


def silence_the_leader(nodes: Nodes, ledger: Ledger) -> None:
    """It hears everybody, and nobody hears it."""
    view, leader = nodes.view_and_leader()
    nodes.proxy.cut_one_way(leader.id, *(one.id for one in nodes.others(leader)))
    nodes.new_leader(view)
    ledger.wait_for(CHANGES_BETWEEN, TIMEOUT_S)
    nodes.proxy.heal()


def cut_a_follower_off(nodes: Nodes, ledger: Ledger) -> None:
    """Cut a follower off: with pre-votes the leader stays, and a follower that hears nobody does not disturb the
    others when it is back.
    """
    leader = nodes.leader()
    follower = nodes.others(leader)[0]
    nodes.proxy.cut(follower.id, *(one.id for one in nodes.others(follower)))
    ledger.wait_for(CHANGES_BETWEEN, TIMEOUT_S)
    nodes.proxy.heal()


def kill_all(nodes: Nodes, ledger: Ledger) -> None:
    for node in nodes:
        node.kill()
    nodes.start()


def stop_the_leader(nodes: Nodes, ledger: Ledger) -> None:
    """SIGTERM: it hands over."""
    view, leader = nodes.view_and_leader()
    assert leader.stop() == 0, leader.log
    nodes.new_leader(view)
    leader.start()


FAULTS: tuple[Fault, ...] = (
    kill_the_leader,
    cut_the_leader_off,
    pause_the_leader,
    silence_the_leader,
    kill_a_follower,
    kill_all,
    stop_the_leader,
    cut_a_follower_off,
)


def endure(nodes: Nodes, fault: Fault, ledger: Ledger) -> None:
    """A fault, and what follows: clients are served again, and all nodes catch up."""
    fault(nodes, ledger)
    ledger.wait_for(CHANGES_BETWEEN, TIMEOUT_S)
    nodes.await_caught_up()


def check_nothing_lost(nodes: Nodes, ledger: Ledger) -> str:
    """Check, when no client changes anything any more, that nothing is lost. Stops the nodes. How much was compared,
    for people.
    """
    view = nodes.await_caught_up()
    for broker in nodes.brokers:
        until(lambda broker=broker: _agrees(broker, ledger), f"broker {broker.id} knows all topics")
        ledger.check(set(broker.topics()), f"broker {broker.id}")
    nodes.stop()
    logs = {node.id: StoredLog(node.data_dir, nodes.cluster_id) for node in nodes}
    image, compared = check_equal(logs, view.high_watermark)
    ledger.check(set(image.topics), "the metadata log")
    return (
        f"{ledger.acknowledged} changes acknowledged, {ledger.in_doubt} in doubt, epoch {view.leader_epoch}, offset "
        f"{view.high_watermark}, {len(image.topics)} topics, {compared} comparisons"
    )


def _agrees(broker: Node, ledger: Ledger) -> bool:
    topics = set(broker.topics())
    return ledger.present <= topics and not ledger.absent & topics


def play(home: Path, faults: tuple[Fault, ...]) -> str:
    """Three nodes under load, through these faults."""
    ledger = Ledger()
    with cluster(home, {1: BOTH, 2: BOTH, 3: BOTH}, **SETTINGS) as nodes:
        try:
            with Load(nodes.bootstrap, ledger):
                ledger.wait_for(CHANGES_BETWEEN, TIMEOUT_S)
                for fault in faults:
                    endure(nodes, fault, ledger)
            return check_nothing_lost(nodes, ledger)
        except BaseException:
            for node in nodes:
                print(f"--- node {node.id} ---\n{node.log[-6000:]}")
            raise


def by_chance(rng: random.Random, count: int) -> tuple[Fault, ...]:
    return tuple(rng.choice(FAULTS) for _ in range(count))
