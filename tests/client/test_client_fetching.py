"""Reading a range of a partition: what is handed out, what is not, and what a reader lives through."""

import threading
from collections.abc import Callable

import pytest

from odradek.client.cluster import Cluster
from odradek.client.deadline import TimedOut
from odradek.client.fetching import OffsetsGone, RangeReader, read_range
from odradek.client.settings import FetchSettings
from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.records.control import build_marker_batch
from odradek.records.record import Record, build_batch, decode_batch
from odradek.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.client.scripted_broker import FETCH, LIST_OFFSETS, METADATA, ScriptedBroker, metadata_of

PARTITION = TopicPartition("t", 0)


def records(first: int, count: int) -> list[Record]:
    return [Record(offset, 1_000 + offset, b"k", b"v%d" % offset) for offset in range(first, first + count)]


def response_with(data: bytes, code: ErrorCode = ErrorCode.NONE, **more: object) -> FetchResponse:
    partition = PartitionData(0, int(code), high_watermark=100, records=data, **more)  # type: ignore[arg-type]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


def position_of(request: FetchRequest) -> int:
    return request.topics[0].partitions[0].fetch_offset


def log_handler(log: list[bytes]) -> Callable[[FetchRequest], FetchResponse]:
    """Serves the batches that end at or after the offset asked for, one at a time."""

    def serve(request: FetchRequest) -> FetchResponse:
        for batch in log:
            if decode_batch(batch)[-1].offset >= position_of(request):
                return response_with(batch)
        return response_with(b"")

    return serve


def values(reader: RangeReader) -> list[bytes | None]:
    return [
        record.value
        for chunk in read_range(reader)
        for batch in chunk.batches
        for record in decode_batch(batch.data)
    ]


@pytest.fixture
def broker():
    with ScriptedBroker() as broker:
        broker.handlers[METADATA] = metadata_of([broker], {("t", 0): (1, 7)})
        yield broker


def reader_of(broker: ScriptedBroker, start: int, end: int, timeout_s: float = 10, **settings) -> RangeReader:
    cluster = Cluster(broker.settings())
    return RangeReader(cluster, PARTITION, start, end, FetchSettings(**settings), timeout_s, timeout_s)


def test_reads_batches_up_to_the_end_and_asks_with_the_leaders_epoch(broker):
    log = [bytes(build_batch(records(first, 5), leader_epoch=6)) for first in (0, 5, 10, 15)]
    broker.handlers[FETCH] = log_handler(log)
    reader = reader_of(broker, 3, 12)
    assert values(reader) == [b"v%d" % offset for offset in range(15)], "whole batches; the decoder cuts"
    asked = [request.topics[0].partitions[0] for request in broker.requests_of(FetchRequest)]
    assert [one.fetch_offset for one in asked] == [3, 5, 10]
    assert {one.current_leader_epoch for one in asked} == {7}
    assert [one.last_fetched_epoch for one in asked] == [-1, 6, 6]


def test_offsets_missing_at_the_end_of_a_range_are_not_waited_for(broker):
    """Compaction may have removed them: the next batch lies behind the range."""
    log = [bytes(build_batch(records(0, 2))), bytes(build_batch(records(50, 2)))]
    broker.handlers[FETCH] = log_handler(log)
    assert values(reader_of(broker, 0, 40)) == [b"v0", b"v1"]


def test_a_batch_that_is_cut_off_is_asked_for_again(broker):
    whole, next_one = bytes(build_batch(records(0, 3))), bytes(build_batch(records(3, 3)))

    def serve(request: FetchRequest) -> FetchResponse:
        return response_with(whole + next_one[:-1] if position_of(request) == 0 else next_one)

    broker.handlers[FETCH] = serve
    assert values(reader_of(broker, 0, 6)) == [b"v%d" % offset for offset in range(6)]


def test_aborted_transactions_are_left_out_where_asked_for(broker):
    def transactional(first: int, producer_id: int) -> bytes:
        return bytes(
            build_batch(records(first, 2), producer_id=producer_id, base_sequence=0, transactional=True)
        )

    def marker(offset: int, producer_id: int, commit: bool) -> bytes:
        return bytes(
            build_marker_batch(
                commit=commit,
                coordinator_epoch=0,
                producer_id=producer_id,
                producer_epoch=0,
                timestamp=0,
                base_offset=offset,
            )
        )

    data = (
        transactional(0, 1)  # aborted at 4
        + transactional(2, 2)  # committed at 5
        + marker(4, 1, commit=False)
        + marker(5, 2, commit=True)
        + transactional(6, 1)  # the same producer's next one, committed
        + marker(8, 1, commit=True)
        + bytes(build_batch(records(9, 1)))
    )
    broker.handlers[FETCH] = lambda request: response_with(
        data,
        aborted_transactions=[AbortedTransaction(1, 0)] if request.isolation_level else None,
    )
    assert values(reader_of(broker, 0, 10, read_committed=True)) == [b"v2", b"v3", b"v6", b"v7", b"v9"]
    everything = [b"v%d" % offset for offset in (0, 1, 2, 3, 6, 7, 9)]
    assert values(reader_of(broker, 0, 10)) == everything, "markers are nobody's rows"


