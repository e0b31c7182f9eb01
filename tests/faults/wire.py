"""A broker with faults in the test's own event loop, and connections to it without sockets."""

import asyncio
from typing import Any

from odradek.apis.messages import response_type
from odradek.errors import ErrorCode
from odradek.faults.broker import answer_with_faults
from odradek.faults.plan import Fault, Plan, read_fault
from odradek.faults.wires import Wires
from odradek.records.record import Record, build_batch
from odradek.wire.codec import read_message
from odradek.wire.frame import SIZE, encode_request, has_tagged_response_header
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.in_process import InProcess
from tests.serving.wires import NotedTransport

MAX_TURNS = 10_000


class FaultyInProcess:
    def __init__(self, data_dir: str) -> None:
        self.home = InProcess(data_dir)
        self.fired: list[int] = []
        self.plan = Plan(self.fired.append)
        self._converse = answer_with_faults(self.home.broker.services, self.plan, Wires())
        self._connections = self._faults = 0

    async def __aenter__(self) -> "FaultyInProcess":
        await self.home.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.plan.clear()
        await self.home.__aexit__()

    def arm(self, kind: str, api: str, **what: Any) -> Fault:
        self._faults += 1
        fault = read_fault({"id": self._faults, "kind": kind, "api": api, **what})
        self.plan.arm(fault)
        return fault

    def answer(self, api: str, error: ErrorCode, **what: Any) -> Fault:
        return self.arm("answer", api, error=error.name, **what)

    def connect(self, client_id: str = "test") -> "Wire":
        self._connections += 1
        return Wire(NotedTransport(self._converse, port=self._connections), client_id)

    async def create_topic(self, name: str, partitions: int = 1) -> None:
        await self.home.create_topic(name, partitions)

    def stored(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.home.records(topic)]


class Wire:
    """A connection: requests are sent in one read or in several, and responses are read in order."""

    def __init__(self, transport: NotedTransport, client_id: str) -> None:
        self.transport = transport
        self._client_id = client_id
        self._awaited: list[tuple[int, int]] = []  # API and version of each request
        self._read = 0

    @property
    def closed(self) -> str:
        return self.transport.closed

    def send(self, *requests: tuple[Any, int]) -> None:
        frames = []
        for message, version in requests:
            frame = encode_request(message, message.API_KEY, version, len(self._awaited), self._client_id)
            frames.append(memoryview(frame)[SIZE.size :])
            self._awaited.append((message.API_KEY, version))
        self.transport.arrive(*frames)

    def responses(self) -> list[Any]:
        """Return the responses that have come since this was last asked."""
        self.transport.flush()
        read = []
        for frame in self.transport.sent[self._read :]:
            api_key, version = self._awaited[self._read]
            body = 9 if has_tagged_response_header(api_key, version) else 8
            read.append(read_message(response_type(api_key), version, frame, body)[0])
            self._read += 1
        return read

    async def ask(self, message: Any, version: int) -> Any:
        self.send((message, version))
        (response,) = await self.receive(1)
        return response

    async def receive(self, count: int) -> list[Any]:
        received: list[Any] = []
        await until(lambda: received.extend(self.responses()) or len(received) >= count)
        return received


async def until(condition: Any) -> None:
    for _ in range(MAX_TURNS):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("what was waited for did not come")


def produce_request(*targets: tuple[str, int], value: bytes = b"x", acks: int = -1) -> ProduceRequest:
    """One record to each topic and partition."""
    batch = bytes(build_batch([Record(0, 0, None, value)]))
    topics: dict[str, list[PartitionProduceData]] = {}
    for topic, partition in targets:
        topics.setdefault(topic, []).append(PartitionProduceData(partition, batch))
    data = [TopicProduceData(name=topic, partition_data=partitions) for topic, partitions in topics.items()]
    return ProduceRequest(None, acks, 30_000, data)
