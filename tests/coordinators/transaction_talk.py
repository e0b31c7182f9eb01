"""A transaction coordinator to talk to, and the transcript of the talk.

    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    assert talk.heard() == lines('''
        initialize
            Empty 1000/0
            = 1000/0
        add t-0 as 1000/0
            ...
    ''')

What is said stands at the left. Below it, indented: the records that are written, the effects (`>`), and the response
(`=`). A producer is written as id/epoch. Producer ids are handed out from 1000 on, when asked for.
"""

from __future__ import annotations

from typing import Any

from odradek.coordinators.runner import Runner
from odradek.coordinators.runtime import StateBatch
from odradek.coordinators.transactions.coordinator import TransactionCoordinator, TransactionSettings
from odradek.coordinators.transactions.effects import GetProducerId, WriteMarkers
from odradek.coordinators.transactions.records import decode
from odradek.coordinators.transactions.transaction import Transaction
from odradek.errors import ErrorCode
from odradek.model import Caller, TopicPartition
from odradek.wire.codec import encode, read_message
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from tests.coordinators.virtual import CoordinatorWorld

ID = "orders"
NEWEST = {InitProducerIdRequest: 6, AddPartitionsToTxnRequest: 5, EndTxnRequest: 5}
BEFORE_VERSION_2 = {InitProducerIdRequest: 5, AddPartitionsToTxnRequest: 3, EndTxnRequest: 4}


