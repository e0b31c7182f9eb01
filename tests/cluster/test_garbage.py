"""Requests leave no reference cycles behind: a broker's garbage collector would stop all its clients to free them.

That stop is 10 ms for every few hundred requests, with three nodes the p99.9 of a producer that waits for each record.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from odradek.serving.request import Request
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.cluster.clusters import Cluster
from tests.cluster.test_replication import TOPIC, partition, produce, run

REQUESTS = 20


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """Keep here what the collector finds."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@contextmanager
def looked_through(garbage: list[object]) -> Iterator[Counter[int]]:
    """Gives the API keys of the answered requests that became garbage meanwhile."""
    gc.collect()
    garbage.clear()
    found: Counter[int] = Counter()
    yield found
    gc.collect()
    found.update(it.api_key for it in garbage if isinstance(it, Request) and it.is_answered)


def test_of_producers_and_followers(garbage: list[object]) -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        with looked_through(garbage) as found:
            for number in range(REQUESTS):
                assert (await produce(cluster, leader, b"%d" % number)).error_code == 0
        assert found == {}

    run(1, scenario)


def test_of_consumers_that_wait(garbage: list[object]) -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        topic_id = cluster.image(leader).topics[TOPIC].id

        async def fetch(offset: int, max_wait_ms: int) -> int:
            asked = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1000)
            topic = FetchTopic(topic_id=topic_id, partitions=[asked])
            request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[topic])
            response = await cluster.ask(leader, request, 13)
            return len(response.responses[0].partitions[0].records or b"")

        with looked_through(garbage) as found:
            for number in range(REQUESTS):
                waiting = asyncio.create_task(fetch(number, 10_000))
                await asyncio.sleep(0.05)
                assert not waiting.done()
                await produce(cluster, leader, b"%d" % number)
                assert await waiting > 0
                assert await fetch(number + 1, 20) == 0, "its time is up"
        assert found == {}

    run(2, scenario)
