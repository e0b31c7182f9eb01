"""Produce requests that arrive together are handled together, and nobody can tell but by the clock."""

import time

import pytest

from odradek.errors import ErrorCode
from odradek.records.record import Record, build_batch, decode_batch
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.protocol.raw import Raw
from tests.support import RunningBroker

VERSION = 8


def batch(value: bytes, **options: int) -> bytes:
    return bytes(build_batch([Record(0, int(time.time() * 1000), None, value)], **options))


def produce(topic: str, *batches: tuple[int, bytes], acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index, records) for index, records in batches]
    return ProduceRequest(None, acks, 20_000, [TopicProduceData(name=topic, partition_data=data)])


def latest(topic: str) -> ListOffsetsRequest:
    return ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=-1)])])


def outcome(response: object) -> list[tuple[int, int, int]]:
    partitions = response.responses[0].partition_responses  # type: ignore[attr-defined]
    return [(one.index, one.error_code, one.base_offset) for one in partitions]


@pytest.mark.parametrize("acks", [1, -1])
def test_a_run_is_answered_in_order_with_offsets_that_count_up(raw: Raw, topic: str, acks: int) -> None:
    raw.create(topic)
    requests = [produce(topic, (0, batch(b"%d" % number)), acks=acks) for number in range(200)]
    raw.socket.sendall(b"".join(raw.frame(request, VERSION) for request in requests))
    assert [outcome(raw.receive()) for _ in requests] == [[(0, 0, number)] for number in range(200)]


def test_a_bad_batch_in_a_run_is_refused_and_its_neighbours_are_stored(raw: Raw, topic: str) -> None:
    raw.create(topic, 2)
    damaged = bytearray(batch(b"damaged"))
    damaged[-1] ^= 1
    requests = [
        produce(topic, (0, batch(b"a")), (1, batch(b"b"))),
        produce(topic, (0, bytes(damaged)), (1, batch(b"c"))),
        produce(topic, (2, batch(b"no such partition"))),
        produce(topic, (0, batch(b"d"))),
    ]
    raw.socket.sendall(b"".join(raw.frame(request, VERSION) for request in requests))
    corrupt, unknown = ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [outcome(raw.receive()) for _ in requests] == [
        [(0, 0, 0), (1, 0, 0)],
        [(0, corrupt, -1), (1, 0, 1)],
        [(2, unknown, -1)],
        [(0, 0, 1)],
    ]


def test_a_batch_repeated_within_a_run_is_answered_with_its_first_offset(raw: Raw, topic: str) -> None:
    raw.create(topic)
    identity = {"producer_id": 4000, "producer_epoch": 0}
    first, second = (batch(b"x", base_sequence=sequence, **identity) for sequence in (0, 1))
    gap = batch(b"x", base_sequence=9, **identity)
    requests = [produce(topic, (0, one)) for one in (first, first, second, gap, first)]
    raw.socket.sendall(b"".join(raw.frame(request, VERSION) for request in requests))
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [outcome(raw.receive()) for _ in requests] == [
        [(0, 0, 0)],
        [(0, 0, 0)],
        [(0, 0, 1)],
        [(0, out_of_order, -1)],
        [(0, 0, 0)],
    ]


def test_a_request_of_another_kind_sees_what_came_before_it(raw: Raw, topic: str) -> None:
    raw.create(topic)
    frames = [raw.frame(produce(topic, (0, batch(b"x")), acks=1), VERSION) for _ in range(3)]
    frames.append(raw.frame(latest(topic), 7))
    frames.append(raw.frame(produce(topic, (0, batch(b"x")), acks=1), VERSION))
    raw.socket.sendall(b"".join(frames))
    for offset in range(3):
        assert outcome(raw.receive()) == [(0, 0, offset)]
    assert raw.receive().topics[0].partitions[0].error_code == 0
    assert outcome(raw.receive()) == [(0, 0, 3)]


def test_without_acks_a_run_is_stored_unanswered_and_an_error_closes_the_connection(
    raw: Raw, broker: RunningBroker, topic: str
) -> None:
    raw.create(topic)
    good = [produce(topic, (0, batch(b"x")), acks=0) for _ in range(5)]
    bad = produce("no-such-topic-here", (0, batch(b"x")), acks=0)
    raw.socket.sendall(b"".join(raw.frame(request, VERSION) for request in [*good, bad, *good]))
    assert raw.is_closed()
    with Raw(broker.bootstrap) as other:
        assert outcome(other.ask(produce(topic, (0, batch(b"x"))), VERSION)) == [(0, 0, 10)]


def test_large_frames_one_after_the_other_keep_their_content_apart(raw: Raw, topic: str) -> None:
    """They arrive in pieces, and in memory that was another one's before."""
    raw.create(topic, max_message_bytes="5000000")
    values = [
        bytes([65 + number]) * size for number, size in enumerate([400_000, 900_000, 3_000_000, 500_000])
    ]
    for number, value in enumerate(values):
        assert outcome(raw.ask(produce(topic, (0, batch(value))), VERSION)) == [(0, 0, number)]
    for offset, value in enumerate(values):
        found = raw.fetch(topic, offset, max_bytes=1, partition_max_bytes=1)
        assert [record.value for record in decode_batch(found.records)] == [value]
