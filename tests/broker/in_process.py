"""A broker in the test's own event loop, asked without sockets: what it answers, when, and what is on its disk."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from odradek.apis.messages import response_type
from odradek.broker.main import Broker
from odradek.config.broker import BrokerConfig
from odradek.model import ANONYMOUS, Caller
from odradek.net.transport import Part
from odradek.records.record import Record, build_batch, decode_batch
from odradek.records.walk import whole_batches
from odradek.serving.authorizer import Authorizer
from odradek.serving.dispatch import Dispatcher
from odradek.serving.request import Request
from odradek.storage.disk.files import Files
from odradek.storage.log.reading import read_batches
from odradek.storage.segments.row import Slice
from odradek.wire.codec import Message, read_message
from odradek.wire.frame import SIZE, encode_request, has_tagged_response_header, read_request_header
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

__all__ = ["InProcess", "put", "stored_records", "whole_batches"]


class InProcess:
    def __init__(
        self,
        data_dir: str,
        files: Files | None = None,
        settings: Mapping[str, str] | None = None,
        authorizer: Authorizer | None = None,
        rng: Random | None = None,
    ) -> None:
        config = {"listeners": "PLAINTEXT://localhost:0", "log.dirs": data_dir, **(settings or {})}
        self.broker = Broker(
            BrokerConfig(config), asyncio.get_running_loop(), rng, files, authorizer=authorizer
        )
        self._dispatcher = Dispatcher(self.broker.services)
        self.on_request: Callable[[Request], object] = lambda request: (
            None
        )  # told of each before it is handled

    async def __aenter__(self) -> "InProcess":
        await self.broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.broker.stop()

    async def ask(self, message: Any, version: int) -> Any:
        api_key: int = message.API_KEY
        frame = memoryview(encode_request(message, api_key, version, 1, "test"))[SIZE.size :]
        header = read_request_header(frame)
        answered = asyncio.get_running_loop().create_future()
        request = Request(
            header,
            Caller(ANONYMOUS, "127.0.0.1:1", "PLAINTEXT", header.client_id),
            lambda request: answered.set_result(request.parts),
            self._dispatcher.turns,
        )
        self.on_request(request)
        effect = self._dispatcher.dispatch(request, frame, header.body) or self._dispatcher.finish()
        if effect is not None:
            await effect
        parts = await answered
        return self._read(b"".join(map(content, parts)), api_key, version)

    @staticmethod
    def _read(frame: bytes, api_key: int, version: int) -> Message:
        body = 9 if has_tagged_response_header(api_key, version) else 8
        return read_message(response_type(api_key), version, frame, body)[0]

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        response = await self.ask(
            CreateTopicsRequest([CreatableTopic(name, partitions, 1, configs=settings)]), 7
        )
        assert response.topics[0].error_code == 0, response

    async def produce(
        self, topic: str, records: list[tuple[bytes | None, bytes | None]], acks: int = -1
    ) -> Any:
        """The response of the one partition."""
        batch = bytes(build_batch([Record(at, 0, key, value) for at, (key, value) in enumerate(records)]))
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, batch)])
        response = await self.ask(ProduceRequest(None, acks, 30_000, [data]), 9)
        return response.responses[0].partition_responses[0]

    def records(self, topic: str) -> list[Record]:
        return stored_records(self.broker, topic)


def put(facet: object, name: str, part: object) -> None:
    """Put another part into a facet of `Services`, which nothing but a test may change."""
    object.__setattr__(facet, name, part)


def content(part: Part) -> bytes:
    return part.file.read_at(part.position, part.length) if isinstance(part, Slice) else bytes(part)


def stored_records(broker: Broker, topic: str) -> list[Record]:
    """All that the log of partition 0 holds."""
    log = broker.replicas.get(topic, 0).log
    return [
        record
        for piece in read_batches(log)
        for header, batch in piece
        if not header.is_control
        for record in decode_batch(batch, header)
    ]
