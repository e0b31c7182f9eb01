"""An error of a whole request is a response, of every API and version, not a closed connection."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.fetch.consumer import ConsumerFetch
from odradek.apis.items import refuse, refuse_undone
from odradek.apis.messages import request_type, response_type
from odradek.apis.row import Handling
from odradek.apis.table import APIS, BROKER, CONTROLLER, SERVED
from odradek.errors import ErrorCode, KafkaError
from odradek.serving import registry
from odradek.serving.request import Request
from odradek.wire.codec import Steps, drain, encode, read_message
from odradek.wire.frame import encode_request
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsResponse
from odradek.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.index import SCHEMAS
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.schema import fields_of
from tests.broker.in_process import InProcess, put
from tests.broker.test_large_requests import ALLOWED_CALLS, CountedBroker, Work
from tests.serving.sample_requests import sample

NOT_CONTROLLER = KafkaError(ErrorCode.NOT_CONTROLLER, "Ask node 3.")
VERSIONS = [
    (api_key, version)
    for api_key, api in SERVED[BROKER].items()
    for version in range(api.min_version, api.max_version + 1)
]
CONTROLLER_VERSIONS = [
    (api_key, version)
    for api_key, api in SERVED[CONTROLLER].items()
    if api_key not in SERVED[BROKER]
    for version in range(api.min_version, api.max_version + 1)
]
PRODUCE, DESCRIBE_LOG_DIRS = 0, 35
# Kafka has no place for an error of the whole request there, and sends an empty response.
WITHOUT_A_PLACE = {(DESCRIBE_LOG_DIRS, 1), (DESCRIBE_LOG_DIRS, 2)}


def name_of(version: tuple[int, int]) -> str:
    return f"{SCHEMAS[version[0]].module}-v{version[1]}"


def refused(api_key: int, version: int) -> tuple[Any, Any]:
    """A request, and its refusal as the client reads it."""
    request = sample(request_type(api_key), version)
    response = drain(refuse(request, version, NOT_CONTROLLER))
    return request, read_message(response_type(api_key), version, bytes(encode(response, version)))[0]


def error_codes(struct: Any, version: int) -> Iterator[int]:
    """Every code that this version of a response carries, at any depth."""
    for field in fields_of(type(struct)):
        value = getattr(struct, field.name)
        if field.name in ("error_code", "partition_error_code") and field.wire.is_in(version):
            yield value
        elif field.element_type == "struct" and value is not None:
            for item in value if field.is_array else [value]:
                yield from error_codes(item, version)


@pytest.mark.parametrize("api", [*VERSIONS, *CONTROLLER_VERSIONS], ids=name_of)
def test_every_code_of_the_response_says_why(api: tuple[int, int]) -> None:
    codes = list(error_codes(refused(*api)[1], api[1]))
    assert set(codes) == (set() if api in WITHOUT_A_PLACE else {ErrorCode.NOT_CONTROLLER})


def nested(topics: Any, name: str, partitions: str, index: str = "") -> list[Any]:
    return [
        (
            getattr(topic, name),
            [getattr(item, index) if index else item for item in getattr(topic, partitions)],
        )
        for topic in topics
    ]


def pairs(items: Any, *names: str) -> list[Any]:
    return [tuple(getattr(item, name) for name in names) for item in items]


Names = Callable[[Any], Any]
# The names of the items, in the request and in the response.
NAMES: dict[str, tuple[range, Names, Names]] = {
    "produce": (
        range(3, 13),
        lambda r: nested(r.topic_data, "name", "partition_data", "index"),
        lambda r: nested(r.responses, "name", "partition_responses", "index"),
    ),
    "produce by id": (
        range(13, 14),
        lambda r: nested(r.topic_data, "topic_id", "partition_data", "index"),
        lambda r: nested(r.responses, "topic_id", "partition_responses", "index"),
    ),
    "fetch": (
        range(4, 13),
        lambda r: nested(r.topics, "topic", "partitions", "partition"),
        lambda r: nested(r.responses, "topic", "partitions", "partition_index"),
    ),
    "fetch by id": (range(13, 19), lambda r: (r.session_id, []), lambda r: (r.session_id, r.responses)),
    "list_offsets": (
        range(1, 12),
        lambda r: nested(r.topics, "name", "partitions", "partition_index"),
        lambda r: nested(r.topics, "name", "partitions", "partition_index"),
    ),
    "get_replica_log_info": (
        range(1),
        lambda r: nested(r.topic_partitions, "topic_id", "partitions"),
        lambda r: nested(r.topic_partition_log_info_list, "topic_id", "partition_log_info", "partition"),
    ),
    "metadata": (
        range(14),
        lambda r: pairs(r.topics, "name", "topic_id"),
        lambda r: pairs(r.topics, "name", "topic_id"),
    ),
    "offset_commit": (
        range(2, 10),
        lambda r: nested(r.topics, "name", "partitions", "partition_index"),
        lambda r: nested(r.topics, "name", "partitions", "partition_index"),
    ),
    "offset_commit by id": (
        range(10, 11),
        lambda r: nested(r.topics, "topic_id", "partitions", "partition_index"),
        lambda r: nested(r.topics, "topic_id", "partitions", "partition_index"),
    ),
    "txn_offset_commit": (
        range(6),
        lambda r: nested(r.topics, "name", "partitions", "partition_index"),
        lambda r: nested(r.topics, "name", "partitions", "partition_index"),
    ),
    "offset_fetch first": (
        range(1, 2),
        lambda r: nested(r.topics, "name", "partition_indexes"),
        lambda r: nested(r.topics, "name", "partitions", "partition_index"),
    ),
    "offset_fetch": (range(2, 8), lambda r: [], lambda r: r.topics),
    "offset_fetch of groups": (
        range(8, 11),
        lambda r: pairs(r.groups, "group_id"),
        lambda r: pairs(r.groups, "group_id"),
    ),
    "find_coordinator": (range(4), lambda r: (-1, "", -1), lambda r: (r.node_id, r.host, r.port)),
    "find_coordinator of keys": (
        range(4, 7),
        lambda r: [(key, -1, -1) for key in r.coordinator_keys],
        lambda r: pairs(r.coordinators, "key", "node_id", "port"),
    ),
    "describe_groups": (
        range(7),
        lambda r: [(x,) for x in r.groups],
        lambda r: pairs(r.groups, "group_id"),
    ),
    "create_topics": (range(2, 8), lambda r: pairs(r.topics, "name"), lambda r: pairs(r.topics, "name")),
    "delete_topics": (
        range(1, 6),
        lambda r: [(name,) for name in r.topic_names],
        lambda r: pairs(r.responses, "name"),
    ),
    "delete_topics by id": (
        range(6, 7),
        lambda r: pairs(r.topics, "name", "topic_id"),
        lambda r: pairs(r.responses, "name", "topic_id"),
    ),
    "delete_records": (
        range(3),
        lambda r: nested(r.topics, "name", "partitions", "partition_index"),
        lambda r: nested(r.topics, "name", "partitions", "partition_index"),
    ),
    "init_producer_id": (range(6), lambda r: (-1, -1), lambda r: (r.producer_id, r.producer_epoch)),
    "offset_for_leader_epoch": (
        range(2, 5),
        lambda r: nested(r.topics, "topic", "partitions", "partition"),
        lambda r: nested(r.topics, "topic", "partitions", "partition"),
    ),
    "describe_configs": (
        range(1, 5),
        lambda r: pairs(r.resources, "resource_type", "resource_name"),
        lambda r: pairs(r.results, "resource_type", "resource_name"),
    ),
    "alter_user_scram_credentials": (
        range(1),
        lambda r: pairs(r.upsertions, "name") + pairs(r.deletions, "name"),
        lambda r: pairs(r.results, "user"),
    ),
    "alter_configs": (
        range(3),
        lambda r: pairs(r.resources, "resource_type", "resource_name"),
        lambda r: pairs(r.responses, "resource_type", "resource_name"),
    ),
    "incremental_alter_configs": (
        range(2),
        lambda r: pairs(r.resources, "resource_type", "resource_name"),
        lambda r: pairs(r.responses, "resource_type", "resource_name"),
    ),
    "create_partitions": (range(4), lambda r: pairs(r.topics, "name"), lambda r: pairs(r.results, "name")),
    "delete_groups": (
        range(3),
        lambda r: [(name,) for name in r.groups_names],
        lambda r: pairs(r.results, "group_id"),
    ),
    "elect_leaders": (
        range(3),
        lambda r: nested(r.topic_partitions, "topic", "partitions"),
        lambda r: nested(r.replica_election_results, "topic", "partition_result", "partition_id"),
    ),
    "add_partitions_to_txn": (
        range(4),
        lambda r: nested(r.v3_and_below_topics, "name", "partitions"),
        lambda r: nested(r.results_by_topic_v3_and_below, "name", "results_by_partition", "partition_index"),
    ),
    "describe_transactions": (
        range(1),
        lambda r: [(name,) for name in r.transactional_ids],
        lambda r: pairs(r.transaction_states, "transactional_id"),
    ),
    "write_txn_markers": (
        range(1, 3),
        lambda r: [nested(marker.topics, "name", "partition_indexes") for marker in r.markers],
        lambda r: [nested(marker.topics, "name", "partitions", "partition_index") for marker in r.markers],
    ),
    "describe_producers": (
        range(1),
        lambda r: nested(r.topics, "name", "partition_indexes"),
        lambda r: nested(r.topics, "name", "partitions", "partition_index"),
    ),
    "consumer_group_describe": (
        range(2),
        lambda r: [(name,) for name in r.group_ids],
        lambda r: pairs(r.groups, "group_id"),
    ),
    "create_acls": (
        range(1, 4),
        lambda r: [() for _ in r.creations],
        lambda r: [() for _ in r.results],
    ),
    "delete_acls": (
        range(1, 4),
        lambda r: [() for _ in r.filters],
        lambda r: [() for _ in r.filter_results],
    ),
    "alter_client_quotas": (
        range(2),
        lambda r: [pairs(entry.entity, "entity_type", "entity_name") for entry in r.entries],
        lambda r: [pairs(entry.entity, "entity_type", "entity_name") for entry in r.entries],
    ),
    "describe_topic_partitions": (
        range(1),
        lambda r: pairs(r.topics, "name"),
        lambda r: pairs(r.topics, "name"),
    ),
}


@pytest.mark.parametrize("what", NAMES)
def test_every_item_of_the_request_is_in_the_response(what: str) -> None:
    versions, asked, answered = NAMES[what]
    api_key = next(key for key, schema in SCHEMAS.items() if schema.module == what.split()[0])
    for version in versions:
        request, response = refused(api_key, version)
        assert answered(response) == asked(request), version


def test_each_response_without_a_code_at_its_top_is_named_above() -> None:
    named = {(name.split()[0], version) for name, (versions, _, _) in NAMES.items() for version in versions}
    for api_key, version in VERSIONS:
        fields = fields_of(response_type(api_key))
        if not any(field.name == "error_code" and field.wire.is_in(version) for field in fields):
            place = SCHEMAS[api_key].module, version
            assert place in named or (api_key, version) in WITHOUT_A_PLACE, place


def test_a_sentence_where_there_is_room_for_one() -> None:
    assert refused(19, 7)[1].topics[0].error_message == "Ask node 3."
    assert refused(60, 2)[1].error_message == "Ask node 3."


def test_lists_that_are_null_and_names_that_may_not_be() -> None:
    everything = drain(refuse(MetadataRequest(topics=None), 12, NOT_CONTROLLER))
    assert everything.topics == []  # type: ignore[attr-defined]
    by_id = MetadataRequest([MetadataRequestTopic(name=None)])
    for version, name in ((11, ""), (12, None)):
        response: Any = drain(refuse(by_id, version, NOT_CONTROLLER))
        assert response.topics[0].name == name
        encode(response, version)


# --- decided, and then not written ---


def test_what_was_refused_before_keeps_its_reason() -> None:
    decided = CreateTopicsResponse(
        topics=[
            CreatableTopicResult("bad", error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, error_message="Bad."),
            CreatableTopicResult("good", num_partitions=3, replication_factor=1),
        ]
    )
    bad, good = refuse_undone(decided, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "Full.")).topics
    assert bad == decided.topics[0]
    assert good == CreatableTopicResult(
        "good", error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message="Full."
    )


def test_a_response_about_one_thing_carries_the_code_itself() -> None:
    decided = AllocateProducerIdsResponse(producer_id_start=1000, producer_id_len=1000)
    refusal = refuse_undone(decided, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert refusal == AllocateProducerIdsResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR)


# --- through the dispatcher ---


def handler(handle: Any) -> Any:
    return SimpleNamespace(handle=handle)


def failing(error: Exception, asynchronously: bool) -> Any:
    def handle(*_: Any) -> Any:
        raise error

    async def fail() -> None:
        await asyncio.sleep(0)
        raise error

    def handle_in_steps(request: Request) -> Steps[None]:
        yield
        request.then(fail())

    def handle_later(request: Request, message: Any) -> Any:
        handling = APIS[request.api_key].handling
        if handling is Handling.IN_STEPS:
            return handle_in_steps(request)
        return fail() if handling is Handling.WAITS else request.then(fail())

    return handle_later if asynchronously else handle


@pytest.mark.plants_traceback
@pytest.mark.parametrize("asynchronously", [False, True])
@pytest.mark.parametrize("error", [NOT_CONTROLLER, RuntimeError("a bug")], ids=["expected", "unexpected"])
def test_a_handler_that_raises_is_a_response(
    error: Exception, asynchronously: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(Produce, which gathers requests, has a way of its own.)"""
    code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR

    async def scenario() -> None:
        async with InProcess(str(tmp_path)) as broker:
            monkeypatch.setattr(registry, "new_handler", lambda *_: handler(failing(error, asynchronously)))
            for api_key, version in VERSIONS:
                if api_key != PRODUCE and (api_key, version) not in WITHOUT_A_PLACE:
                    response = await broker.ask(sample(request_type(api_key), version), version)
                    assert set(error_codes(response, version)) == {code}, (api_key, version)
                    assert "a bug" not in repr(response), "what went wrong is for the log alone"

    asyncio.run(scenario())


