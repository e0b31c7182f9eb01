"""Each fault, on a broker in the test's own event loop: what the client hears, what was done, and in which order."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.apis.messages import request_type
from odradek.errors import ErrorCode
from odradek.records.record import Record, build_batch
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.index import SCHEMAS
from odradek.wire.messages.join_group import JoinGroupRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.faults.wire import FaultyInProcess, Wire, produce_request, until
from tests.serving.sample_requests import sample
from tests.serving.test_refusal import VERSIONS, WITHOUT_A_PLACE, error_codes, name_of

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
NAMED, BY_ID = 9, 13  # versions of Produce
Scenario = Callable[[FaultyInProcess], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Scenario], None]:
    async def with_a_broker(scenario: Scenario) -> None:
        async with FaultyInProcess(str(tmp_path / "data")) as broker:
            await broker.create_topic("t", partitions=2)
            await broker.create_topic("other")
            await scenario(broker)

    return lambda scenario: asyncio.run(asyncio.wait_for(with_a_broker(scenario), 120))


def produced(response: Any) -> dict[tuple[str, int], int]:
    """Error codes by topic and partition."""
    return {
        (topic.name or topic.topic_id, partition.index): partition.error_code
        for topic in response.responses
        for partition in topic.partition_responses
    }


# --- errors ---


@pytest.mark.parametrize("api", VERSIONS, ids=name_of)
def test_every_api_and_version_can_be_answered_with_an_error(
    api: tuple[int, int], tmp_path: Path, run: Callable[[Scenario], None]
) -> None:
    api_key, version = api
    error = ErrorCode.INVALID_FETCH_SESSION_EPOCH  # which Fetch, too, has at its top

    async def scenario(broker: FaultyInProcess) -> None:
        fault = broker.answer(SCHEMAS[api_key].name, error)
        wire = broker.connect()
        response = await wire.ask(sample(request_type(api_key), version), version)
        codes = {code for code in error_codes(response, version) if code}
        assert codes == (set() if api in WITHOUT_A_PLACE else {error})
        assert (fault.fired, broker.fired) == (1, [fault.id])

    run(scenario)


def test_the_next_requests_are_refused_and_nothing_is_done_for_them(run: Callable[[Scenario], None]) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        fault = broker.answer("Produce", NOT_LEADER, times=2)
        wire = broker.connect()
        wire.send(*((produce_request(("t", 0), value=value), NAMED) for value in (b"1", b"2", b"3")))
        codes = [produced(response)["t", 0] for response in await wire.receive(3)]
        assert codes == [NOT_LEADER, NOT_LEADER, 0]
        assert broker.stored("t") == [b"3"]
        assert fault.fired == 2

    run(scenario)


def test_a_request_can_be_done_and_answered_with_an_error(run: Callable[[Scenario], None]) -> None:
    """A client that tries again does it twice: that is how duplicates come about."""

    async def scenario(broker: FaultyInProcess) -> None:
        broker.answer("Produce", ErrorCode.REQUEST_TIMED_OUT, after_handling=True)
        wire = broker.connect()
        first = await wire.ask(produce_request(("t", 0)), NAMED)
        again = await wire.ask(produce_request(("t", 0)), NAMED)
        assert (produced(first)["t", 0], produced(again)["t", 0]) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert first.responses[0].partition_responses[0].base_offset == -1
        assert again.responses[0].partition_responses[0].base_offset == 1
        assert broker.stored("t") == [b"x", b"x"]

    run(scenario)


@pytest.mark.parametrize("after_handling", [False, True])
def test_what_else_the_request_names_is_handled_as_ever(
    run: Callable[[Scenario], None], after_handling: bool
) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        broker.answer("Produce", NOT_LEADER, topic="t", partition=0, after_handling=after_handling)
        response = await broker.connect().ask(produce_request(("t", 0), ("t", 1), ("other", 0)), NAMED)
        assert produced(response) == {("t", 0): NOT_LEADER, ("t", 1): 0, ("other", 0): 0}
        assert len(response.responses) == 2, "each topic is named once"
        assert broker.stored("t") == ([b"x"] if after_handling else [])
        assert broker.stored("other") == [b"x"]

    run(scenario)


def test_a_request_that_does_not_name_the_topic_does_not_meet_the_fault(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        fault = broker.answer("Produce", NOT_LEADER, topic="t")
        wire = broker.connect()
        assert produced(await wire.ask(produce_request(("other", 0)), NAMED)) == {("other", 0): 0}
        assert fault.fired == 0
        assert produced(await wire.ask(produce_request(("t", 1)), NAMED)) == {("t", 1): NOT_LEADER}
        assert fault.fired == 1

    run(scenario)


def test_a_topic_is_known_by_its_id_too(run: Callable[[Scenario], None]) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        topic_id = broker.home.broker.metadata.image.topics["t"].id
        request = produce_request(("t", 0), ("other", 0))
        for topic in request.topic_data:
            topic.topic_id = broker.home.broker.metadata.image.topics[topic.name].id
        broker.answer("Produce", NOT_LEADER, topic="t")
        response = await broker.connect().ask(request, BY_ID)
        assert produced(response)[topic_id, 0] == NOT_LEADER
        assert sorted(produced(response).values()) == [0, NOT_LEADER]
        broker.answer("DeleteTopics", ErrorCode.NOT_CONTROLLER, topic="t", after_handling=True)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(None, topic_id)], timeout_ms=1000)
        (deleted,) = (await broker.connect().ask(request, 6)).responses
        assert deleted.error_code == ErrorCode.NOT_CONTROLLER
        assert "t" not in broker.home.broker.metadata.image.topics

    run(scenario)


def test_a_client_can_be_singled_out(run: Callable[[Scenario], None]) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        broker.answer("ApiVersions", ErrorCode.UNSUPPORTED_VERSION, client_id="one", times=None)
        for client_id, code in (("two", 0), ("one", ErrorCode.UNSUPPORTED_VERSION)):
            response = await broker.connect(client_id).ask(ApiVersionsRequest(), 0)
            assert response.error_code == code

    run(scenario)


@pytest.mark.parametrize(
    ("request_of", "version"),
    [
        (lambda group: HeartbeatRequest(group, 1, "m"), 4),
        (lambda group: FindCoordinatorRequest(key=group), 3),
        (lambda group: FindCoordinatorRequest(coordinator_keys=[group]), 6),
        (lambda group: OffsetFetchRequest(group_id=group, topics=None), 7),
        (lambda group: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)]), 9),
    ],
    ids=["heartbeat", "find coordinator", "find coordinators", "offset fetch", "offset fetch of groups"],
)
def test_a_group_can_be_singled_out(
    run: Callable[[Scenario], None], request_of: Callable[[str], Any], version: int
) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        api = SCHEMAS[request_of("").API_KEY].name
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        fault = broker.answer(api, error, group="mine", times=None)
        wire = broker.connect()
        assert error not in error_codes(await wire.ask(request_of("another"), version), version)
        assert fault.fired == 0
        assert error in error_codes(await wire.ask(request_of("mine"), version), version)
        assert fault.fired == 1

    run(scenario)


def test_one_of_several_groups_is_refused(run: Callable[[Scenario], None]) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        broker.answer("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE, group="b")
        request = FindCoordinatorRequest(coordinator_keys=["a", "b", "c"])
        response = await broker.connect().ask(request, 6)
        codes = {found.key: found.error_code for found in response.coordinators}
        assert codes == {"a": 0, "b": ErrorCode.COORDINATOR_NOT_AVAILABLE, "c": 0}

    run(scenario)


# --- Fetch and Metadata ---


def fetch_request(broker: FaultyInProcess, session_id: int, epoch: int, *partitions: int) -> FetchRequest:
    wanted = [FetchPartition(partition, partition_max_bytes=1 << 20) for partition in partitions]
    topic_id = broker.home.broker.metadata.image.topics["t"].id
    topics = [FetchTopic(topic_id, "t", wanted)] if wanted else []
    return FetchRequest(
        max_wait_ms=60_000, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics
    )


def fetched(response: Any) -> dict[int, int]:
    return {
        each.partition_index: each.error_code for topic in response.responses for each in topic.partitions
    }


@pytest.mark.parametrize("version", [6, 12, 17])
def test_a_fetch_is_refused_at_once_for_each_of_its_partitions(
    run: Callable[[Scenario], None], version: int
) -> None:
    """Though there is nothing to read, and it would have waited for that."""

    async def scenario(broker: FaultyInProcess) -> None:
        broker.answer("Fetch", NOT_LEADER)
        response = await broker.connect().ask(fetch_request(broker, 0, -1, 0, 1), version)
        assert response.error_code == 0
        assert fetched(response) == {0: NOT_LEADER, 1: NOT_LEADER}

    run(scenario)


def test_a_fetch_in_a_session_names_no_partition_and_is_refused_all_the_same(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        wire = broker.connect()
        first = fetch_request(broker, 0, 0, 0, 1)
        first.max_wait_ms = 0
        session = (await wire.ask(first, 17)).session_id
        assert session
        await wire.ask(produce_request(("t", 0)), NAMED)
        broker.answer("Fetch", NOT_LEADER, topic="t", partition=1, times=2)
        for epoch in (1, 2):  # the session goes on
            response = await wire.ask(fetch_request(broker, session, epoch), 17)
            assert (response.error_code, response.session_id) == (0, session)
            assert fetched(response) == {0: 0, 1: NOT_LEADER}
            records = [each.records for topic in response.responses for each in topic.partitions]
            assert sorted(len(found or b"") > 0 for found in records) == [False, True]

    run(scenario)


@pytest.mark.parametrize(
    "topics", [None, [MetadataRequestTopic(name="t"), MetadataRequestTopic(name="other")]]
)
def test_metadata_with_an_error_still_names_the_brokers(
    run: Callable[[Scenario], None], topics: list[MetadataRequestTopic] | None
) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        broker.answer("Metadata", ErrorCode.LEADER_NOT_AVAILABLE, topic="t")
        response = await broker.connect().ask(MetadataRequest(topics), 12)
        assert len(response.brokers) == 1
        codes = {topic.name: topic.error_code for topic in response.topics}
        assert codes == {"t": ErrorCode.LEADER_NOT_AVAILABLE, "other": 0}

    run(scenario)


def test_metadata_that_is_refused_creates_no_topic(run: Callable[[Scenario], None]) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        broker.answer("Metadata", ErrorCode.LEADER_NOT_AVAILABLE)
        response = await broker.connect().ask(MetadataRequest([MetadataRequestTopic(name="new")]), 12)
        assert [topic.error_code for topic in response.topics] == [ErrorCode.LEADER_NOT_AVAILABLE]
        assert "new" not in broker.home.broker.metadata.image.topics

    run(scenario)


# --- responses ---


def test_a_delayed_response_delays_those_behind_it_and_no_other(run: Callable[[Scenario], None]) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        fault = broker.arm("delay", "Produce", seconds=3600)
        wire, other = broker.connect(), broker.connect()
        wire.send((produce_request(("t", 0)), NAMED), (ApiVersionsRequest(), 0))
        await until(lambda: fault.fired)
        await other.ask(ApiVersionsRequest(), 0)
        assert broker.stored("t") == [b"x"]
        assert wire.responses() == []
        broker.plan.undo(fault.id)
        delayed, behind = await wire.receive(2)
        assert produced(delayed) == {("t", 0): 0}
        assert behind.api_keys

    run(scenario)


def test_a_delay_ends_by_itself(run: Callable[[Scenario], None]) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        fault = broker.arm("delay", "ApiVersions", seconds=0.01)
        await broker.connect().ask(ApiVersionsRequest(), 0)
        assert fault.fired == 1
        assert fault.endings == []

    run(scenario)


def test_behind_a_lost_response_nothing_comes_and_the_connection_is_closed_when_that_is_undone(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        fault = broker.arm("lose", "Produce")
        wire = broker.connect()
        wire.send((ApiVersionsRequest(), 0), (produce_request(("t", 0)), NAMED), (ApiVersionsRequest(), 0))
        await until(lambda: fault.fired)
        assert broker.stored("t") == [b"x"]
        assert len(wire.responses()) == 1
        assert not wire.closed
        broker.plan.clear()
        assert wire.closed == "a response on it was lost, as the test asked for"

    run(scenario)


# --- held requests ---


def test_a_held_request_holds_those_behind_it_and_no_other_connection(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        fault = broker.arm("hold", "Produce", topic="t", partition=1)
        wire, other = broker.connect(), broker.connect()
        requests = [(("t", 0), b"before"), (("t", 1), b"held"), (("t", 0), b"behind")]
        wire.send(*((produce_request(where, value=value), NAMED) for where, value in requests))
        assert fault.fired == 1
        assert len(await wire.receive(1)) == 1
        await other.ask(produce_request(("t", 0), value=b"other"), NAMED)
        assert broker.stored("t") == [b"before", b"other"]
        broker.plan.release(fault.id)
        assert [produced(response) for response in await wire.receive(2)] == [{("t", 1): 0}, {("t", 0): 0}]
        assert broker.stored("t") == [b"before", b"other", b"behind"]

    run(scenario)


def test_a_request_before_it_in_the_same_read_may_take_long(run: Callable[[Scenario], None]) -> None:
    """Many keyed records are looked at in a thread: requests behind them wait for that, and so does the held one."""

    async def scenario(broker: FaultyInProcess) -> None:
        await broker.home.create_topic("keyed", cleanup_policy="compact")
        many = produce_request(("keyed", 0))
        records = [Record(at, 0, b"k", b"v") for at in range(20_000)]
        many.topic_data[0].partition_data[0].records = bytes(build_batch(records))
        fault = broker.arm("hold", "Produce", topic="t")
        wire = broker.connect()
        wire.send((many, NAMED), (produce_request(("t", 0)), NAMED))
        assert [produced(response) for response in await wire.receive(1)] == [{("keyed", 0): 0}]
        assert (fault.fired, broker.stored("t")) == (1, [])
        broker.plan.release(fault.id)
        assert [produced(response) for response in await wire.receive(1)] == [{("t", 0): 0}]

    run(scenario)


def test_a_hold_can_end_by_itself(run: Callable[[Scenario], None]) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        fault = broker.arm("hold", "ApiVersions", seconds=0.01)
        assert (await broker.connect().ask(ApiVersionsRequest(), 0)).api_keys
        assert (fault.fired, fault.endings) == (1, [])

    run(scenario)


def test_a_held_request_is_carried_out_though_its_client_is_gone(run: Callable[[Scenario], None]) -> None:
    """A request that comes late: the client has long done something else."""

    async def scenario(broker: FaultyInProcess) -> None:
        fault = broker.arm("hold", "Produce")
        wire = broker.connect()
        wire.send((produce_request(("t", 0), value=b"late"), NAMED))
        wire.transport.close("by the client")
        await broker.connect().ask(produce_request(("t", 0), value=b"again"), NAMED)
        broker.plan.undo(fault.id)
        await until(lambda: broker.stored("t") == [b"again", b"late"])

    run(scenario)


# --- cuts ---


@pytest.mark.parametrize("after_handling", [False, True])
def test_a_connection_is_cut_before_or_after_the_request_is_carried_out(
    run: Callable[[Scenario], None], after_handling: bool
) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        fault = broker.arm("cut", "Produce", topic="t", partition=1, after_handling=after_handling)
        wire, other = broker.connect(), broker.connect()
        wire.send(
            (produce_request(("t", 0), value=b"before"), NAMED),
            (produce_request(("t", 1), ("other", 0)), NAMED),
        )
        await until(lambda: fault.fired)
        assert wire.closed == "the test asked for a cut"
        await until(lambda: broker.stored("t") == [b"before"])
        assert broker.stored("other") == ([b"x"] if after_handling else [])
        assert (await other.ask(ApiVersionsRequest(), 0)).api_keys

    run(scenario)


def test_a_member_that_waits_in_a_rebalance_can_lose_its_connection(run: Callable[[Scenario], None]) -> None:
    """A response that comes later than its request, from a coordinator's callback."""

    async def scenario(broker: FaultyInProcess) -> None:
        wire = broker.connect()
        while True:
            found = await wire.ask(FindCoordinatorRequest(key="g"), 3)
            if found.error_code == 0:
                break
        fault = broker.arm("cut", "JoinGroup", group="g", after_handling=True)
        wire.send((JoinGroupRequest(group_id="g", session_timeout_ms=6000, protocol_type="consumer"), 3))
        await until(lambda: fault.fired)
        assert wire.closed

    run(scenario)


