"""Writing: in order, each batch once, whatever happens to responses on their way."""

import pytest

from odradek.client.cluster import Cluster
from odradek.client.deadline import TimedOut
from odradek.client.producing import MAX_IN_FLIGHT, EncodedRecords, Producer
from odradek.client.settings import ProduceSettings
from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.records.record import Record, decode_batch, encode_records, header_of
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.scripted_broker import INIT_PRODUCER_ID, METADATA, PRODUCE, ScriptedBroker, metadata_of

SETTINGS = ProduceSettings(delivery_timeout_s=10)


class Log:
    """A leader's side: takes a batch if its sequence is the next one, as Kafka does."""

    def __init__(self) -> None:
        self.values: dict[int, list[bytes | None]] = {}
        self.next_sequences: dict[int, int] = {}
        self.failures: list[ErrorCode | None] = []  # for the next requests; None closes the connection
        self.lose_responses = 0

    def produce(self, request: ProduceRequest) -> ProduceResponse | None:
        failure = self.failures.pop(0) if self.failures else ErrorCode.NONE
        if failure is None:
            return None
        topic = request.topic_data[0]
        results = []
        for data in topic.partition_data:
            code = failure or self.append(data.index, data.records)
            results.append(PartitionProduceResponse(index=data.index, error_code=int(code)))
        if self.lose_responses:
            self.lose_responses -= 1
            return None
        return ProduceResponse(responses=[TopicProduceResponse(name=topic.name, partition_responses=results)])

    def append(self, partition: int, batch: bytes) -> ErrorCode:
        header, expected = header_of(batch), self.next_sequences.get(partition, 0)
        if header.base_sequence < expected:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if header.base_sequence > expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.next_sequences[partition] = header.base_sequence + header.record_count
        self.values.setdefault(partition, []).extend(record.value for record in decode_batch(batch))
        return ErrorCode.NONE


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def broker(log):
    with ScriptedBroker() as broker:
        broker.handlers[METADATA] = metadata_of([broker], {("t", 0): (1, 0), ("t", 1): (1, 0)})
        broker.handlers[PRODUCE] = log.produce
        broker.handlers[INIT_PRODUCER_ID] = lambda request: InitProducerIdResponse(
            producer_id=44, producer_epoch=3
        )
        yield broker


def encoded(partition: int, *values: bytes) -> EncodedRecords:
    rows = [Record(offset, 5, None, value) for offset, value in enumerate(values)]
    return EncodedRecords(TopicPartition("t", partition), encode_records(rows, 0, 5), len(rows), 5, 5)


def numbered(partition: int, first: int, count: int) -> list[EncodedRecords]:
    return [encoded(partition, b"%d" % number) for number in range(first, first + count)]


def expected(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_many_batches_of_a_partition_arrive_in_order(broker, log):
    producer = Producer(Cluster(broker.settings()), SETTINGS)
    producer.send([*numbered(0, 0, 12), *numbered(1, 0, 3)])
    producer.send(numbered(0, 12, 4))
    producer.close()
    assert log.values == {0: expected(16), 1: expected(3)}
    requests = broker.requests_of(ProduceRequest)
    assert {request.acks for request in requests} == {-1}
    assert [len(request.topic_data[0].partition_data) for request in requests[:4]] == [2, 2, 2, 1]
    header = header_of(requests[0].topic_data[0].partition_data[0].records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (44, 3, 0)


def test_a_response_that_is_lost_does_not_write_twice(broker, log):
    log.lose_responses = 1
    producer = Producer(Cluster(broker.settings()), SETTINGS)
    producer.send(numbered(0, 0, 3))
    producer.close()
    assert log.values[0] == expected(3)


@pytest.mark.parametrize("failing", range(MAX_IN_FLIGHT + 2))
def test_a_request_that_fails_is_tried_again_with_those_after_it(broker, log, failing):
    log.failures = [ErrorCode.NONE] * failing + [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    producer = Producer(Cluster(broker.settings()), SETTINGS)
    producer.send(numbered(0, 0, MAX_IN_FLIGHT + 3))
    producer.close()
    assert log.values[0] == expected(MAX_IN_FLIGHT + 3)


def test_a_connection_that_closes_in_the_middle_is_opened_again(broker, log):
    log.failures = [ErrorCode.NONE, None]
    producer = Producer(Cluster(broker.settings()), SETTINGS)
    producer.send(numbered(0, 0, 6))
    producer.close()
    assert log.values[0] == expected(6)


def test_what_no_retry_changes_is_said_with_what_to_do(broker, log):
    log.failures = [ErrorCode.MESSAGE_TOO_LARGE]
    producer = Producer(Cluster(broker.settings()), SETTINGS)
    producer.send(numbered(0, 0, 1))
    with pytest.raises(KafkaError, match="cannot write to t-0: MESSAGE_TOO_LARGE; raise the topic's max"):
        producer.close()


def test_a_gap_in_the_sequence_that_we_did_not_make_is_fatal(broker, log):
    log.failures = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    producer = Producer(Cluster(broker.settings()), SETTINGS)
    producer.send(numbered(0, 0, 1))
    with pytest.raises(KafkaError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        producer.close()


def test_a_leader_that_stays_away_ends_in_a_sentence(broker, log):
    log.failures = [ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000
    producer = Producer(Cluster(broker.settings()), ProduceSettings(delivery_timeout_s=0.05))
    producer.send(numbered(0, 0, 1))
    with pytest.raises(TimedOut, match=r"could not write to t within 0\.05 s: .*NOT_ENOUGH_REPLICAS"):
        producer.close()


def test_a_producer_id_serves_the_next_user_unless_something_went_wrong(broker, log):
    cluster = Cluster(broker.settings())
    for first in (0, 2):
        producer = Producer(cluster, SETTINGS)
        producer.send(numbered(0, first, 2))
        producer.close()
    assert log.values[0] == expected(4)
    assert len(broker.requests_of(InitProducerIdRequest)) == 1
    log.failures = [ErrorCode.INVALID_RECORD]
    producer = Producer(cluster, SETTINGS)
    producer.send(numbered(0, 4, 1))
    with pytest.raises(KafkaError):
        producer.close()
    Producer(cluster, SETTINGS)
    assert len(broker.requests_of(InitProducerIdRequest)) == 2