def test_a_large_request_is_refused_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with InProcess(str(tmp_path)) as broker:
            monkeypatch.setattr(registry, "new_handler", lambda *_: handler(failing(NOT_CONTROLLER, False)))
            counted = CountedBroker(broker, Work())
            topics = [DeleteRecordsTopic("t", [DeleteRecordsPartition(index, 0) for index in range(20_000)])]
            frame = bytes(encode_request(DeleteRecordsRequest(topics, 5000), 21, 2, 1, "test"))
            await counted.ask(frame)  # imports and compiles what it needs
            counted.work.largest_turn = 0
            response = await counted.ask(frame)
            assert [item.partition_index for item in response.topics[0].partitions] == list(range(20_000))
            assert counted.work.largest_turn <= ALLOWED_CALLS

    asyncio.run(scenario())


class HeldDeadlines:
    """Timers that end when the test says so."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def add(self, delay_ms: float, callback: Callable[[], None]) -> "HeldDeadlines":
        self.callbacks.append(callback)
        return self

    def cancel(self) -> None:
        pass


def test_a_fetch_that_fails_after_it_waited_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 4 has no code at its top: each partition carries it."""

    async def scenario() -> None:
        async with InProcess(str(tmp_path)) as broker:
            await broker.create_topic("t")
            deadlines = HeldDeadlines()
            put(broker.broker.services.node, "deadlines", deadlines)
            topics = [FetchTopic(topic="t", partitions=[FetchPartition(0, partition_max_bytes=1000)])]
            waiting = asyncio.ensure_future(
                broker.ask(FetchRequest(max_wait_ms=1000, min_bytes=1, topics=topics), 4)
            )
            while not deadlines.callbacks:
                await asyncio.sleep(0)
            monkeypatch.setattr(ConsumerFetch, "_read_again", failing(NOT_CONTROLLER, False))
            deadlines.callbacks[0]()
            (topic,) = (await waiting).responses
            assert (topic.topic, topic.partitions[0].error_code) == ("t", ErrorCode.NOT_CONTROLLER)

    asyncio.run(scenario())
