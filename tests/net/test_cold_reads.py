"""A consumer of data that is not in the page cache waits for the disk by itself."""

import asyncio
import threading
from pathlib import Path

import pytest

from odradek.broker.main import Broker
from odradek.config.broker import BrokerConfig
from odradek.net import output, stream
from odradek.records.record import Record, build_batch
from odradek.wire.codec import Message, read_message
from odradek.wire.frame import encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, broker: Broker) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", broker.listeners[0].port))

    async def ask(self, message: Message, response_type: type, version: int) -> Message:
        api_key = response_type.API_KEY
        self._writer.write(encode_request(message, api_key, version, 1, "test"))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        frame = await self._reader.readexactly(size)
        return read_message(response_type, version, frame, 4)[0]

    def close(self) -> None:
        self._writer.close()


def test_other_connections_are_served_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk_is_ready = threading.Event()
    disk_is_asked = threading.Event()

    def slow_read(descriptor: int, position: int, length: int) -> None:
        disk_is_asked.set()
        assert disk_is_ready.wait(30)

    monkeypatch.setattr(output, "is_in_memory", lambda piece: False)
    monkeypatch.setattr(output, "read_from_memory", lambda piece: None)
    monkeypatch.setattr(stream, "read_into_memory", slow_read)

    async def scenario() -> None:
        settings = {"listeners": "PLAINTEXT://localhost:0", "log.dirs": str(tmp_path / "data")}
        broker = Broker(BrokerConfig(settings), asyncio.get_running_loop())
        await broker.start()
        reader, other = await Client.connect(broker), await Client.connect(broker)
        await other.ask(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), CreateTopicsResponse, 2)
        records = bytes(build_batch([Record(0, 0, None, b"x" * 1000)]))
        topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(0, records)])
        await other.ask(ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[topic]), ProduceResponse, 3)
        wanted = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
        request = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[wanted])
        fetching = asyncio.create_task(reader.ask(request, FetchResponse, 4))
        await asyncio.get_running_loop().run_in_executor(None, disk_is_asked.wait, 30)
        for _ in range(10):
            await other.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        assert not fetching.done()
        disk_is_ready.set()
        response = await fetching
        assert len(response.responses[0].partitions[0].records) == len(records)
        reader.close()
        other.close()
        await broker.stop()

    asyncio.run(scenario())
