"""A cluster of one node grows to three while clients write and read, and one of the three is replaced by a new disk."""

from contextlib import AbstractContextManager
from pathlib import Path

from odradek.client.cluster import Cluster, borrow_cluster
from odradek.client.settings import ClientSettings
from tests.processes.joining import JoinedBroker, command, running, told
from tests.processes.nodes import BOTH, TIMEOUT_S, cluster, until
from tests.processes.record_faults import OFFSETS, TOPIC, await_all_committed, ends_of
from tests.processes.record_ledger import RecordLedger
from tests.processes.record_load import GROUPS, RecordLoad, read_all
from tests.processes.replica_scan import check_replicas
from tests.support import RunningBroker

PARTITIONS = 4
LATER = "later"  # a topic made without a number of replicas, when there are three brokers
RECORDS = 5  # in every partition, between two steps
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "2",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
}


def test_one_node_grows_to_three_under_load_and_one_is_replaced(tmp_path: Path) -> None:
    first = RunningBroker(tmp_path / "first", SETTINGS)
    with running(first):
        made = command("topic", "create", TOPIC, "--partitions", str(PARTITIONS), "-b", first.bootstrap)
        assert made.returncode == 0, made.stderr
        ledger = RecordLedger(PARTITIONS)
        second = JoinedBroker(tmp_path / "second", SETTINGS, first.bootstrap)
        third = JoinedBroker(tmp_path / "third", SETTINGS, first.bootstrap)
        with RecordLoad(first.bootstrap, TOPIC, ledger) as load:
            until(lambda: set(ledger.groups) == set(GROUPS), "every group has committed")
            with running(second, third):
                grow(first, ledger)
                bootstrap = f"{second.bootstrap},{third.bootstrap}"
                first.kill()
                ledger.wait_for(RECORDS, TIMEOUT_S)
                replacement = JoinedBroker(
                    tmp_path / "replacement", SETTINGS | {"node.id": "1"}, second.bootstrap
                )
                with running(replacement):
                    replace(bootstrap, ledger)
                    with client(bootstrap) as own:
                        load.stop_producing()
                        await_all_committed(own, ledger)
                        check(bootstrap, own, ledger, {1: replacement, 2: second, 3: third})


def test_a_replaced_disk_keeps_its_vote_when_the_command_is_run_again(tmp_path: Path) -> None:
    """The leader of the quorum stays, and still remembers the lost disk as a follower."""
    with cluster(tmp_path, {1: BOTH, 2: BOTH, 3: BOTH}) as nodes:
        node = nodes.others(nodes.leader())[0]
        node.kill()
        nodes.replace_disk(node)
        node.start()
        done = told("cluster", "grow", "-b", nodes.bootstrap)
        assert (done["added_voters"], done["removed_voters"]) == ([node.id], [node.id])
        again = told("cluster", "grow", "-b", nodes.bootstrap)
        assert (again["added_voters"], again["removed_voters"]) == ([], [])


def grow(first: RunningBroker, ledger: RecordLedger) -> None:
    """All at once, then with nothing left to do."""
    done = told("cluster", "grow", "--brokers", "3", "-b", first.bootstrap)
    assert (done["brokers"], sorted(done["added_voters"])) == ([1, 2, 3], [2, 3])
    assert (done["replication_factor"], done["min_insync_replicas"]) == (3, 2)
    assert done["moved_partitions"] == PARTITIONS + 2  # those of the offsets topic, too
    ledger.wait_for(RECORDS, TIMEOUT_S)
    again = told("cluster", "grow", "-b", first.bootstrap)
    assert (again["added_voters"], again["moved_partitions"]) == ([], 0)
    made = command("topic", "create", LATER, "-b", first.bootstrap)
    assert made.returncode == 0, made.stderr
    topics = {one["topic"]: one for one in told("topic", "describe", "--internal", "-b", first.bootstrap)}
    for topic in (TOPIC, OFFSETS, LATER):
        assert all(sorted(one["isr"]) == [1, 2, 3] for one in topics[topic]["partitions"])
    assert {one["leader"] for one in topics[TOPIC]["partitions"]} == {1, 2, 3}


def replace(bootstrap: str, ledger: RecordLedger) -> None:
    """Node 1 is back, with an empty disk."""
    done = told("cluster", "grow", "-b", bootstrap)
    assert (done["added_voters"], done["removed_voters"]) == ([1], [1])
    until(lambda: is_healthy(bootstrap), "all replicas are in sync again")
    quorum = told("quorum", "describe", "-b", bootstrap)
    assert sorted(one["node"] for one in quorum["voters"]) == [1, 2, 3]
    ledger.wait_for(RECORDS, TIMEOUT_S)


def is_healthy(bootstrap: str) -> bool:
    return command("cluster", "status", "-b", bootstrap).returncode == 0


def client(bootstrap: str) -> AbstractContextManager[Cluster]:
    addresses = (one.rsplit(":", 1) for one in bootstrap.split(","))
    settings = ClientSettings(tuple((host, int(port)) for host, port in addresses), api_timeout_s=TIMEOUT_S)
    return borrow_cluster(settings)


def check(bootstrap: str, own: Cluster, ledger: RecordLedger, nodes: dict[int, RunningBroker]) -> None:
    """Nothing is lost, no write failed, and all replicas are equal, byte for byte."""
    ends = {partition.partition: end for partition, end in ends_of(own, TOPIC).items()}
    records = read_all(bootstrap, TOPIC, ends, TIMEOUT_S)
    ledger.check_records(records)
    ledger.check_groups(records)
    assert not ledger.doubts, f"writes failed: {ledger.doubts[:5]}"
    high_watermarks = ends_of(own, TOPIC)
    for node in nodes.values():
        assert node.stop() == 0, node.log
    assert check_replicas({number: node.data_dir for number, node in nodes.items()}, high_watermarks) > 0