class TransactionTalk(CoordinatorWorld[TransactionCoordinator]):
    """Markers are written when `markers()` is called, or at once if `writes_markers` is set."""

    def __init__(self, version: int = 2, settings: TransactionSettings | None = None) -> None:
        super().__init__()
        self.version = version
        self.settings = settings or TransactionSettings()
        self.writes_markers = False
        self.has_producer_ids = True
        self.refuses_producer_ids = False
        self.asked_for: list[GetProducerId] = []  # while there are none
        self.log_is_ahead = False  # a coordinator that takes over finds records that are not committed
        self.next_producer_id = 1000
        self.wanted: list[WriteMarkers] = []  # markers that are to be written
        self.producer = (-1, -1)  # as the last response named it
        self._lines: list[str] = []
        self.start()

    def new_coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(self.settings, lambda: self.version)

    def restarts(self) -> None:
        """Another broker takes over; it finds what the log has."""
        self._say("(the coordinator moves)")
        self.runner.resign()
        self.wanted.clear()
        self.start(0 if self.log_is_ahead else None)

    def passes(self, duration_ms: int) -> None:
        self._say(f"({duration_ms} ms pass)")
        self.host.run_for(duration_ms)

    @property
    def transaction(self) -> Transaction:
        return self.coordinator.transactions[ID]

    # --- saying things ---

    def request(self, message: Any, version: int | None = None) -> Any:
        """Send anything; the response, if it has come by the time this returns."""
        if hasattr(message, "MAX_VERSION"):
            versions = NEWEST if self.version >= 2 else BEFORE_VERSION_2
            version = versions.get(type(message), message.MAX_VERSION) if version is None else version
            self._encoded(message, version)
        responses: list[Any] = []

        def respond(response: Any) -> None:
            assert not responses, "answered twice"
            responses.append(response)
            self._lines.append(f"    = {_described(response)}")

        self.runner.handle(message, version or 0, Caller(), respond)
        return responses[0] if responses else None

    def _encoded(self, message: Any, version: int) -> None:
        """It must fit the version. What older versions do not carry is put into the newest form by `api`."""
        if not isinstance(message, AddPartitionsToTxnRequest):
            read_message(type(message), version, bytes(encode(message, version)))

    def initialize(
        self,
        expected: tuple[int, int] = (-1, -1),
        *,
        timeout_ms: int = 60_000,
        version: int | None = None,
        transactional_id: str = ID,
        **fields: Any,
    ) -> Any:
        self._say("initialize" + (f" as {_producer(expected)}" if expected != (-1, -1) else ""))
        request = InitProducerIdRequest(transactional_id, timeout_ms, *expected, **fields)
        response = self.request(request, version)
        if response is not None and not response.error_code:
            self.producer = (response.producer_id, response.producer_epoch)
        return response

    def add(
        self,
        *names: str,
        producer: tuple[int, int] | None = None,
        version: int | None = None,
        verify: bool = False,
        transactional_id: str = ID,
    ) -> ErrorCode | None:
        """Add them, and return what became of the first."""
        producer = producer or self.producer
        verb = "verify" if verify else "add"
        self._say(f"{verb} {' '.join(names)} as {_producer(producer)}")
        topics: dict[str, list[int]] = {}
        for name in names:
            topic, _, index = name.rpartition("-")
            topics.setdefault(topic, []).append(int(index))
        asked = AddPartitionsToTxnTransaction(
            transactional_id,
            *producer,
            verify,
            [AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in topics.items()],
        )
        response = self.request(AddPartitionsToTxnRequest([asked]), version)
        return None if response is None else _codes(response)[0]

    def end(
        self, *, commit: bool, producer: tuple[int, int] | None = None, version: int | None = None
    ) -> ErrorCode | None:
        producer = producer or self.producer
        self._say(f"{'commit' if commit else 'abort'} as {_producer(producer)}")
        response = self.request(EndTxnRequest(ID, *producer, commit), version)
        if response is None:
            return None
        if response.producer_id >= 0:
            self.producer = (response.producer_id, response.producer_epoch)
        return ErrorCode(response.error_code)

    def markers(self) -> None:
        """All markers that are wanted have been written."""
        self._say("(the markers are written)")
        wanted, self.wanted = self.wanted, []
        for each in wanted:
            self.written(each)

    def written(self, markers: WriteMarkers) -> None:
        self.runner.tell(lambda coordinator, now_ms: coordinator.markers_written(markers, now_ms))

    # --- hearing things ---

    def heard(self) -> str:
        """The transcript since it was last asked for."""
        text = "\n".join(self._lines)
        self._lines.clear()
        return text

    def _say(self, text: str) -> None:
        self._lines.append(text)

    def perform(self, runner: Runner[TransactionCoordinator], effect: Any) -> None:
        assert runner is self.runner, "a coordinator that has resigned does nothing any more"
        if isinstance(effect, GetProducerId):
            self._get_producer_id(runner, effect)
            return
        assert isinstance(effect, WriteMarkers)
        end = "commit" if effect.is_commit else "abort"
        producer = _producer((effect.producer_id, effect.producer_epoch))
        version = effect.transaction_version
        self._lines.append(
            f"    > {end} markers of {producer} (version {version}) to {_names(effect.partitions)}"
        )
        self.wanted.append(effect)
        if self.writes_markers:
            self.host.call_soon(self.markers)

    def _get_producer_id(self, runner: Runner[TransactionCoordinator], wanted: GetProducerId) -> None:
        if wanted.token is None:
            self._lines.append("    > needs a producer id for what is overdue")
        if self.refuses_producer_ids:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            runner.tell(lambda coordinator, now_ms: coordinator.producer_id_refused(wanted, code))
        elif not self.has_producer_ids:
            self.asked_for.append(wanted)
        else:
            producer_id = self.next_producer_id
            self.next_producer_id += 1
            self.host.call_soon(
                runner.tell,
                lambda coordinator, now_ms: coordinator.producer_id_got(wanted, producer_id, now_ms),
            )
            self.host.run_for(0)

    def after_append(self, batch: StateBatch) -> None:
        for key, value in batch.records:
            record = decode(key, value)
            assert record is not None
            self._lines.append(f"    {_written(record[1])}")


def _written(transaction: Transaction | None) -> str:
    if transaction is None:
        return "gone"
    text = f"{transaction.state.label} {_producer((transaction.producer_id, transaction.producer_epoch))}"
    if transaction.next_producer_id >= 0:
        text += f", then {transaction.next_producer_id}"
    return text + (f": {_names(transaction.partitions)}" if transaction.partitions else "")


def _names(partitions: Any) -> str:
    return " ".join(str(TopicPartition(*each)) for each in sorted(partitions))


def _producer(producer: tuple[int, int]) -> str:
    return f"{producer[0]}/{producer[1]}"


def _codes(response: Any) -> list[ErrorCode]:
    return [
        ErrorCode(partition.partition_error_code)
        for result in response.results_by_transaction
        for topic in result.topic_results
        for partition in topic.results_by_partition
    ]


def _described(response: Any) -> str:
    if isinstance(response, ErrorCode):
        return response.name
    if hasattr(response, "results_by_transaction"):
        return " ".join(code.name for code in _codes(response))
    if getattr(response, "error_code", 0):
        return ErrorCode(response.error_code).name
    if getattr(response, "producer_id", -1) >= 0:
        return _producer((response.producer_id, response.producer_epoch))
    return "NONE"
