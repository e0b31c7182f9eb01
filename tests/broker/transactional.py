"""A broker whose transaction coordinator is played by the test, and requests of transactional producers."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odradek.errors import ErrorCode
from odradek.model import TRANSACTIONS_TOPIC
from odradek.records.control import build_marker_batch
from odradek.records.record import Record, build_batch, decode_batch
from odradek.records.walk import whole_batches
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.in_process import InProcess, put

ALL_VERSIONS = 12  # of Produce: adds partitions to a transaction
OLDER = 11  # knows TRANSACTION_ABORTABLE
OLD = 9
READ_COMMITTED = 1


class PlayedCoordinator:
    """Answers what brokers ask about transactions, once it may."""

    def __init__(self) -> None:
        self.requests: list[AddPartitionsToTxnRequest] = []
        self.codes: list[ErrorCode] = []  # of the next responses; then NONE
        self.failure: OSError | None = None
        self.refusal = ErrorCode.NONE  # of whole requests
        self.was_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    @property
    def transactions(self) -> list[AddPartitionsToTxnTransaction]:
        return [transaction for request in self.requests for transaction in request.transactions]

    async def ask(self, broker_id: int, message: Any, version: int, timeout_seconds: float) -> Any:
        self.requests.append(message)
        self.was_asked.set()
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        if self.refusal:
            return AddPartitionsToTxnResponse(error_code=self.refusal)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[self._result(transaction) for transaction in message.transactions]
        )

    def _result(self, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        return AddPartitionsToTxnResult(
            transaction.transactional_id,
            [
                AddPartitionsToTxnTopicResult(
                    topic.name,
                    [AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions],
                )
                for topic in transaction.topics
            ],
        )


class Transactional(InProcess):
    """A broker with a topic `t` of two partitions."""

    def __init__(self, path: Path, has_coordinators: bool = True, **settings: str) -> None:
        super().__init__(
            str(path), settings={name.replace("_", "."): set_ for name, set_ in settings.items()}
        )
        self.coordinator = PlayedCoordinator()
        self._has_coordinators = has_coordinators
        put(self.broker.services.coordination, "peers", self.coordinator)

    async def __aenter__(self) -> "Transactional":
        await super().__aenter__()
        await self.create_topic("t", 2)
        if self._has_coordinators:
            await self.create_topic(TRANSACTIONS_TOPIC, 2)
        return self

    async def use_transaction_version(self, level: int) -> None:
        update = FeatureUpdateKey("transaction.version", level, upgrade_type=2)
        response = await self.ask(UpdateFeaturesRequest(60_000, [update]), 1)
        assert response.error_code == 0, response

    async def write(
        self,
        sequence: int,
        *values: bytes,
        version: int = ALL_VERSIONS,
        partitions: tuple[int, ...] = (0,),
        transactional_id: str | None = "tx",
        **options: Any,
    ) -> ErrorCode:
        message = produce(
            sequence, *values, partitions=partitions, transactional_id=transactional_id, **options
        )
        response = await self.ask(message, version)
        (topic,) = response.responses
        codes = {result.error_code for result in topic.partition_responses}
        assert len(codes) == 1, codes
        return ErrorCode(codes.pop())

    async def end(
        self,
        *,
        is_commit: bool = True,
        producer: int = 7,
        epoch: int = 1,
        coordinator_epoch: int = 0,
        topic: str = "t",
        partitions: tuple[int, ...] = (0,),
        transaction_version: int = 2,
    ) -> list[ErrorCode]:
        """The results of the marker's partitions."""
        marker = WritableTxnMarker(
            producer,
            epoch,
            is_commit,
            [WritableTxnMarkerTopic(topic, list(partitions))],
            coordinator_epoch,
            transaction_version,
        )
        response = await self.ask(WriteTxnMarkersRequest([marker]), 2)
        (result,) = response.markers
        assert result.producer_id == producer and [found.name for found in result.topics] == [topic]
        assert [found.partition_index for found in result.topics[0].partitions] == list(partitions)
        return [ErrorCode(found.error_code) for found in result.topics[0].partitions]

    async def fetch(self, offset: int = 0, isolation_level: int = READ_COMMITTED, **options: Any) -> Any:
        """Partition 0 of the topic, as it comes."""
        wanted = FetchTopic(
            topic="t", partitions=[FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)]
        )
        message = FetchRequest(
            max_wait_ms=options.pop("max_wait_ms", 0),
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation_level,
            topics=[wanted],
        )
        response = await self.ask(message, 11)
        return response.responses[0].partitions[0]

    async def committed_values(self) -> list[bytes | None]:
        """Return what a `read_committed` consumer makes of partition 0. Every fetch stands for itself."""
        values: list[bytes | None] = []
        offset = 0
        while (response := await self.fetch(offset)).records:
            values += visible(response)
            *_, (last, _) = whole_batches(memoryview(response.records))
            offset = last.next_offset
        return values


def visible(response: Any) -> list[bytes | None]:
    """The values that a `read_committed` consumer shows: it leaves out aborted transactions, as clients do."""
    assert response.error_code == 0, response
    begins = sorted((one.first_offset, one.producer_id) for one in response.aborted_transactions or ())
    aborted: set[int] = set()
    values: list[bytes | None] = []
    for header, batch in whole_batches(memoryview(response.records or b"")):
        while begins and begins[0][0] <= header.last_offset:
            aborted.add(begins.pop(0)[1])
        if header.is_control:
            aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            values += [record.value for record in decode_batch(batch, header)]
    return values


def batch_of(
    sequence: int, *values: bytes, producer: int = 7, epoch: int = 0, transactional: bool = True
) -> bytes:
    return bytes(
        build_batch(
            [Record(at, 1_000 + at, None, value) for at, value in enumerate(values or (b"x",))],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def produce(
    sequence: int,
    *values: bytes,
    partitions: tuple[int, ...] = (0,),
    transactional_id: str | None = "tx",
    acks: int = -1,
    topic: str = "t",
    **options: Any,
) -> ProduceRequest:
    data = [PartitionProduceData(index, batch_of(sequence, *values, **options)) for index in partitions]
    return ProduceRequest(transactional_id, acks, 30_000, [TopicProduceData(name=topic, partition_data=data)])


def control_batch() -> bytes:
    return bytes(
        build_marker_batch(commit=True, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp=0)
    )


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())
