"""`odradek cluster status`: what is shown, and what counts as a problem."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from odradek.admin.status import (
    BrokerStatus,
    ClusterStatus,
    PartitionStatus,
    ReplicaStatus,
    disks_in,
    quorum_status,
    tolerance_of,
    under_min_isr,
)
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsResult
from odradek.wire.messages.describe_quorum import PartitionDataInResponse, ReplicaState
from tests.process_cluster import cluster_in

Odradek = Callable[..., CompletedProcess[str]]


def test_one_broker_that_is_well(odradek: Odradek, bootstrap: str, topic: str) -> None:
    odradek("topic", "create", topic, "--partitions", "3")
    result = odradek("cluster", "status", "--json")
    assert result.returncode == 0, result.stderr
    status = json.loads(result.stdout)
    assert (status["is_healthy"], status["problems"]) == (True, [])
    (broker,) = status["brokers"]
    assert (f"{broker['host']}:{broker['port']}", broker["is_fenced"]) == (bootstrap, False)
    assert broker["leaders"] == status["partition_count"] >= 3
    quorum = status["quorum"]
    assert [(one["node"], one["lag"]) for one in quorum["voters"]] == [(quorum["leader"], 0)]
    assert quorum["high_watermark"] > 0
    for name in ("under_replicated", "under_min_isr", "offline"):
        assert status[f"{name}_partitions"] == []

    lines = odradek("cluster", "status").stdout.splitlines()
    assert lines[0] == f"cluster {status['cluster_id']}: healthy"
    assert lines[1].startswith(
        "may lose 0 nodes without refusing writes, 0 without losing data (limited by 1 in-sync"
    )
    assert lines[3].split() == ["BROKER", "ADDRESS", "RACK", "STATE", "LEADERS", "FREE"]
    assert lines[6].startswith(f"metadata quorum: leader {quorum['leader']}, epoch ")


def test_bad_usage_and_a_cluster_that_is_not_there(run_here: Odradek) -> None:
    assert run_here("cluster", "status", "--nonsense").returncode == 2
    result = run_here("cluster", "status", "-b", "localhost:1")
    assert (result.returncode, result.stdout) == (1, "")
    assert "no broker reachable at localhost:1" in result.stderr


def test_three_brokers_of_which_one_dies(tmp_path: Path, run_here: Odradek) -> None:
    def status(address: str) -> tuple[int, dict[str, Any]]:
        result = run_here("cluster", "status", "--json", "-b", address)
        return result.returncode, json.loads(result.stdout)

    with cluster_in(tmp_path / "home") as cluster:
        code, found = status(cluster.addresses[0])
        assert (code, found["problems"]) == (0, [])
        assert [one["rack"] for one in found["brokers"]] == ["rack-1", "rack-2", "rack-3"]
        assert [one["node"] for one in found["quorum"]["voters"]] == [1, 2, 3]
        assert (found["tolerance"]["writes"], found["tolerance"]["data"]) == (1, 1)
        os.kill(cluster.pids[2], signal.SIGKILL)
        cluster.log_line("broker 3 was killed")
        while status(cluster.addresses[0])[0] == 0:  # until it is missed: the test's own time limit ends this
            pass
        code, found = status(cluster.addresses[0])
        assert (code, found["is_healthy"]) == (1, False)
        assert any("3" in problem for problem in found["problems"])
        text = run_here("cluster", "status", "-b", cluster.addresses[0])
        assert text.returncode == 1
        assert "not healthy" in text.stdout.splitlines()[0]


# What is a problem

WELL = ClusterStatus("id", [], quorum_status(PartitionDataInResponse(leader_id=1)), 0, [], [], [])


def partition(isr: list[int], topic: str = "t", leader: int | None = 1) -> PartitionStatus:
    return PartitionStatus(topic, 0, leader, [1, 2, 3], isr)


def broker(number: int, is_fenced: bool = False, **room: Any) -> BrokerStatus:
    return BrokerStatus(number, "h", 9092, None, is_fenced, 0, **room)


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        ({}, []),
        ({"quorum": None}, []),  # a cluster that cannot tell of its quorum
        ({"quorum": None, "quorum_problem": "nobody leads"}, ["the metadata quorum: nobody leads"]),
        ({"brokers": [broker(1), broker(2, True)]}, ["broker 2 fenced: down, or not ready yet"]),
        (
            {"brokers": [broker(1, True), broker(2, True)]},
            ["brokers 1, 2 fenced: down, or not ready yet"],
        ),
        (
            {"brokers": [broker(1, free_bytes=3 << 30), broker(2, free_bytes=2048, is_full=True)]},
            ["broker 2 has no room for records: its disk is full, 2.0 KB free"],
        ),
        ({"brokers": [broker(1), broker(2, is_silent=True)]}, ["broker 2 does not respond at h:9092"]),
        ({"brokers": [broker(1, damaged_logs=2)]}, ["broker 1 has 2 damaged logs: its log file names them"]),
        ({"offline": [partition([], leader=None)]}, ["1 partition without a leader"]),
        (
            {"under_min_isr": [partition([1]), partition([1])]},
            ["2 partitions with fewer in-sync replicas than min.insync.replicas"],
        ),
        ({"under_replicated": [partition([1])]}, ["1 partition with replicas that are not in sync"]),
    ],
)
def test_problems(change: dict[str, Any], problems: list[str]) -> None:
    assert replace(WELL, **change).problems() == problems


def voter(node: int, end: int, caught_up: int = -1) -> ReplicaState:
    return ReplicaState(node, log_end_offset=end, last_caught_up_timestamp=caught_up)


def test_how_far_behind_the_voters_are() -> None:
    told = PartitionDataInResponse(
        leader_id=2,
        leader_epoch=5,
        high_watermark=90,
        current_voters=[voter(3, 40, 70_000), voter(2, 100, 100_000), voter(1, 99, 99_500)],
        observers=[voter(4, 10, 1)],
    )
    quorum = quorum_status(told)
    assert quorum.voters == [
        ReplicaStatus(1, 99, 1, 500),
        ReplicaStatus(2, 100, 0, 0),
        ReplicaStatus(3, 40, 60, 30_000),
    ]
    assert replace(WELL, quorum=quorum).problems() == [
        "controller 3 has not caught up for 30 s: 60 records to fetch"
    ]


def test_a_voter_that_nobody_has_heard_of_is_behind() -> None:
    told = PartitionDataInResponse(leader_id=1, current_voters=[voter(1, 7, 1_000), voter(2, -1)])
    assert replace(WELL, quorum=quorum_status(told)).problems() == [
        "controller 2 has not caught up: 7 records to fetch"
    ]


def test_replicas_on_silent_brokers_and_a_quorum_that_nobody_leads_promise_nothing() -> None:
    """Without a quorum, brokers that died stay in the ISR, and none of them is fenced."""
    found = tolerance_of([partition([1, 2, 3])], {"t": 2}, None, "no response within 10 s", {2, 3})
    assert (found.writes, found.data) == (0, 0)
    whole = tolerance_of([partition([1, 2, 3])], {"t": 2}, None, "no response within 10 s")
    assert str(whole) == (
        "may lose 0 nodes without refusing writes, 0 without losing data "
        "(limited by the metadata quorum, which has no leader or cannot be asked)"
    )
    old = tolerance_of([partition([1, 2, 3])], {"t": 2}, None, "")  # it cannot report a quorum
    assert (old.writes, old.data) == (1, 2)


def test_a_partition_is_not_asked_for_more_replicas_than_it_has() -> None:
    two = PartitionStatus("small", 0, 1, [1, 2], [1])
    found = [partition([1]), partition([1, 2]), partition([1], topic="other"), two]
    assert under_min_isr(found, {"t": 2, "other": 1, "small": 3}) == [found[0], two]


@pytest.mark.parametrize(
    ("directories", "room"),
    [
        ([], (None, False)),
        ([DescribeLogDirsResult(total_bytes=-1, usable_bytes=-1)], (None, False)),  # an older Kafka
        ([DescribeLogDirsResult(total_bytes=1 << 40, usable_bytes=1 << 30)], (1 << 30, False)),
        ([DescribeLogDirsResult(total_bytes=1 << 40, usable_bytes=1 << 30, is_full=True)], (1 << 30, True)),
        ([DescribeLogDirsResult(total_bytes=1 << 40, usable_bytes=1 << 20)], (1 << 20, True)),  # of any Kafka
        ([DescribeLogDirsResult(total_bytes=2000, usable_bytes=101)], (101, False)),
        ([DescribeLogDirsResult(total_bytes=2000, usable_bytes=99)], (99, True)),
        (
            [
                DescribeLogDirsResult(total_bytes=2000, usable_bytes=1000),
                DescribeLogDirsResult(total_bytes=2000, usable_bytes=10),
            ],
            (10, True),
        ),
    ],
)
def test_the_room_on_the_disks_of_a_broker(
    directories: list[DescribeLogDirsResult], room: tuple[int | None, bool]
) -> None:
    assert disks_in(directories)[:2] == room


def test_damaged_logs_of_all_disks_count_also_where_the_space_is_not_reported() -> None:
    assert (
        disks_in([DescribeLogDirsResult(damaged_logs=1), DescribeLogDirsResult(damaged_logs=2)]).damaged_logs
        == 3
    )
