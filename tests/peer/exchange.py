"""Raw requests to a cluster, and what was answered, made comparable.

A `Cluster` is one connection and the transcript of what went over it. Two transcripts of the same script
can be compared field by field once everything that must differ has been given a neutral name: topic and
producer ids are numbered in the order they appear; addresses, and text that is meant for people, are left out.
"""

import dataclasses
import importlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from odradek.model import NO_TOPIC_ID
from odradek.wire.codec import read_message
from odradek.wire.frame import SIZE, encode_request, has_tagged_response_header
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.index import SCHEMAS
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

RESPONSE_TIMEOUT_S = 60  # of anything that should happen; far more than it takes, also on a busy machine
SETTLE_TIMEOUT_S = 120
SETTLE_INTERVAL_S = 0.02
CLOSED = "connection closed"

LEFT_OUT = {
    *("error_message", "documentation", "batch_index_error_message", "host", "port", "cluster_id"),
    "last_known_elr",  # ours names every in-sync replica that was killed, Kafka's the last leader
}
PRODUCER_IDS = {"producer_id", "ongoing_txn_producer_id"}
TIMES = {"log_append_time_ms", "transaction_start_time_ms", "last_timestamp"}
SORT_KEYS = (
    *("name", "topic", "key", "resource_name", "partition_index", "partition", "index"),
    *("broker_id", "node_id", "transactional_id"),
)

Versions = dict[int, tuple[int, int]]


@dataclass
class Cluster:
    """One connection. `version_of` says with which version an API is asked."""

    bootstrap: str
    version_of: Callable[[int], int]
    transcript: list[tuple[str, Any]] = field(default_factory=list)
    topic_ids: dict[str, UUID] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._correlation_id = 0
        self._socket = self._connect()

    def _connect(self) -> socket.socket:
        host, _, port = self.bootstrap.rpartition(":")
        return socket.create_connection((host, int(port)), RESPONSE_TIMEOUT_S)

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Any, version: int | None = None, label: str = "") -> Any:
        """Send a request and note the response in the transcript; None if the other side closed."""
        response = self.ask_quietly(request, version)
        name = type(request).__name__.removesuffix("Request")
        self.note(f"{name}: {label}" if label else name, response)
        return response

    def note(self, label: str, response: Any) -> None:
        self.transcript.append((label, CLOSED if response is None else response))

    def ask_quietly(self, request: Any, version: int | None = None) -> Any:
        version = self.version_of(request.API_KEY) if version is None else version
        return self.ask_in(request, sent_as=version, read_as=version)

    def ask_in(self, request: Any, sent_as: int, read_as: int) -> Any:
        """Ask in one version and read the response in another: only ApiVersions is answered so."""
        api_key: int = request.API_KEY
        self._correlation_id += 1
        frame_sent = encode_request(
            request, api_key, min(sent_as, SCHEMAS[api_key].max_version), self._correlation_id, "peer-test"
        )
        frame_sent[6:8] = sent_as.to_bytes(2)
        try:
            self._socket.sendall(frame_sent)
            frame = self._read_frame()
        except ConnectionError:
            self._socket.close()
            self._socket = self._connect()
            return None
        position = SIZE.size + (1 if has_tagged_response_header(api_key, read_as) else 0)
        return read_message(response_type(api_key), read_as, frame, position)[0]

    def _read_frame(self) -> bytes:
        (size,) = SIZE.unpack(self._read_exactly(SIZE.size))
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError
            data += part
        return bytes(data)

    def until(self, request: Any, is_settled: Callable[[Any], bool]) -> Any:
        """Ask until the response is as it should be: a change reaches brokers a moment after it is made."""
        responses: list[Any] = []

        def ask() -> bool:
            responses.append(self.ask_quietly(request))
            return responses[-1] is not None and is_settled(responses[-1])

        self.wait_for(ask)
        return responses[-1]

    def wait_for(self, is_settled: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while not is_settled():
            assert time.monotonic() < deadline_s, "not settled"
            time.sleep(SETTLE_INTERVAL_S)

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        """A topic to work with, not part of the transcript; ready when this returns."""
        settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        response = self.ask_quietly(
            CreateTopicsRequest([CreatableTopic(name, partitions, 1, configs=settings)], 10_000)
        )
        assert [topic.error_code for topic in response.topics] == [0], response
        self.await_topic(name, partitions)

    def await_topic(self, name: str, partitions: int) -> None:
        request = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)

        def is_ready(response: Any) -> bool:
            (topic,) = response.topics
            leaders = [partition.leader_id for partition in topic.partitions]
            return topic.error_code == 0 and len(leaders) == partitions and -1 not in leaders

        self.topic_ids[name] = self.until(request, is_ready).topics[0].topic_id
        # Known is not yet led: metadata is published before the partitions' logs are opened.
        wanted = [ListOffsetsPartition(partition, -1, -1) for partition in range(partitions)]
        self.until(
            ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, wanted)], RESPONSE_TIMEOUT_S * 1000),
            lambda response: all(partition.error_code == 0 for partition in response.topics[0].partitions),
        )

    def id_of(self, name: str) -> UUID:
        """A topic's id, or one that no topic has."""
        return self.topic_ids.get(name, UUID(int=99))


