"""Fetches of replicas in their sessions: what is looked at, what is answered, and what that means for the ISR."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.api.fetch import follower_session
from odradek.api.fetch.follower import FollowerFetch
from odradek.apis.table import BROKER
from odradek.errors import ErrorCode
from odradek.fetching.sessions import FetchSession
from odradek.metadata.records import PartitionChangeRecord
from odradek.records.batch import read_header
from odradek.records.record import Record, build_batch
from odradek.services.cluster import controller_duties
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.in_process import InProcess

VERSION = 17
REPLICA = 2
TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def broker_2_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is not registered."""
    monkeypatch.setattr(controller_duties, "empty_isrs_of_inactive", lambda *_: [])


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that fetches have looked at."""
    seen: list[int] = []

    def count(name: str) -> None:
        read = getattr(FollowerFetch, name)

        def counted(self: FollowerFetch, wanted: Any, size_so_far: int) -> Any:
            before = len(seen)
            response = read(self, wanted, size_so_far)
            if len(seen) == before:  # one of them may call the other
                seen.append(wanted.asked.partition)
            return response

        monkeypatch.setattr(FollowerFetch, name, counted)

    count("read_first")
    count("read_partition")
    return seen


class Following:
    """Broker 2, as broker 1 sees it: a follower of all partitions of topic t."""

    def __init__(self, broker: InProcess, partitions: int) -> None:
        self.broker = broker
        self.offsets = dict.fromkeys(range(partitions), 0)
        self.session_id, self.session_epoch = 0, 0

    @property
    def topic_id(self) -> Any:
        return self.broker.broker.metadata.image.topics["t"].id

    def leader(self, index: int = 0) -> Any:
        return self.broker.broker.replicas.leader("t", index)

    def request(self, *moved: int, forget: tuple[int, ...] = (), max_wait_ms: int = 0) -> FetchRequest:
        named = self.offsets if self.session_epoch == 0 else moved
        partitions = [
            FetchPartition(index, self.leader(index).leader_epoch, self.offsets[index], -1, 0, 1 << 20)
            for index in named
        ]
        return FetchRequest(
            replica_state=ReplicaState(REPLICA, 1),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=self.topic_id, partitions=list(forget))]
            if forget
            else [],
        )

    async def fetch(self, *moved: int, **options: Any) -> dict[int, Any]:
        """These partitions have another offset than before. What the response says, by partition."""
        response = await self.broker.ask(self.request(*moved, **options), VERSION)
        assert response.error_code == 0
        self.session_id, self.session_epoch = response.session_id, self.session_epoch + 1
        return {one.partition_index: one for topic in response.responses for one in topic.partitions}

    def set_isr(self, *isr: int, index: int = 0) -> None:
        change = PartitionChangeRecord(index, self.topic_id, isr=list(isr))
        self.broker.broker.metadata._commit([change])

    async def produce(self, index: int, acks: int = 1) -> None:
        batch = bytes(build_batch([Record(0, 0, None, b"value")]))
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index, batch)])
        response = await self.broker.ask(ProduceRequest(None, acks, 20_000, [data]), 9)
        assert response.responses[0].partition_responses[0].error_code == 0


def run(data_dir: Path, partitions: int, scenario: Callable[[Following], Awaitable[None]]) -> None:
    async def main() -> None:
        async with InProcess(str(data_dir)) as broker:
            await broker.create_topic("t", partitions)
            following = Following(broker, partitions)
            broker.broker.metadata._commit(list(replicated(following.topic_id, partitions)))
            await scenario(following)

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


def replicated(topic_id: Any, partitions: int) -> Iterator[PartitionChangeRecord]:
    for index in range(partitions):
        yield PartitionChangeRecord(index, topic_id, replicas=[1, REPLICA], isr=[1, REPLICA])


async def settled(following: Following, looks: list[int]) -> None:
    """Everything was looked at in the session."""
    await following.fetch()
    await following.fetch()
    looks.clear()


def test_of_a_thousand_idle_partitions_none_is_looked_at(tmp_path: Path, looks: list[int]) -> None:
    async def scenario(following: Following) -> None:
        assert len(await following.fetch()) == len(looks) == 1000, "a full fetch"
        looks.clear()
        for _ in range(3):
            assert await following.fetch() == {}
        assert looks == []
        await following.produce(7)
        responses = await following.fetch()
        assert list(responses) == [7] and responses[7].records
        assert looks == [7]
        following.offsets[7] = 1
        told = [await following.fetch(7)]
        while following.leader(7).high_watermark == 0:
            await asyncio.sleep(0)
        told += [await following.fetch(), await following.fetch()]
        assert [one[7].high_watermark for one in told if one] == [1], "told once"
        assert set(looks) == {7}
        looks.clear()
        assert await following.fetch() == {} and looks == []

    run(tmp_path, 1000, scenario)


def test_what_was_not_taken_is_sent_again(tmp_path: Path, looks: list[int]) -> None:
    async def scenario(following: Following) -> None:
        await settled(following, looks)
        await following.produce(0)
        for _ in range(3):
            responses = await following.fetch()
            assert list(responses) == [0] and responses[0].records

    run(tmp_path, 3, scenario)


def test_an_append_wakes_a_fetch_that_waits(tmp_path: Path, looks: list[int]) -> None:
    async def scenario(following: Following) -> None:
        await settled(following, looks)
        waiting = asyncio.ensure_future(following.fetch(max_wait_ms=50_000))
        await asyncio.sleep(0)
        assert looks == []
        await following.produce(1)
        responses = await waiting
        assert list(responses) == [1] and responses[1].records and looks == [1]

    run(tmp_path, 3, scenario)


def test_a_high_watermark_is_told_when_the_wait_is_over(tmp_path: Path, looks: list[int]) -> None:
    async def scenario(following: Following) -> None:
        await settled(following, looks)
        await following.produce(2)
        await following.fetch()
        following.offsets[2] = 1
        leader = following.leader(2)
        waiting = asyncio.ensure_future(following.fetch(2, max_wait_ms=300))
        while leader.high_watermark == 0:
            await asyncio.sleep(0)
        assert (await waiting)[2].high_watermark == 1

    run(tmp_path, 3, scenario)


def test_a_deleted_record_is_told_within_some_fetches(
    tmp_path: Path, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(following: Following) -> None:
        await following.produce(0)
        following.offsets[0] = 1
        await settled(following, looks)
        leader = following.leader()
        while leader.high_watermark == 0:
            await asyncio.sleep(0)
        await settled(following, looks)
        leader.log.delete_records_before(1)
        assert await following.fetch() == {}, "nobody tells of it"
        monkeypatch.setattr(follower_session, "LOOK_AT_ALL_MS", 0)
        assert (await following.fetch())[0].log_start_offset == 1

    run(tmp_path, 3, scenario)


def test_a_partition_that_is_forgotten_is_not_watched(tmp_path: Path, looks: list[int]) -> None:
    async def scenario(following: Following) -> None:
        await settled(following, looks)
        assert following.leader(1).has_waiters
        await following.fetch(forget=(1,))
        assert not following.leader(1).has_waiters
        await following.produce(1)
        assert await following.fetch() == {} and looks == []

    run(tmp_path, 3, scenario)


def test_a_session_that_is_over_watches_nothing(tmp_path: Path, looks: list[int]) -> None:
    async def scenario(following: Following) -> None:
        await settled(following, looks)
        request = following.request()
        request.session_epoch = -1  # the last fetch of this session
        await following.broker.ask(request, VERSION)
        assert not any(following.leader(index).has_waiters for index in range(3))

    run(tmp_path, 3, scenario)


def test_a_replica_has_one_session(tmp_path: Path, looks: list[int]) -> None:
    """One that has lost its connection begins another, and nothing is left of the first."""

    async def scenario(following: Following) -> None:
        await settled(following, looks)
        first = following.session_id
        waiters = [len(following.leader(index)._end_waiters) for index in range(3)]
        following.session_id = following.session_epoch = 0
        await settled(following, looks)
        sessions = following.broker.broker.services.road(BROKER).handler(FetchRequest.API_KEY).sessions
        assert sessions.get(first) is None and len(sessions) == 1
        assert waiters == [1, 1, 1] == [len(following.leader(index)._end_waiters) for index in range(3)]

    run(tmp_path, 3, scenario)


def test_the_end_of_an_epoch_is_told_at_once(tmp_path: Path, looks: list[int]) -> None:
    async def scenario(following: Following) -> None:
        await settled(following, looks)
        waiting = asyncio.ensure_future(following.fetch(max_wait_ms=50_000))
        await asyncio.sleep(0)
        metadata = following.broker.broker.metadata
        metadata._commit([PartitionChangeRecord(1, following.topic_id, leader=1)])
        responses = await waiting
        assert list(responses) == [1] and responses[1].error_code != 0

    run(tmp_path, 3, scenario)


# --- the ISR ---


def test_an_idle_replica_is_not_taken_for_one_that_lags(tmp_path: Path, looks: list[int]) -> None:
    """It has fetched all the time, and had everything: that its partition was not looked at does not count."""

    async def scenario(following: Following) -> None:
        await settled(following, looks)
        leader = following.leader()
        leader.progress[REPLICA].last_caught_up_ms = -100_000  # long ago, as if it had been idle since
        await following.fetch()
        assert looks == []
        await following.produce(0)
        now_ms = following.broker.broker.services.node.host.steady_ms()
        assert leader.lagging_replicas(now_ms, max_lag_ms=30_000) == frozenset()
        assert leader.lagging_replicas(now_ms + 31_000, max_lag_ms=30_000) == {REPLICA}

    run(tmp_path, 3, scenario)


def test_a_new_high_watermark_does_not_make_it_lag(tmp_path: Path, looks: list[int]) -> None:
    """Another replica was behind, and nothing was written meanwhile: this one had everything until the next write."""

    async def scenario(following: Following) -> None:
        await settled(following, looks)
        leader = following.leader()
        leader.progress[REPLICA].last_caught_up_ms = -100_000
        await following.fetch()
        leader._high_watermark_waiters.wake()
        await following.produce(0)
        now_ms = following.broker.broker.services.node.host.steady_ms()
        assert leader.lagging_replicas(now_ms, max_lag_ms=30_000) == frozenset()

    run(tmp_path, 3, scenario)


def test_a_replica_out_of_the_isr_is_looked_at_until_it_is_back(tmp_path: Path, looks: list[int]) -> None:
    async def scenario(following: Following) -> None:
        await settled(following, looks)
        following.set_isr(1, index=1)
        for _ in range(3):
            await following.fetch()
        assert looks == [1, 1, 1]
        following.set_isr(1, REPLICA, index=1)
        await following.fetch()
        looks.clear()
        await following.fetch()
        assert looks == []

    run(tmp_path, 3, scenario)


@pytest.mark.parametrize("in_session", [True, False])
def test_a_replica_out_of_the_isr_is_woken_by_an_append(
    tmp_path: Path, looks: list[int], in_session: bool
) -> None:
    """It may join any moment, and then writes wait for it."""

    async def scenario(following: Following) -> None:
        if in_session:
            await settled(following, looks)
        following.set_isr(1, index=1)
        waiting = asyncio.ensure_future(following.fetch(max_wait_ms=50_000))
        await asyncio.sleep(0)
        await following.produce(1)
        responses = await waiting
        assert responses[1].records

    run(tmp_path, 3, scenario)


def test_a_fetch_without_a_session_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scenario(following: Following) -> None:
        following.session_epoch = -1
        request = following.request(0, 1, 2, max_wait_ms=50_000)
        waiting = asyncio.ensure_future(following.broker.ask(request, VERSION))
        await asyncio.sleep(0)
        assert all(following.leader(index).has_waiters for index in range(3))
        await following.produce(1)
        response = await waiting
        assert response.session_id == 0 and len(response.responses[0].partitions) == 3
        assert not any(following.leader(index)._end_waiters for index in range(3))

    run(tmp_path, 3, scenario)


def test_what_changes_while_a_large_fetch_is_read_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append comes after its partition was read, and before the fetch waits."""
    monkeypatch.setattr("odradek.api.fetch.handler.MANY_PARTITIONS", 1)

    async def scenario(following: Following) -> None:
        await following.fetch()
        begin_wait = FollowerFetch.begin_wait

        def append_and_begin(self: FollowerFetch) -> None:
            batch = build_batch([Record(0, 0, None, b"x")])
            following.leader(0).append(batch, read_header(batch), 0)
            begin_wait(self)

        monkeypatch.setattr(FollowerFetch, "begin_wait", append_and_begin)
        responses = await following.fetch(0, 1, 2, max_wait_ms=50_000)
        assert list(responses) == [0] and responses[0].records

    run(tmp_path, 3, scenario)


