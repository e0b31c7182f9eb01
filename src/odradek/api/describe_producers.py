"""DescribeProducers (61): the producers that a partition remembers, with their last sequence."""

from odradek.errors import KafkaError
from odradek.model import check_topic_name
from odradek.records.batch import NO_SEQUENCE
from odradek.serving.partitions import Partitions
from odradek.serving.request import Request
from odradek.storage.producers.state import Producer
from odradek.wire.codec import Steps
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(
    partitions: Partitions, request: Request, message: DescribeProducersRequest
) -> Steps[DescribeProducersResponse]:
    response = DescribeProducersResponse()
    for topic in message.topics:
        results: list[PartitionResponse] = []
        for index in topic.partition_indexes:
            results.append(_describe(partitions, topic.name, index))
            yield
        response.topics.append(TopicResponse(topic.name, results))
    return response


def _describe(partitions: Partitions, topic: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        producers = partitions.replicas.leader(topic, index).log.producers
    except KafkaError as error:
        return PartitionResponse(index, error.code, error.message or None)
    return PartitionResponse(
        index,
        active_producers=[_state(producer_id, producer) for producer_id, producer in producers.by_id.items()],
    )


def _state(producer_id: int, producer: Producer) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.batches[-1].last_sequence if producer.batches else NO_SEQUENCE,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_first_offset,
    )