def response_type(api_key: int) -> Any:
    schema = SCHEMAS[api_key]
    module = importlib.import_module(f"odradek.wire.messages.{schema.module}")
    return getattr(module, f"{schema.name}Response")


def served_versions(bootstrap: str) -> Versions:
    cluster = Cluster(bootstrap, lambda api_key: 3)
    try:
        response = cluster.ask_quietly(ApiVersionsRequest("peer-test", "1"))
    finally:
        cluster.close()
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}


def common_versions(one: Versions, other: Versions) -> Versions:
    """Return the versions that both serve and our schemas can read."""
    common = {}
    for api_key in one.keys() & other.keys() & SCHEMAS.keys():
        lowest = max(one[api_key][0], other[api_key][0], SCHEMAS[api_key].min_version)
        highest = min(one[api_key][1], other[api_key][1], SCHEMAS[api_key].max_version)
        if lowest <= highest:
            common[api_key] = (lowest, highest)
    return common


class Normaliser:
    """Responses as plain data in which only what should be equal is left."""

    def __init__(self) -> None:
        self._ids: dict[Any, str] = {}

    def plain(self, value: Any, name: str = "") -> Any:
        if dataclasses.is_dataclass(value):
            fields = dataclasses.fields(value)
            return {one.name: self.plain(getattr(value, one.name), one.name) for one in fields}
        if name in LEFT_OUT:
            return None
        if isinstance(value, list):
            return [self.plain(item, name) for item in sorted(value, key=_sort_key)]
        if isinstance(value, UUID):
            return value if value == NO_TOPIC_ID else self._numbered("topic id", value)
        if name in PRODUCER_IDS and value >= 0:
            return self._numbered("producer id", value)
        if name in TIMES and value >= 0:
            return "a time"
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value).hex(" ", 8)
        return value

    def _numbered(self, kind: str, value: Any) -> str:
        return self._ids.setdefault((kind, value), f"{kind} {len(self._ids) + 1}")


def _sort_key(item: Any) -> tuple[str, ...]:
    """Kafka's responses have the order of its hash maps; only what is named or numbered is sorted."""
    if not dataclasses.is_dataclass(item):
        return ()  # text and tuples have an `index`, too
    return tuple(f"{value!s:0>10}" for name in SORT_KEYS if (value := getattr(item, name, None)) is not None)


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """Yield where two plain responses differ, one line each."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in expected:
            yield from differences(expected[name], actual[name], f"{path}.{name}")
    elif isinstance(expected, list) and isinstance(actual, list):
        yield from _list_differences(expected, actual, path)
    elif expected != actual:
        yield f"{path}: Kafka {expected!r}, ours {actual!r}"


def _list_differences(expected: list[Any], actual: list[Any], path: str) -> Iterator[str]:
    """Items are paired by name where they have one, else by place."""
    expected_by_key = {_item_key(item, place): item for place, item in enumerate(expected)}
    actual_by_key = {_item_key(item, place): item for place, item in enumerate(actual)}
    for key in expected_by_key | actual_by_key:
        where = f"{path}[{key}]"
        if key not in actual_by_key:
            yield f"{where}: only Kafka has {expected_by_key[key]!r}"
        elif key not in expected_by_key:
            yield f"{where}: only ours has {actual_by_key[key]!r}"
        else:
            yield from differences(expected_by_key[key], actual_by_key[key], where)


def _item_key(item: Any, place: int) -> Any:
    name = item.get("name") if isinstance(item, dict) else None
    return place if name is None else name


def compare(kafka: Cluster, ours: Cluster) -> list[str]:
    """All differences between two transcripts of the same script."""
    expected, actual = Normaliser(), Normaliser()
    found = []
    for (label, kafka_response), (_, our_response) in zip(kafka.transcript, ours.transcript, strict=True):
        pair = (expected.plain(kafka_response), actual.plain(our_response))
        found += [f"{label}{line}" for line in differences(*pair)]
    return found
