"""Consumers in racks (KIP-392), on simulated machines: where a leader sends them, and what they get from a follower."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.records.batch import read_header
from odradek.records.record import Record, build_batch, decode_batch
from odradek.records.walk import whole_batches
from odradek.storage.producers.markers import TransactionEnd
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.cluster.clusters import Cluster, new_cluster, until
from tests.cluster.test_replication import TOPIC, partition, produce, replica

RACKS = {1: "a", 2: "b", 3: "c"}
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACK_AWARE = {"replica.selector.class": SELECTOR}
LONG_MS = 20_000  # more than the clients' patience: a wait that nothing but its deadline ends is a failure
NO_REPLICA = -1
READ_COMMITTED = 1
PRODUCER = 7
LATEST = 17

Scenario = Callable[[Cluster], Coroutine[Any, Any, None]]


def run(scenario: Scenario, *, replicas: int = 3, **settings: str) -> None:
    """Run with a topic whose partition is replicated so often. Racks are named, and consumers sent to theirs, unless
    `settings` (with '_' for '.') say otherwise.
    """
    named = {**RACK_AWARE, **{name.replace("_", "."): value for name, value in settings.items()}}
    named = {name: value for name, value in named.items() if value}
    world, cluster = new_cluster(1, settings=named, racks=RACKS)

    async def main() -> None:
        await cluster.start()
        response = await cluster.ask(1, CreateTopicsRequest([CreatableTopic(TOPIC, 1, replicas)]), 7)
        assert [topic.error_code for topic in response.topics] == [0]
        await until(lambda: all(TOPIC in cluster.image(node_id).topics for node_id in cluster.machines))
        await scenario(cluster)

    world.run(main())


def fetch_request(
    cluster: Cluster,
    node_id: int,
    offset: int,
    *,
    version: int = LATEST,
    max_wait_ms: int = 0,
    epoch: int = -1,
    **options: Any,
) -> FetchRequest:
    topic_id = cluster.image(node_id).topics[TOPIC].id
    named = {"topic_id": topic_id} if version >= 13 else {"topic": TOPIC}
    asked = FetchPartition(0, epoch, offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(**named, partitions=[asked])],
        **options,
    )


async def fetch(cluster: Cluster, node_id: int, offset: int, *, version: int = LATEST, **options: Any) -> Any:
    """Return what the response says of the partition."""
    request = fetch_request(cluster, node_id, offset, version=version, **options)
    response = await cluster.ask(node_id, request, version)
    return response.responses[0].partitions[0]


def values(fetched: Any) -> list[bytes | None]:
    found = []
    for header, batch in whole_batches(memoryview(fetched.records or b"")):
        if not header.is_control:
            found += [record.value for record in decode_batch(batch)]
    return found


def others(cluster: Cluster) -> list[int]:
    """The followers."""
    return [node_id for node_id in partition(cluster).replicas if node_id != partition(cluster).leader]


async def all_committed(cluster: Cluster, offset: int) -> None:
    await until(
        lambda: all(
            replica(cluster, node_id).high_watermark == offset for node_id in partition(cluster).replicas
        )
    )


# --- at the leader ---


def test_a_leader_sends_consumers_to_the_replica_in_their_rack() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        await produce(cluster, leader, b"one")
        await all_committed(cluster, 1)
        for node_id in others(cluster):
            told = await fetch(cluster, leader, 0, rack_id=RACKS[node_id], max_wait_ms=LONG_MS)
            assert (told.error_code, told.preferred_read_replica) == (0, node_id)
            assert (values(told), told.high_watermark, told.log_start_offset) == ([], 1, 0)
            assert values(await fetch(cluster, node_id, 0, rack_id=RACKS[node_id])) == [b"one"]
            waiting = await fetch(cluster, leader, 1, rack_id=RACKS[node_id], max_wait_ms=LONG_MS)
            assert waiting.preferred_read_replica == node_id, "for new records it waits there, too"

    run(scenario)


def test_a_leader_serves_all_others_itself() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        await produce(cluster, leader, b"one")
        await all_committed(cluster, 1)
        for options in (
            {"rack_id": RACKS[leader]},
            {"rack_id": "elsewhere"},
            {"rack_id": ""},
            {"version": 10},
        ):
            told = await fetch(cluster, leader, 0, **options)
            assert (values(told), told.preferred_read_replica) == ([b"one"], NO_REPLICA), options

    run(scenario)


@pytest.mark.parametrize("selector", ["", "org.apache.kafka.common.replica.LeaderSelector"])
def test_without_racks_the_leader_serves_everybody_itself(selector: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        await produce(cluster, leader, b"one")
        follower = others(cluster)[0]
        told = await fetch(cluster, leader, 0, rack_id=RACKS[follower])
        assert (values(told), told.preferred_read_replica) == ([b"one"], NO_REPLICA)
        await all_committed(cluster, 1)
        assert values(await fetch(cluster, follower, 0)) == [b"one"], (
            "as in Kafka, followers serve whoever asks"
        )

    run(scenario, replica_selector_class=selector)


def test_a_replica_that_is_gone_or_lacks_the_offset_is_not_recommended() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader, follower = partition(cluster).leader, others(cluster)[0]
        await produce(cluster, leader, b"one")
        cluster.machines[follower].cut_power()
        await produce(cluster, leader, b"two", acks=1)
        told = await fetch(cluster, leader, 2, rack_id=RACKS[follower])
        assert told.preferred_read_replica == NO_REPLICA, "it has only the first"
        await until(lambda: follower not in partition(cluster, leader).isr)
        told = await fetch(cluster, leader, 0, rack_id=RACKS[follower])
        assert (values(told), told.preferred_read_replica) == ([b"one", b"two"], NO_REPLICA)
        await cluster.start(follower)
        await until(lambda: follower in partition(cluster, leader).isr)
        assert (await fetch(cluster, leader, 0, rack_id=RACKS[follower])).preferred_read_replica == follower

    run(scenario)


def test_in_a_session_the_recommendation_is_repeated() -> None:
    """Nothing else about the partition has changed, and the client asks because it wants to know."""

    async def scenario(cluster: Cluster) -> None:
        leader, follower = partition(cluster).leader, others(cluster)[0]
        await produce(cluster, leader, b"one")
        await all_committed(cluster, 1)
        connection = await cluster.world.connect("alice", cluster.machines[leader])
        request = fetch_request(
            cluster, leader, 1, rack_id=RACKS[follower], max_wait_ms=LONG_MS, session_epoch=0
        )
        first = await connection.ask(request, LATEST)
        again = FetchRequest(
            max_wait_ms=LONG_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            rack_id=RACKS[follower],
            session_id=first.session_id,
            session_epoch=1,
        )
        for response in (first, await connection.ask(again, LATEST)):
            assert response.responses[0].partitions[0].preferred_read_replica == follower
        connection.close()

    run(scenario)


# --- at a follower ---


def test_a_follower_wakes_its_consumers_as_soon_as_records_are_committed() -> None:
    """Though its own fetch at the leader would wait for long: the leader responds when the high watermark moves."""

    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        for number in range(3):
            waiting = [
                cluster.world.spawn(fetch(cluster, node_id, number, max_wait_ms=LONG_MS))
                for node_id in (1, 2, 3)
            ]
            await produce(cluster, leader, b"%d" % number)
            assert [values(await fetched) for fetched in waiting] == [[b"%d" % number]] * 3

    run(scenario, replica_fetch_wait_max_ms=str(LONG_MS))


def test_a_follower_that_starts_learns_at_once_what_is_committed() -> None:
    """It learns from the response that begins its session, though that has no records for it."""

    async def scenario(cluster: Cluster) -> None:
        leader, follower = partition(cluster).leader, others(cluster)[0]
        await produce(cluster, leader, b"one")
        cluster.machines[follower].cut_power()  # before the high watermark is in its checkpoint
        await cluster.start(follower)
        assert replica(cluster, follower).log.end_offset == 1
        assert values(await fetch(cluster, follower, 0, max_wait_ms=LONG_MS)) == [b"one"]

    run(scenario, replica_fetch_wait_max_ms=str(LONG_MS))


def test_a_follower_waits_for_records_that_are_not_committed_yet() -> None:
    """It waits, as far as it knows: it is behind the leader, and a consumer may come from there."""

    async def scenario(cluster: Cluster) -> None:
        leader, (follower, other) = partition(cluster).leader, others(cluster)
        await produce(cluster, leader, b"one")
        await all_committed(cluster, 1)
        cluster.world.network.cut(
            f"node{other}", f"node{leader}"
        )  # it is in sync, so nothing more is committed
        await produce(cluster, leader, b"two", acks=1)
        await until(lambda: replica(cluster, follower).log.end_offset == 2)
        fetched = await fetch(cluster, follower, 0)
        assert (values(fetched), fetched.high_watermark) == ([b"one"], 1)
        for offset in (1, 2):
            fetched = await fetch(cluster, follower, offset, max_wait_ms=100)
            assert (fetched.error_code, values(fetched)) == (0, []), offset
        waiting = cluster.world.spawn(fetch(cluster, follower, 1, max_wait_ms=LONG_MS))
        cluster.world.network.heal(f"node{other}", f"node{leader}")
        assert values(await waiting) == [b"two"]

    run(scenario)


def test_offsets_that_a_follower_does_not_have_are_out_of_range() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader, follower = partition(cluster).leader, others(cluster)[0]
        await produce(cluster, leader, b"one")
        await all_committed(cluster, 1)
        for offset in (-1, 2):
            fetched = await fetch(cluster, follower, offset, max_wait_ms=LONG_MS)
            assert fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE, offset

    run(scenario)


def test_who_may_not_read_from_a_follower() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader, (follower,) = partition(cluster).leader, others(cluster)
        stranger = 6 - leader - follower
        await produce(cluster, leader, b"one")
        await all_committed(cluster, 1)
        epoch = partition(cluster).leader_epoch

        async def code(node_id: int, **options: Any) -> int:
            return int((await fetch(cluster, node_id, 0, **options)).error_code)

        assert await code(follower, epoch=epoch) == ErrorCode.NONE
        assert await code(follower, version=11) == ErrorCode.NONE
        assert await code(follower, version=10) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "an older client"
        assert await code(stranger) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "no replica is there"
        assert await code(follower, epoch=epoch + 1) == ErrorCode.UNKNOWN_LEADER_EPOCH
        cluster.machines[leader].cut_power()
        await until(lambda: partition(cluster, stranger).leader == follower)
        await cluster.start(leader)
        await until(lambda: replica(cluster, leader).follower is not None)
        assert await code(leader, epoch=epoch) == ErrorCode.FENCED_LEADER_EPOCH

    run(scenario, replicas=2)


def test_consumers_that_wait_at_a_follower_are_told_when_it_becomes_the_leader() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader, followers = partition(cluster).leader, others(cluster)
        epoch = partition(cluster).leader_epoch
        waiting = [
            cluster.world.spawn(fetch(cluster, node_id, 0, epoch=epoch, max_wait_ms=LONG_MS))
            for node_id in followers
        ]
        await asyncio.sleep(1)  # of virtual time, in which they arrive
        await cluster.machines[leader].stop()
        assert [(await fetched).error_code for fetched in waiting] == [ErrorCode.FENCED_LEADER_EPOCH] * 2

    run(scenario)


def test_a_follower_says_which_transactions_were_aborted_and_stops_at_open_ones() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader, follower = partition(cluster).leader, others(cluster)[0]
        await produce(cluster, leader, b"before")
        write_transactionally(cluster, leader, 0, b"aborted")
        end_transaction(cluster, leader, is_commit=False)
        await produce(cluster, leader, b"after")
        write_transactionally(cluster, leader, 1, b"open")
        await produce(cluster, leader, b"behind")
        await all_committed(cluster, 6)
        fetched = await fetch(cluster, follower, 0, isolation_level=READ_COMMITTED)
        assert (fetched.high_watermark, fetched.last_stable_offset) == (6, 4)
        assert values(fetched) == [b"before", b"aborted", b"after"]
        aborted = [(one.producer_id, one.first_offset) for one in fetched.aborted_transactions]
        assert aborted == [(PRODUCER, 1)]
        waiting = fetch(cluster, follower, 4, isolation_level=READ_COMMITTED, max_wait_ms=LONG_MS)
        task = cluster.world.spawn(waiting)
        end_transaction(cluster, leader, is_commit=True)
        fetched = await task
        assert (values(fetched), fetched.aborted_transactions) == ([b"open", b"behind"], [])
        assert len(values(await fetch(cluster, follower, 0))) == 5, "without isolation, all of them"

    run(scenario)


def write_transactionally(cluster: Cluster, leader: int, sequence: int, value: bytes) -> None:
    role = replica(cluster, leader).leader
    batch = build_batch(
        [Record(0, 1_700_000_000_000, None, value)],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    producers = role.log.producers
    verification = producers.begin_verification(PRODUCER, 0, sequence, 1_700_000_000_000, False)
    role.append(batch, read_header(batch), 1_700_000_000_000, verification=verification)


def end_transaction(cluster: Cluster, leader: int, *, is_commit: bool) -> None:
    replica(cluster, leader).leader.append_marker(
        TransactionEnd(
            producer_id=PRODUCER,
            producer_epoch=0,
            coordinator_epoch=0,
            is_commit=is_commit,
            transaction_version=0,
        ),
        1_700_000_000_000,
    )
