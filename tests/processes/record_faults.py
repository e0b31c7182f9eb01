"""Faults of three nodes that keep records, one after the other, and what must come of each.

A fault strikes the leader of a partition, a follower of it, or the active controller: it is killed, stopped for a
while, or cut off. Two nodes are left, and that is enough: records are acknowledged in every partition before the third
one is let back. Or the cluster changes: a disk is replaced, a fourth node joins and leaves. The next fault begins when
every replica is in sync again.
"""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from odradek.client.cluster import LATEST, Cluster, borrow_cluster
from odradek.client.connection import ConnectionLost
from odradek.client.settings import ClientSettings
from odradek.errors import KafkaError
from odradek.model import TopicPartition
from odradek.wire.messages.metadata import MetadataResponseTopic
from tests.processes.nodes import BOTH, TIMEOUT_S, Node, Nodes, cluster, until
from tests.processes.proxy import CLIENT
from tests.processes.record_ledger import RecordLedger
from tests.processes.record_load import GROUPS, RecordLoad, read_all
from tests.processes.replica_scan import check_replicas
from tests.support import run_command

TOPIC = "records"
OFFSETS = "__consumer_offsets"
PARTITIONS = 4
RECORDS_BETWEEN = 5  # in every partition
FINAL_READ_TIMEOUT_S = 60
SETTINGS = {
    "broker_session_timeout_ms": "3000",
    "broker_heartbeat_interval_ms": "500",
    "default_replication_factor": "3",
    "min_insync_replicas": "2",
    "offsets_topic_replication_factor": "3",
    "offsets_topic_num_partitions": "2",
    "group_initial_rebalance_delay_ms": "0",
    "group_consumer_heartbeat_interval_ms": "1000",
    "group_consumer_min_heartbeat_interval_ms": "1000",
    "group_consumer_session_timeout_ms": "10000",
    "group_consumer_min_session_timeout_ms": "10000",
    "log_integrity_check_interval_ms": "1000",
    "log_integrity_check_bytes_per_second": "100000000",
}


class Stage:
    """The nodes, the ledger, and which partition the next fault is about."""

    def __init__(self, nodes: Nodes, ledger: RecordLedger, rng: random.Random) -> None:
        self.nodes = nodes
        self.ledger = ledger
        self.rng = rng

    def leader(self) -> Node:
        """Choose a leader of some partition."""
        topic = self.await_in_sync()[TOPIC]
        return self.nodes[self.rng.choice(topic.partitions).leader_id]

    def follower(self) -> Node:
        """One that is not the active controller; it leads other partitions."""
        leader, controller = self.leader(), self.nodes.leader()
        return self.rng.choice([node for node in self.nodes.others(leader) if node is not controller])

    def controller(self) -> Node:
        return self.nodes.leader()

    def await_records(self) -> None:
        self.ledger.wait_for(RECORDS_BETWEEN, TIMEOUT_S)

    def await_in_sync(self) -> dict[str, MetadataResponseTopic]:
        """Until every broker says that every replica of every partition is in sync; what the last one says."""
        topics: dict[str, MetadataResponseTopic] = {}
        for broker in self.nodes.brokers:
            topics = until(
                lambda broker=broker: _all_in_sync(broker), f"all is in sync, says broker {broker.id}"
            )
        return topics


def _all_in_sync(broker: Node) -> dict[str, MetadataResponseTopic] | None:
    try:
        topics = broker.topics()
    except (ConnectionLost, KafkaError):
        return None
    partitions = [partition for topic in topics.values() for partition in topic.partitions]
    is_well = all(
        partition.leader_id >= 0 and sorted(partition.isr_nodes) == sorted(partition.replica_nodes)
        for partition in partitions
    )
    return topics if is_well and {TOPIC, OFFSETS} <= topics.keys() else None


Choice = Callable[[Stage], Node]
Fault = Callable[[Stage], None]


def kill(choose: Choice) -> Fault:
    def fault(stage: Stage) -> None:
        node = choose(stage)
        node.kill()
        stage.await_records()
        node.start()

    return _named(fault, "kill", choose)