class FakeClock:
    """A clock that is set by hand, and the one timer that is running."""

    def __init__(self) -> None:
        self.now_ms, self.timers = 0, [(0, lambda: None)]
        self.deadlines = self

    def steady_ms(self) -> int:
        return self.now_ms

    def add(self, delay_ms: float, callback: Callable[[], None]) -> Any:
        self.timers.append((self.now_ms + int(delay_ms), callback))
        return SimpleNamespace(cancel=lambda: None)

    def fire(self) -> None:
        self.now_ms, callback = self.timers[-1]
        callback()


def test_waits_share_a_timer_and_each_ends_when_its_own_time_is_up() -> None:
    clock: Any = FakeClock()
    known = follower_session.FollowerSession(FetchSession(1, True), REPLICA, clock, 0)
    ended: list[str] = []

    def wait(name: str, until_ms: int) -> Any:
        fetch: Any = SimpleNamespace(until_ms=until_ms, time_out=lambda: ended.append(name))
        known.wait(fetch)
        return fetch

    wait("answered", 500)
    known.waiting = None  # it was answered
    clock.now_ms = 100
    wait("late", 600)
    assert [when for when, _ in clock.timers[1:]] == [500], "no second timer"
    clock.fire()
    assert ended == [] and clock.timers[-1][0] == 600
    clock.fire()
    assert ended == ["late"] and clock.now_ms == 600
    known.waiting = None
    wait("patient", 2_000)
    known.waiting = None
    wait("impatient", 700)
    clock.fire()
    assert ended == ["late", "impatient"] and clock.now_ms == 700


