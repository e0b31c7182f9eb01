"""A connection that sends exactly the bytes a test wants, and reads responses one by one.

    with Raw(broker.bootstrap) as raw:
        response = raw.ask(MetadataRequest(topics=None), version=12)

Requests may be sent without waiting (`send`) and responses read later (`receive`), in the order of the requests.
"""

import socket
import struct
import uuid
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from odradek.apis.table import BROKER, SERVED
from odradek.records.record import Record, build_batch
from odradek.wire.codec import read_message
from odradek.wire.frame import SIZE, encode_request, has_tagged_response_header
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.index import SCHEMAS
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TIMEOUT_S = 60  # of what takes milliseconds, on a busy machine too
SCHEMA_OF = {schema.name: schema for schema in SCHEMAS.values()}


class Closed(Exception):
    """The broker closed the connection."""


class Raw:
    def __init__(self, bootstrap: str, receive_buffer: int | None = None) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.socket(socket.AF_INET)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect((host, int(port)))
        self._correlation_id = 0
        self._sent: deque[tuple[int, int, int, type]] = deque()

    def __enter__(self) -> "Raw":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    # --- requests ---

    def frame(self, request: Any, version: int | None = None) -> bytes:
        """The bytes of a request whose response is going to be read."""
        schema = SCHEMA_OF[type(request).__name__.removesuffix("Request")]
        version = SERVED[BROKER][schema.key].max_version if version is None else version
        self._correlation_id += 1
        self._sent.append((schema.key, version, self._correlation_id, type(request)))
        return bytes(encode_request(request, schema.key, version, self._correlation_id, "raw"))

    def send(self, request: Any, version: int | None = None) -> None:
        self.socket.sendall(self.frame(request, version))

    def ask(self, request: Any, version: int | None = None) -> Any:
        self.send(request, version)
        return self.receive()

    # --- responses ---

    def receive(self) -> Any:
        """Returns the response to the oldest request that has none yet."""
        key, version, correlation_id, request_type = self._sent.popleft()
        frame = self.receive_frame()
        assert SIZE.unpack_from(frame)[0] == correlation_id, "a response out of order"
        body = 5 if has_tagged_response_header(key, version) else 4
        module = __import__(request_type.__module__, fromlist=["x"])
        response_type = getattr(module, request_type.__name__.replace("Request", "Response"))
        response, end = read_message(response_type, version, frame, body)
        assert end == len(frame), "a response with bytes behind it"
        return response

    def receive_frame(self) -> bytes:
        (size,) = SIZE.unpack(self._read(SIZE.size))
        return self._read(size)

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self.socket.recv(min(count - len(data), 1 << 20))
            except ConnectionResetError:
                raise Closed from None
            if not piece:
                raise Closed
            data += piece
        return bytes(data)

    def is_closed(self) -> bool:
        """Waits for the broker to close the connection; False if it says something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    # --- what most tests need ---

    def create(self, topic: str, partitions: int = 1, **settings: str) -> uuid.UUID:
        configs = [CreatableTopicConfig(name.replace("_", "."), value) for name, value in settings.items()]
        wanted = CreatableTopic(topic, partitions, 1, configs=configs)
        (created,) = self.ask(CreateTopicsRequest(topics=[wanted])).topics
        assert created.error_code == 0, created
        found: uuid.UUID = created.topic_id
        return found

    def topic_id(self, topic: str) -> uuid.UUID:
        found = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics[0]
        result: uuid.UUID = found.topic_id
        return result

    def produce(self, topic: str, records: bytes, **options: Any) -> Any:
        """The response of the one partition."""
        response = self.ask(produce_request(topic, records, **options), options.get("version", 9))
        return response.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int = 0, **options: Any) -> Any:
        response = self.ask(fetch_request(topic, offset, **options), options.get("version", 12))
        return response.responses[0].partitions[0]


def produce_request(
    topic: str,
    records: bytes | None,
    *,
    acks: int = -1,
    timeout_ms: int = 10_000,
    partition: int = 0,
    **_: Any,
) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, records)])
    return ProduceRequest(None, acks, timeout_ms, [data])


def fetch_request(
    topic: str | Sequence[str],
    offset: int = 0,
    *,
    min_bytes: int = 0,
    max_wait_ms: int = 0,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    session_id: int = 0,
    session_epoch: int = -1,
    isolation_level: int = 0,
    topic_id: uuid.UUID | None = None,
    **_: Any,
) -> FetchRequest:
    names = [topic] if isinstance(topic, str) else topic
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[
            FetchTopic(
                topic=name,
                topic_id=topic_id or uuid.UUID(int=0),
                partitions=[FetchPartition(0, fetch_offset=offset, partition_max_bytes=partition_max_bytes)],
            )
            for name in names
        ],
    )


def batch(
    *values: bytes | None, key: bytes | None = None, timestamp: int = 1_000_000, **options: Any
) -> bytes:
    """A batch of these values as a producer sends it."""
    records = [Record(slot, timestamp, key, value) for slot, value in enumerate(values)]
    return bytes(build_batch(records, **options))


def with_size(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body