def test_a_fault_that_is_undone_spares_the_request_that_it_was_to_happen_to(
    run: Callable[[Scenario], None],
) -> None:
    """A Fetch waits for data, and is to be answered with an error then; but by then the test is over."""

    async def scenario(broker: FaultyInProcess) -> None:
        fault = broker.answer("Fetch", NOT_LEADER, after_handling=True)
        request = fetch_request(broker, 0, -1, 0)
        request.max_wait_ms = 50
        wire = broker.connect()
        wire.send((request, 12))
        assert (fault.taken, fault.fired) == (1, 0)
        broker.plan.clear()
        (response,) = await wire.receive(1)
        assert fetched(response) == {0: 0}
        assert fault.fired == 0

    run(scenario)


# --- acks=0 ---


@pytest.mark.parametrize("kind", ["delay", "lose"])
def test_where_no_response_is_due_none_can_be_delayed_or_lost(
    run: Callable[[Scenario], None], kind: str
) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        fault = broker.arm(kind, "Produce", seconds=3600)
        wire = broker.connect()
        wire.send((produce_request(("t", 0), acks=0), NAMED), (ApiVersionsRequest(), 0))
        assert len(wire.transport.sent) == 1, "nothing is behind a response that is not due"
        assert (broker.stored("t"), fault.taken) == ([b"x"], 0)
        wire.send((produce_request(("t", 0)), NAMED))
        await until(lambda: fault.fired)

    run(scenario)


def test_an_error_of_a_produce_without_acks_closes_the_connection(run: Callable[[Scenario], None]) -> None:
    async def scenario(broker: FaultyInProcess) -> None:
        broker.answer("Produce", NOT_LEADER)
        wire: Wire = broker.connect()
        wire.send((produce_request(("t", 0), acks=0), NAMED))
        assert "acks=0" in wire.closed
        assert broker.stored("t") == []

    run(scenario)