def pause(choose: Choice) -> Fault:
    """SIGSTOP: it goes on later, and does not know that it was away."""

    def fault(stage: Stage) -> None:
        node = choose(stage)
        node.pause()
        stage.await_records()
        node.resume()

    return _named(fault, "pause", choose)


def cut_off(choose: Choice) -> Fault:
    """Cut it off from the other nodes. Clients still reach it, and it does not know better than they do."""

    def fault(stage: Stage) -> None:
        node = choose(stage)
        stage.nodes.proxy.cut(node.id, *(one.id for one in stage.nodes.others(node)))
        stage.await_records()
        stage.nodes.proxy.heal()

    return _named(fault, "cut off", choose)


def isolate(choose: Choice) -> Fault:
    """Cut it off from nodes and clients alike."""

    def fault(stage: Stage) -> None:
        node = choose(stage)
        stage.nodes.proxy.cut(node.id, CLIENT, *(one.id for one in stage.nodes.others(node)))
        stage.await_records()
        stage.nodes.proxy.heal()

    return _named(fault, "isolate", choose)


def restart(choose: Choice) -> Fault:
    """SIGTERM: it hands over first."""

    def fault(stage: Stage) -> None:
        node = choose(stage)
        assert node.stop() == 0, node.log
        stage.await_records()
        node.start()

    return _named(fault, "restart", choose)


def kill_two(stage: Stage) -> None:
    """No majority is left: nobody leads the quorum, and nothing is acknowledged until one is back."""
    first = stage.leader()
    second = stage.nodes.others(first)[0]
    first.kill()
    second.kill()
    stage.nodes.start(first, second)


def kill_all(stage: Stage) -> None:
    stage.await_in_sync()
    for node in stage.nodes:
        node.kill()
    stage.nodes.start()


def replace_a_disk(stage: Stage) -> None:
    """A node comes back with an empty disk, copies everything, and gets its vote back."""
    node = stage.follower()
    node.kill()
    stage.await_records()
    stage.nodes.replace_disk(node)
    node.start()
    run("cluster", "grow", "-b", stage.nodes.bootstrap)


def grow_and_shrink(stage: Stage) -> None:
    """A fourth node joins, gets partitions, and leaves again."""
    nodes, bootstrap = stage.nodes, stage.nodes.bootstrap
    fourth = nodes.add(4, BOTH)
    try:
        fourth.start()
        run("cluster", "grow", "--brokers", "4", "-b", bootstrap)
        stage.await_records()
        run("cluster", "remove-broker", "4", "--no-wait", "--yes", "-b", bootstrap)
        assert fourth.stop() == 0, fourth.log
        run("cluster", "remove-broker", "4", "-b", bootstrap)
    finally:
        fourth.kill()
        del nodes.by_id[4]
    shutil.rmtree(fourth.data_dir)


def run(*arguments: str) -> None:
    done = run_command(*arguments)
    assert done.returncode == 0, done.stderr


def _named(fault: Fault, what: str, choose: Choice) -> Fault:
    fault.__name__ = f"{what} the {choose.__name__}"
    return fault


def name_of(fault: Fault) -> str:
    return fault.__name__.replace("_", " ")


LEADER, FOLLOWER, CONTROLLER = Stage.leader, Stage.follower, Stage.controller

SHORT: tuple[Fault, ...] = (kill(LEADER), isolate(CONTROLLER), pause(LEADER))
FAULTS: tuple[Fault, ...] = (
    *(do(choose) for do in (kill, pause, cut_off, isolate) for choose in (LEADER, FOLLOWER, CONTROLLER)),
    restart(LEADER),
    kill_two,
    kill_all,
    replace_a_disk,
    grow_and_shrink,
)


def in_turn(rng: random.Random, faults: Sequence[Fault] = FAULTS) -> Iterator[Fault]:
    """All of them, then all of them again, each time in another order."""
    while True:
        yield from rng.sample(faults, len(faults))


