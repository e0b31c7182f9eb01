"""Idempotent producers by raw frames: the last five batches are known again, over restarts and crashes too."""

from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from tests.protocol.raw import Raw, batch, produce_request
from tests.support import RunningBroker, running_broker

DUPLICATES = ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def numbered(producer_id: int, sequence: int, epoch: int = 0, count: int = 1) -> bytes:
    values = [b"%d" % (sequence + slot) for slot in range(count)]
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def new_producer(raw: Raw) -> int:
    producer_id: int = raw.ask(InitProducerIdRequest(None, 60_000)).producer_id
    return producer_id


def outcome(raw: Raw, topic: str, records: bytes) -> tuple[str, int]:
    response = raw.produce(topic, records)
    return ErrorCode(response.error_code).name, response.base_offset


def test_a_duplicate_of_the_last_five_is_answered_with_its_offset(raw: Raw, topic: str) -> None:
    raw.create(topic)
    producer = new_producer(raw)
    for sequence in range(7):
        assert outcome(raw, topic, numbered(producer, sequence)) == ("NONE", sequence)
    for sequence in range(2, 7):
        assert outcome(raw, topic, numbered(producer, sequence)) == ("NONE", sequence)
    error, offset = outcome(raw, topic, numbered(producer, 1))
    assert (ErrorCode[error] in DUPLICATES, offset) == (True, -1)
    assert raw.fetch(topic).high_watermark == 7


def test_duplicates_in_flight_at_once(raw: Raw, topic: str) -> None:
    """Five batches and their retries on one connection, none waited for."""
    raw.create(topic)
    producer = new_producer(raw)
    sequences = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5]
    frames = [raw.frame(produce_request(topic, numbered(producer, number)), 9) for number in sequences]
    raw.socket.sendall(b"".join(frames))
    responses = [raw.receive().responses[0].partition_responses[0] for _ in sequences]
    assert [(response.error_code, response.base_offset) for response in responses] == [
        (0, n) for n in sequences
    ]


def test_a_reordered_batch_is_out_of_order(raw: Raw, topic: str) -> None:
    raw.create(topic)
    producer = new_producer(raw)
    assert outcome(raw, topic, numbered(producer, 0, count=3)) == ("NONE", 0)
    assert outcome(raw, topic, numbered(producer, 4)) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
    assert outcome(raw, topic, numbered(producer, 3)) == ("NONE", 3)
    assert outcome(raw, topic, numbered(producer, 4)) == ("NONE", 4)


def test_a_part_of_a_batch_is_no_duplicate_of_it(raw: Raw, topic: str) -> None:
    raw.create(topic)
    producer = new_producer(raw)
    assert outcome(raw, topic, numbered(producer, 0, count=3)) == ("NONE", 0)
    error, _ = outcome(raw, topic, numbered(producer, 0, count=2))
    assert ErrorCode[error] in DUPLICATES
    assert raw.fetch(topic).high_watermark == 3


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_0(raw: Raw, topic: str) -> None:
    raw.create(topic)
    producer = new_producer(raw)
    assert outcome(raw, topic, numbered(producer, 0, epoch=1)) == ("NONE", 0)
    assert outcome(raw, topic, numbered(producer, 1, epoch=0)) == ("INVALID_PRODUCER_EPOCH", -1)
    assert outcome(raw, topic, numbered(producer, 1, epoch=2)) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
    assert outcome(raw, topic, numbered(producer, 0, epoch=2)) == ("NONE", 1)


def test_sequences_wrap(raw: Raw, topic: str) -> None:
    """A producer that is not known may begin anywhere; after 2^31 - 1 comes 0."""
    raw.create(topic)
    producer = new_producer(raw)
    assert outcome(raw, topic, numbered(producer, 2**31 - 2, count=2)) == ("NONE", 0)
    assert outcome(raw, topic, numbered(producer, 0)) == ("NONE", 2)


@pytest.mark.parametrize("end", [RunningBroker.stop, RunningBroker.kill], ids=["restart", "kill"])
def test_a_duplicate_after_the_broker_came_back(tmp_path: Path, end: object) -> None:
    topic = "numbered"
    with running_broker(tmp_path) as broker:
        with Raw(broker.bootstrap) as raw:
            raw.create(topic)
            producer = new_producer(raw)
            for sequence in range(6):
                assert outcome(raw, topic, numbered(producer, sequence)) == ("NONE", sequence)
        end(broker)  # type: ignore[operator]
        broker.start()
        with Raw(broker.bootstrap) as raw:
            assert new_producer(raw) > producer
            for sequence in range(1, 6):
                assert outcome(raw, topic, numbered(producer, sequence)) == ("NONE", sequence)
            assert outcome(raw, topic, numbered(producer, 7)) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
            assert outcome(raw, topic, numbered(producer, 6)) == ("NONE", 6)
            assert raw.fetch(topic).high_watermark == 7
