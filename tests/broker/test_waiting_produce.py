"""Produce requests that wait for their batches to be committed."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.records import PartitionChangeRecord
from odradek.model import ANONYMOUS, Caller
from odradek.records.record import Record, build_batch
from odradek.serving.dispatch import Dispatcher
from odradek.serving.request import Request
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.wire.codec import read_message
from odradek.wire.frame import SIZE, encode_request, read_request_header
from odradek.wire.messages.describe_producers import DescribeProducersRequest
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.in_process import InProcess


class Stalled:
    """A broker whose partitions commit nothing until they are told to."""

    def __init__(self, broker: InProcess) -> None:
        services = broker.broker.services
        broker.broker._flusher.appended = lambda replica: None  # type: ignore[method-assign]
        self.partition = services.partitions.replicas.leader("t", 0)
        self.responses: list[Request] = []
        self._dispatcher = Dispatcher(services)

    def send(self, *timeouts_ms: int) -> list[bytearray]:
        """One run of requests; what they came in."""
        frames = [self.produce_frame(timeout_ms) for timeout_ms in timeouts_ms]
        for frame in frames:
            self.dispatch(frame)
        self._dispatcher.finish()
        return frames

    def dispatch(self, frame: bytearray) -> None:
        view = memoryview(frame)[SIZE.size :]
        header = read_request_header(view)
        request = Request(
            header,
            Caller(ANONYMOUS, "127.0.0.1:1", "PLAINTEXT", header.client_id),
            self.responses.append,
            self._dispatcher.turns,
        )
        self._dispatcher.dispatch(request, view, header.body)

    @staticmethod
    def produce_frame(timeout_ms: int) -> bytearray:
        records = bytes(build_batch([Record(0, 0, None, b"value")]))
        topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(0, records)])
        return bytearray(encode_request(ProduceRequest(None, -1, timeout_ms, [topic]), 0, 8, 1, "test"))

    def codes(self) -> list[int]:
        messages = [
            read_message(ProduceResponse, 8, b"".join(map(bytes, one.parts or ())), 8)[0]
            for one in self.responses
        ]
        return [one.responses[0].partition_responses[0].error_code for one in messages]  # type: ignore[attr-defined]

    def commit(self) -> None:
        self.partition.log.sync()
        self.partition.maybe_advance_high_watermark()


async def stalled(broker: InProcess) -> Stalled:
    await broker.create_topic("t")
    return Stalled(broker)


def test_what_waits_does_not_hold_the_frame_it_came_in(tmp_path: Path) -> None:
    """A thousand requests may wait for one sync, and their frames are a megabyte each."""

    async def test() -> None:
        async with InProcess(str(tmp_path)) as broker:
            waiting = await stalled(broker)
            frames = waiting.send(20_000, 20_000)
            assert waiting.responses == []
            for frame in frames:
                frame.append(0)  # raises BufferError while anybody has a view on it
            waiting.commit()
            assert waiting.codes() == [0, 0]

    asyncio.run(test())


def test_each_of_a_run_waits_for_its_own_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with InProcess(str(tmp_path)) as broker:
            waiting = await stalled(broker)
            waiting.send(20_000, 0, 20_000)
            while not waiting.responses:
                await asyncio.sleep(0.001)
            assert waiting.codes() == [ErrorCode.REQUEST_TIMED_OUT]
            waiting.commit()
            assert waiting.codes() == [ErrorCode.REQUEST_TIMED_OUT, 0, 0]

    asyncio.run(test())


def test_a_request_of_another_kind_finds_what_came_before_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with InProcess(str(tmp_path)) as broker:
            waiting = await stalled(broker)
            waiting.dispatch(waiting.produce_frame(20_000))
            waiting.dispatch(encode_request(DescribeProducersRequest([]), 61, 0, 1, "test"))
            assert waiting.partition.log.end_offset == 1

    asyncio.run(test())


@pytest.mark.parametrize("committed", [0, 1, 2])
def test_when_a_partition_is_closed_only_the_uncommitted_fail(tmp_path: Path, committed: int) -> None:
    """The high watermark may come to lie within a run: a follower has fetched a part of it."""

    async def test() -> None:
        async with InProcess(str(tmp_path)) as broker:
            waiting = await stalled(broker)
            waiting.send(20_000, 20_000)
            waiting.partition.high_watermark = committed
            waiting.partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            failed = ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert waiting.codes() == [0] * committed + [failed] * (2 - committed)

    asyncio.run(test())


@pytest.mark.parametrize("disk_fails", [False, True])
def test_a_log_that_is_rolled_before_its_sync_keeps_nobody_waiting(tmp_path: Path, disk_fails: bool) -> None:
    """`segment.ms` rolled a log between an append and the round that was to sync it: the roll synced it, the round
    found nothing to do, and the request was never answered."""
    files = SimulatedFiles()
    files.make_directory(str(tmp_path))

    async def scenario() -> None:
        async with InProcess(str(tmp_path), files) as broker:
            await broker.create_topic("t")
            partition = broker.broker.replicas.get("t", 0)
            producing = asyncio.create_task(broker.produce("t", [(None, b"x")]))
            while partition.log.end_offset == 0:
                await asyncio.sleep(0)
            files.fail_syncs = int(disk_fails)
            with suppress(KafkaError):
                partition.log.roll(0)
            response = await asyncio.wait_for(producing, 10)
            assert response.error_code == (ErrorCode.KAFKA_STORAGE_ERROR if disk_fails else ErrorCode.NONE)

    asyncio.run(scenario())


# --- the ISR is too small, before and after the append ---


def set_isr(broker: InProcess, *isr: int) -> None:
    metadata = broker.broker.metadata
    topic_id = metadata.image.topics["t"].id
    metadata._commit([PartitionChangeRecord(0, topic_id, replicas=[1, 2, 3], isr=list(isr))])


def produce_request(timeout_ms: int, acks: int = -1) -> ProduceRequest:
    records = bytes(build_batch([Record(0, 0, None, b"value")]))
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(0, records)])
    return ProduceRequest(None, acks, timeout_ms, [topic])


def test_an_isr_too_small_before_the_append_refuses_acks_all_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with InProcess(str(tmp_path), settings={"min.insync.replicas": "2"}) as broker:
            await broker.create_topic("t")
            set_isr(broker, 1)
            leader = broker.broker.replicas.leader("t", 0)
            refused = (await broker.ask(produce_request(20_000), 9)).responses[0].partition_responses[0]
            assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert refused.error_message == "t-0 has 1 in-sync replicas, and acks=all needs 2."
            assert (refused.base_offset, refused.log_append_time_ms, refused.log_start_offset) == (-1, -1, 0)
            assert leader.log.end_offset == 0
            taken = (await broker.ask(produce_request(20_000, acks=1), 9)).responses[0].partition_responses[0]
            assert (taken.error_code, taken.base_offset, leader.log.end_offset) == (0, 0, 1)

    asyncio.run(test())


def test_no_more_in_sync_replicas_are_needed_than_there_are(tmp_path: Path) -> None:
    async def test() -> None:
        async with InProcess(str(tmp_path), settings={"min.insync.replicas": "2"}) as broker:
            await broker.create_topic("t")
            assert (await broker.produce("t", [(None, b"x")])).error_code == 0

    asyncio.run(test())


def test_an_isr_too_small_after_the_append_commits_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with InProcess(str(tmp_path), settings={"min.insync.replicas": "2"}) as broker:
            await broker.create_topic("t")
            set_isr(broker, 1, 2)
            leader = broker.broker.replicas.leader("t", 0)
            waiting = asyncio.ensure_future(broker.ask(produce_request(300), 9))
            while leader.log.end_offset == 0:
                await asyncio.sleep(0)
            set_isr(broker, 1)  # the one that is left has it, and that is not enough
            leader.log.sync()
            leader.maybe_advance_high_watermark()
            assert leader.high_watermark == 0
            response = (await waiting).responses[0].partition_responses[0]
            assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert (response.base_offset, response.log_start_offset) == (0, 0)
            set_isr(broker, 1, 2)
            leader.replica_fetched(2, broker_epoch=1, offset=1, now_ms=0)
            assert leader.high_watermark == 1

    asyncio.run(test())


def test_what_was_committed_before_the_isr_became_too_small_is_acknowledged(tmp_path: Path) -> None:
    async def test() -> None:
        async with InProcess(str(tmp_path), settings={"min.insync.replicas": "2"}) as broker:
            await broker.create_topic("t")
            set_isr(broker, 1, 2)
            leader = broker.broker.replicas.leader("t", 0)
            waiting = asyncio.ensure_future(broker.ask(produce_request(20_000), 9))
            while leader.log.end_offset == 0:
                await asyncio.sleep(0)
            leader.log.sync()
            leader.replica_fetched(2, broker_epoch=1, offset=1, now_ms=0)
            set_isr(broker, 1)
            response = (await waiting).responses[0].partition_responses[0]
            assert (response.error_code, response.base_offset) == (0, 0)

    asyncio.run(test())