class Survived:
    """The parts of a run, for people."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.batches = 0
        self.ledger = RecordLedger(PARTITIONS)

    def __str__(self) -> str:
        ledger, kinds = self.ledger, sorted(set(self.faults))
        return "\n".join(
            [
                f"faults: {len(self.faults)}: "
                + ", ".join(f"{kind} {self.faults.count(kind)}" for kind in kinds),
                f"records: {ledger.acknowledged} acknowledged, {len(ledger.doubts)} in doubt, all read back in order",
                f"longest silence: {ledger.longest_silence}",
                f"commits of groups: {ledger.commits}, none went back",
                f"replicas: {self.batches} batches compared, byte for byte",
            ]
        )


def play(home: Path, faults: Iterator[Fault], rng: random.Random) -> Survived:
    """Three nodes with records, through these faults."""
    done = Survived()
    ledger = done.ledger
    with cluster(home, {1: BOTH, 2: BOTH, 3: BOTH}, **SETTINGS) as nodes:
        try:
            create(nodes)
            stage = Stage(nodes, ledger, rng)
            with client(nodes) as own, RecordLoad(nodes.bootstrap, TOPIC, ledger) as load:
                until(lambda: set(ledger.groups) == set(GROUPS), "every group has committed")
                stage.await_records()
                for fault in faults:
                    ledger.phase = name_of(fault)
                    done.faults.append(name_of(fault))
                    fault(stage)
                    stage.await_in_sync()
                    stage.await_records()
                    load.check()
                    check_committed(own, ledger)
                load.stop_producing()
                await_all_committed(own, ledger)
            done.batches = check_nothing_lost(stage, own)
        except BaseException:
            for node in nodes:
                print(f"--- node {node.id} ---\n{node.log[-6000:]}")
            raise
    return done


def create(nodes: Nodes) -> None:
    run(
        *("topic", "create", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3"),
        *("-b", nodes.bootstrap),
    )


def client(nodes: Nodes) -> AbstractContextManager[Cluster]:
    """Our own, which waits out what happens to the brokers."""
    addresses = (broker.address("PLAINTEXT").split(":") for broker in nodes.brokers)
    settings = ClientSettings(tuple((host, int(port)) for host, port in addresses), api_timeout_s=TIMEOUT_S)
    return borrow_cluster(settings)


def check_committed(own: Cluster, ledger: RecordLedger) -> None:
    for group in GROUPS:
        floor = ledger.committed(group)
        ledger.check_committed(group, floor, committed(own, group))


def committed(own: Cluster, group: str) -> dict[int, int]:
    found = own.committed_offsets(group)
    return {partition.partition: offset for partition, offset in found.items() if partition.topic == TOPIC}


def await_all_committed(own: Cluster, ledger: RecordLedger) -> None:
    """The groups read on until they have read everything."""
    ends = {partition.partition: end for partition, end in ends_of(own, TOPIC).items()}
    for group in GROUPS:
        until(lambda group=group: committed(own, group) == ends, f"group {group} has committed everything")
    check_committed(own, ledger)


def ends_of(own: Cluster, *topics: str) -> dict[TopicPartition, int]:
    """The high watermarks."""
    return own.list_offsets(dict.fromkeys(own.partitions_of(topics), LATEST))


def check_nothing_lost(stage: Stage, own: Cluster) -> int:
    """Check, when no client works any more, that nothing is lost. Stops the nodes, and returns how many batches were
    compared.
    """
    nodes, ledger = stage.nodes, stage.ledger
    stage.await_in_sync()
    ends = {partition.partition: end for partition, end in ends_of(own, TOPIC).items()}
    records = read_all(nodes.bootstrap, TOPIC, ends, FINAL_READ_TIMEOUT_S)
    ledger.check_records(records)
    ledger.check_groups(records)
    assert not ledger.doubts, f"there was time enough, and producers gave up: {ledger.doubts[:5]}"
    high_watermarks = ends_of(own, TOPIC, OFFSETS)
    nodes.stop()
    return check_replicas({node.id: node.data_dir for node in nodes}, high_watermarks)