def test_a_replica_that_does_not_wait_for_its_response_gets_both(tmp_path: Path) -> None:
    async def scenario(following: Following) -> None:
        await following.fetch()
        await following.fetch()
        requests = [following.request(max_wait_ms=60_000), following.request(max_wait_ms=100)]
        requests[1].session_epoch += 1
        responses = await asyncio.gather(*(following.broker.ask(one, VERSION) for one in requests))
        assert [one.error_code for one in responses] == [0, 0]

    run(tmp_path, 1, scenario)


def test_a_topic_that_only_the_follower_knows_is_nothing_to_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It learned of it first. A consumer that asks for such a topic is told of."""

    async def scenario(following: Following) -> None:
        unknown = FetchTopic(topic_id=UUID(int=7), partitions=[FetchPartition(0, 0, 0, -1, 0, 1 << 20)])
        for replica, lines in ((REPLICA, 0), (-1, 1)):
            caplog.clear()
            request = FetchRequest(replica_state=ReplicaState(replica, 1), topics=[unknown])
            response = await following.broker.ask(request, VERSION)
            assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
            told = [one for one in caplog.records if one.name == "odradek.serving.refused"]
            assert len(told) == lines

    with caplog.at_level("INFO", logger="odradek"):
        run(tmp_path, 1, scenario)
