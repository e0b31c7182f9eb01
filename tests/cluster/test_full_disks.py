"""A disk without room, on simulated machines: who leads, what is refused, and what goes on."""

import logging
from collections.abc import Iterator

import pytest

from odradek.host.simulated import DISK_BYTES
from tests.cluster.clusters import Cluster
from tests.cluster.test_replication import partition, produce, replica, run, until

LITTLE = 1_000_000  # below the reserve, and enough for what a broker has to write
BROKERS = (1, 2, 3)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """A simulated world keeps its log lines, from WARNING on, to itself."""
    logger = logging.getLogger("odradek")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


def others(node_id: int) -> list[int]:
    return [other for other in BROKERS if other != node_id]


def fill(cluster: Cluster, *node_ids: int, free_bytes: int = LITTLE) -> None:
    assert free_bytes < DISK_BYTES // 20
    for node_id in node_ids:
        cluster.machines[node_id].fill_disk(free_bytes)


@pytest.mark.parametrize("free_bytes", [0, LITTLE])
def test_the_leader_gives_its_leadership_away_and_comes_back(
    free_bytes: int, logged: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        other = others(leader)[0]
        assert (await produce(cluster, leader, b"before")).error_code == 0
        fill(cluster, leader, free_bytes=free_bytes)
        await until(lambda: partition(cluster, other).leader not in (leader, -1), 5.0)
        after = partition(cluster, other)
        assert sorted(after.isr) == others(leader)
        assert (await produce(cluster, after.leader, b"meanwhile")).error_code == 0
        assert not cluster.image(other).brokers[leader].is_fenced
        cluster.machines[leader].clear_disk()
        await until(lambda: sorted(partition(cluster, other).isr) == [1, 2, 3], 30.0)
        assert replica(cluster, leader).log.end_offset == 2
        assert not cluster.image(other).brokers[leader].is_full

    run(3, scenario)
    assert "1 leaderships go to other in-sync replicas" in logged.text


def test_a_follower_says_why_it_lags(logged: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        follower = others(leader)[0]
        fill(cluster, follower)
        await until(lambda: follower not in partition(cluster, leader).isr, 5.0)
        for _ in range(3):
            assert (await produce(cluster, leader, b"x")).error_code == 0
        await until(lambda: "lags behind its leader" in logged.text, 10.0)
        assert replica(cluster, follower).log.end_offset < 3
        cluster.machines[follower].clear_disk()
        await until(lambda: follower in partition(cluster, leader).isr, 30.0)

    run(4, scenario)
    assert logged.text.count("lags behind its leader") == 1, "repeats are counted"