def test_a_wrong_crc_is_refused_by_name(broker):
    damaged = bytearray(build_batch(records(0, 3)))
    damaged[17] ^= 1  # the CRC itself, so that the records still decode
    broker.handlers[FETCH] = lambda request: response_with(bytes(damaged))
    with pytest.raises(KafkaError, match="t-0: the CRC of the batch at offset 0"):
        values(reader_of(broker, 0, 3))
    assert len(values(reader_of(broker, 0, 3, check_crc=False))) == 3


def test_an_old_message_format_is_refused_by_name(broker):
    old = bytearray(build_batch(records(0, 1)))
    old[16] = 1
    broker.handlers[FETCH] = lambda request: response_with(bytes(old))
    with pytest.raises(KafkaError, match="of format 1; only format 2"):
        values(reader_of(broker, 0, 1))


def test_follows_the_leader_to_another_broker():
    with ScriptedBroker(1) as first, ScriptedBroker(2) as second:
        leaders = {("t", 0): (1, 0)}
        first.handlers[METADATA] = second.handlers[METADATA] = metadata_of([first, second], leaders)
        log = [bytes(build_batch(records(0, 2))), bytes(build_batch(records(2, 2)))]

        def resign(request: FetchRequest) -> FetchResponse:
            if position_of(request) < 2:
                return response_with(log[0])
            leaders["t", 0] = (2, 1)
            return response_with(b"", ErrorCode.NOT_LEADER_OR_FOLLOWER)

        first.handlers[FETCH] = resign
        second.handlers[FETCH] = log_handler(log)
        assert values(reader_of(first, 0, 4)) == [b"v0", b"v1", b"v2", b"v3"]
        (asked,) = second.requests_of(FetchRequest)
        assert asked.topics[0].partitions[0].current_leader_epoch == 1


def test_a_broker_that_dies_in_the_middle_of_a_response_is_replaced():
    with ScriptedBroker(1) as first, ScriptedBroker(2) as second:
        leaders = {("t", 0): (1, 0)}
        first.handlers[METADATA] = second.handlers[METADATA] = metadata_of([first, second], leaders)
        batch = bytes(build_batch(records(0, 2)))

        def die(request: FetchRequest) -> bytes:
            leaders["t", 0] = (2, 1)
            threading.Timer(0, first.close).start()
            return b"\x00\x00\x10\x00half a response"

        first.handlers[FETCH] = die
        second.handlers[FETCH] = log_handler([batch])
        cluster = Cluster(second.settings())
        assert values(RangeReader(cluster, PARTITION, 0, 2, FetchSettings(), 10)) == [b"v0", b"v1"]


def serve_offsets(earliest: int, latest: int) -> Callable[[ListOffsetsRequest], ListOffsetsResponse]:
    def serve(request: ListOffsetsRequest) -> ListOffsetsResponse:
        asked = request.topics[0].partitions[0].timestamp
        offset = earliest if asked == -2 else latest
        partition = ListOffsetsPartitionResponse(0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [partition])])

    return serve


def test_offsets_that_are_gone_are_told_with_what_there_is(broker):
    broker.handlers[FETCH] = lambda request: response_with(b"", ErrorCode.OFFSET_OUT_OF_RANGE)
    broker.handlers[LIST_OFFSETS] = serve_offsets(40, 90)
    with pytest.raises(OffsetsGone) as gone:
        values(reader_of(broker, 7, 50))
    assert (gone.value.offset, gone.value.earliest, gone.value.latest) == (7, 40, 90)


def test_a_log_that_was_truncated_below_what_was_read_is_a_loss(broker):
    batch = bytes(build_batch(records(0, 5), leader_epoch=3))

    def serve(request: FetchRequest) -> FetchResponse:
        if position_of(request) == 0:
            return response_with(batch)
        return response_with(b"", diverging_epoch=EpochEndOffset(3, 4), log_start_offset=0)

    broker.handlers[FETCH] = serve
    with pytest.raises(OffsetsGone, match="t-0 has offsets 0 to 4, not 5"):
        values(reader_of(broker, 0, 10))


def test_a_record_that_never_comes_ends_in_a_sentence(broker):
    broker.handlers[FETCH] = lambda request: response_with(b"")
    with pytest.raises(TimedOut, match=r"could not read t-0 at offset 3 within 0\.05 s"):
        values(reader_of(broker, 3, 4, timeout_s=0.05))


def test_closing_a_reader_ends_its_thread_and_does_not_reuse_the_connection(broker):
    batch = bytes(build_batch(records(0, 2)))
    asked_again = threading.Event()
    never = threading.Event()

    def serve(request: FetchRequest) -> FetchResponse:
        if position_of(request) == 0:
            return response_with(batch)
        asked_again.set()
        never.wait(30)
        return response_with(b"")

    broker.handlers[FETCH] = serve
    reader = reader_of(broker, 0, 100)
    chunks = read_range(reader)
    next(chunks)
    assert asked_again.wait(60)
    chunks.close()
    never.set()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fetch-t-0")]
    reader.cluster.keep_idle_connections()
    assert not reader.cluster._connections


def test_a_response_that_belongs_to_another_request_closes_the_connection(broker):
    broker.handlers[FETCH] = lambda request: b"\x00\x00\x00\x05" + b"\x00\x00\xff\xff" + b"\x00"
    with pytest.raises(TimedOut, match="response 65535 instead"):
        values(reader_of(broker, 0, 1, timeout_s=0.05))
