"""Requests that scripts send to a broker, each in one line. Every helper insists on success, unless it returns a
code.
"""

from typing import Any
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.metadata.image import ResourceType
from odradek.records.record import Record, decode_batch
from odradek.records.walk import whole_batches
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.protocol.raw import batch, fetch_request, produce_request
from tests.simulation.connection import Connection

EARLIEST = -2
FETCH_BY_NAME = 12
PRODUCE_BY_NAME = 9
SET = 0


async def create(client: Connection, name: str, **settings: str) -> UUID:
    """A topic of one partition."""
    configs = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in settings.items()]
    response = await client.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1, configs=configs)]))
    (created,) = response.topics
    assert created.error_code == ErrorCode.NONE, created
    topic_id: UUID = created.topic_id
    return topic_id


async def delete(client: Connection, *names: str) -> None:
    """All in one request."""
    response = await client.ask(DeleteTopicsRequest([DeleteTopicState(name) for name in names]))
    assert [topic.error_code for topic in response.responses] == [ErrorCode.NONE] * len(names), response


async def configure(client: Connection, topic: str, name: str, value: str) -> None:
    change = AlterConfigsResource(ResourceType.TOPIC, topic, [AlterableConfig(name, SET, value)])
    response = await client.ask(IncrementalAlterConfigsRequest([change]))
    assert response.responses[0].error_code == ErrorCode.NONE, response


async def try_to_produce(client: Connection, topic: str, *values: bytes, key: bytes | None = None) -> int:
    """Produce with acks=all; return the error code."""
    request = produce_request(topic, batch(*values, key=key), timeout_ms=1_000)
    response = await client.ask(request, PRODUCE_BY_NAME)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


async def produce(client: Connection, topic: str, *values: bytes, key: bytes | None = None) -> None:
    code = await try_to_produce(client, topic, *values, key=key)
    assert code == ErrorCode.NONE, ErrorCode(code)


async def fetch(client: Connection, topic: str, offset: int) -> Any:
    response = await client.ask(fetch_request(topic, offset), FETCH_BY_NAME)
    (partition,) = response.responses[0].partitions
    assert partition.error_code == ErrorCode.NONE, partition
    return partition


async def read(client: Connection, topic: str) -> list[Record]:
    """All records that a consumer gets that begins at the earliest."""
    records: list[Record] = []
    offset = await earliest(client, topic)
    while (partition := await fetch(client, topic, offset)).records:
        for header, content in whole_batches(memoryview(partition.records)):
            records += [record for record in decode_batch(content, header) if record.offset >= offset]
            offset = header.next_offset
    assert offset == partition.high_watermark
    return records


async def values(client: Connection, topic: str) -> list[bytes | None]:
    return [record.value for record in await read(client, topic)]


async def earliest(client: Connection, topic: str) -> int:
    wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=EARLIEST)])
    response = await client.ask(ListOffsetsRequest(topics=[wanted]))
    (partition,) = response.topics[0].partitions
    assert partition.error_code == ErrorCode.NONE, partition
    offset: int = partition.offset
    return offset


async def delete_records(client: Connection, topic: str, before: int) -> int:
    """The log start that the broker promises."""
    wanted = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, before)])
    response = await client.ask(DeleteRecordsRequest([wanted], 1_000))
    (partition,) = response.topics[0].partitions
    assert partition.error_code == ErrorCode.NONE, partition
    low_watermark: int = partition.low_watermark
    return low_watermark
