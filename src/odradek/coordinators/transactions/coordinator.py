"""All transactional ids of one shard, as a `runtime.Coordinator`.

A request decides on the `Transaction` of its id; the record that it writes is the next one. A response waits for its
record to be committed, and so do effects: `WriteMarkers`, after which the outside says `markers_written`, and
`GetProducerId`, after which the request that waits for the id is handled once more, with the id. A coordinator that has
loaded a prepared transaction asks for its markers again.

A producer that begins its next transaction while the last one is being completed waits for that for a moment, instead
of being sent away with CONCURRENT_TRANSACTIONS.

A transaction that is open for longer than its timeout is aborted, and its producer fenced. An id that was not used for
`transactional.id.expiration.ms` is forgotten.

The finalized level of `transaction.version` is asked for anew each time: it may change under way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from odradek.coordinators.runtime import (
    Decision,
    EncodedRecord,
    Producer,
    StateRecord,
    Timers,
    Token,
)
from odradek.coordinators.transactions import adding, ending, initializing, listing, records
from odradek.coordinators.transactions.effects import GetProducerId, WriteMarkers
from odradek.coordinators.transactions.refusals import refuse
from odradek.coordinators.transactions.states import AT_REST, ONGOING, PREPARED
from odradek.coordinators.transactions.transaction import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.model import EPOCH_FOR_EACH_TRANSACTION, Caller
from odradek.storage.producers.markers import Marker
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wording import duration

END_RAISES_EPOCH_SINCE = 5  # EndTxn
EXPIRED_AT_ONCE = 1_000  # ids in one batch of tombstones
PATIENCE_MS = 100  # of a producer that begins while its last transaction is being completed
MOST_WAITING = 100  # requests, for one transaction
COMPLETE_RETRY_MS = 500  # after a completion that could not be written

Handler = Callable[
    ..., Decision
]  # takes the request, its version, its token, the time, maybe a new producer id


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker's settings, by their names in Kafka."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000


class Waiting(NamedTuple):
    """A request to add partitions."""

    asked: AddPartitionsToTxnTransaction
    api_version: int
    token: Token


class TransactionCoordinator:
    """A `runtime.Coordinator` for one partition of `__transaction_state`.

    `version` is the finalized level of transaction.version."""

    noun = "transactional id"

    def __init__(self, settings: TransactionSettings, version: Callable[[], int]) -> None:
        self.settings = settings
        self.timers = Timers()
        self.transactions: dict[str, Transaction] = {}
        self._version = version
        self._is_loaded = False
        self._waiting: dict[str, list[Waiting]] = {}
        self._handlers: dict[type[Any], Handler] = {
            InitProducerIdRequest: self._initialize,
            AddPartitionsToTxnRequest: self._add_partitions,
            EndTxnRequest: self._end,
            DescribeTransactionsRequest: self._describe,
            ListTransactionsRequest: self._list,
        }

    # --- as a Coordinator ---

    def handle(self, request: Any, version: int, caller: Caller, token: Token, now_ms: int) -> Decision:
        return self._handlers[type(request)](request, version, token, now_ms)

    def refuse(self, request: Any, code: ErrorCode) -> Any:
        return refuse(request, code)

    def encode(self, key: str, value: Transaction | None) -> EncodedRecord:
        return records.encode(key, value, self._version())

    def decode(self, key: bytes, value: bytes | None) -> StateRecord | None:
        return records.decode(key, value)

    def replay(self, key: str, value: Transaction | None, producer: Producer | None = None) -> None:
        if value is None:
            self.transactions.pop(key, None)
        else:
            self.transactions[key] = value
        if self._is_loaded:
            self._watch(key, value)

    def replay_marker(self, producer: Producer, marker: Marker) -> None:
        """Nothing here is part of a transaction."""

    def loaded(self, now_ms: int) -> None:
        self._is_loaded = True
        for transactional_id, transaction in self.transactions.items():
            self._watch(transactional_id, transaction)
        self.timers.schedule("markers", now_ms, self._write_markers_again)
        self._schedule_expiry(now_ms)

    def __len__(self) -> int:
        return len(self.transactions)

    # --- InitProducerId ---

    def _initialize(
        self,
        request: InitProducerIdRequest,
        version: int,
        token: Token,
        now_ms: int,
        new_producer_id: int = NO_PRODUCER_ID,
    ) -> Decision:
        expected = initializing.check(request, self.settings.transaction_max_timeout_ms)
        transactional_id, timeout_ms = request.transactional_id or "", request.transaction_timeout_ms
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            if new_producer_id == NO_PRODUCER_ID:
                return _ask_for_producer_id(request, version, token)
            first = Transaction(transactional_id, new_producer_id).initialized(
                0, NO_EPOCH, timeout_ms, now_ms
            )
            return self._initialized(first, token)
        initializing.check_producer(transaction, expected)
        if transaction.state is ONGOING:
            return self._take_over(transaction, request, version, token, now_ms, new_producer_id)
        if not initializing.needs_producer_id(transaction, expected):
            epoch, last_epoch = initializing.next_epoch(transaction, expected)
            return self._initialized(transaction.initialized(epoch, last_epoch, timeout_ms, now_ms), token)
        if new_producer_id == NO_PRODUCER_ID:
            return _ask_for_producer_id(request, version, token)
        last_epoch = NO_EPOCH if expected is None else transaction.producer_epoch
        renewed = transaction.with_new_producer(new_producer_id, last_epoch, timeout_ms, now_ms)
        return self._initialized(renewed, token)

    def _initialized(self, transaction: Transaction, token: Token) -> Decision:
        response = InitProducerIdResponse(
            producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch
        )
        return Decision([_record(transaction)], [(token, response)])

    def _take_over(
        self,
        transaction: Transaction,
        request: InitProducerIdRequest,
        version: int,
        token: Token,
        now_ms: int,
        new_producer_id: int,
    ) -> Decision:
        """Its open transaction is aborted first: the producer tries again meanwhile."""
        if self._fencing_needs_producer_id(transaction, new_producer_id):
            return _ask_for_producer_id(request, version, token)
        decision = self._fence(transaction, now_ms, new_producer_id)
        _note(decision, transaction.transactional_id, "aborting its open transaction: a new producer begins")
        decision.responses.append((token, refuse(request, ErrorCode.CONCURRENT_TRANSACTIONS)))
        return decision

    # --- AddPartitionsToTxn ---

    def _add_partitions(
        self, request: AddPartitionsToTxnRequest, version: int, token: Token, now_ms: int
    ) -> Decision:
        """In the form of version 4, about a single transaction."""
        (asked,) = request.transactions
        transaction = self.transactions.get(asked.transactional_id)
        if transaction is not None and self._may_wait(transaction, asked, now_ms):
            self._wait(Waiting(asked, version, token), now_ms)
            return Decision()
        decision = Decision()
        self._add(transaction, Waiting(asked, version, token), decision, now_ms)
        return decision

    def _add(
        self, transaction: Transaction | None, request: Waiting, decision: Decision, now_ms: int
    ) -> Transaction | None:
        """The transaction from now on."""
        asked = request.asked
        try:
            if not asked.transactional_id:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            if transaction is None:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            if asked.verify_only:
                result = adding.verify(transaction, asked)
            else:
                if adding.check_add(transaction, asked):
                    version = EPOCH_FOR_EACH_TRANSACTION if request.api_version >= adding.BROKERS_SINCE else 0
                    transaction = transaction.with_partitions(adding.partitions_of(asked), now_ms, version)
                    decision.records.append(_record(transaction))
                result = adding.result_for(asked, ErrorCode.NONE)
        except KafkaError as error:
            result = adding.result_for(asked, error.code)
        response = AddPartitionsToTxnResponse(results_by_transaction=[result])
        decision.responses.append((request.token, response))
        return transaction

    # --- a transaction that begins while the one before it is being completed ---

    def _may_wait(self, transaction: Transaction, asked: AddPartitionsToTxnTransaction, now_ms: int) -> bool:
        """The markers take a moment, and CONCURRENT_TRANSACTIONS would cost the producer many: it pauses."""
        if transaction.state not in PREPARED or asked.verify_only:
            return False
        after = transaction.completed(now_ms)
        waiting = self._waiting.get(asked.transactional_id, ())
        return len(waiting) < MOST_WAITING and (after.producer_id, after.producer_epoch) == (
            asked.producer_id,
            asked.producer_epoch,
        )

    def _wait(self, request: Waiting, now_ms: int) -> None:
        transactional_id = request.asked.transactional_id
        waiting = self._waiting.setdefault(transactional_id, [])
        if not waiting:
            self.timers.schedule(
                ("waiting", transactional_id),
                now_ms + PATIENCE_MS,
                lambda now_ms: self._stop_waiting(transactional_id),
            )
        waiting.append(request)

    def _stop_waiting(self, transactional_id: str) -> Decision:
        return Decision(
            responses=[
                (
                    waiting.token,
                    AddPartitionsToTxnResponse(
                        results_by_transaction=[
                            adding.result_for(waiting.asked, ErrorCode.CONCURRENT_TRANSACTIONS)
                        ]
                    ),
                )
                for waiting in self._waiting.pop(transactional_id, ())
            ]
        )

    # --- EndTxn ---

    def _end(
        self,
        request: EndTxnRequest,
        version: int,
        token: Token,
        now_ms: int,
        new_producer_id: int = NO_PRODUCER_ID,
    ) -> Decision:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        transaction = self._known(request.transactional_id)
        raises_epoch = version >= END_RAISES_EPOCH_SINCE and self._version() >= EPOCH_FOR_EACH_TRANSACTION
        if not raises_epoch:
            if ending.judge(transaction, request) is ending.Verdict.ENDED:
                return Decision(responses=[(token, EndTxnResponse())])
            prepared = transaction.prepared(
                commit=request.committed, client_version=0, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms
            )
            return self._prepared(prepared, now_ms, (token, EndTxnResponse()))
        if ending.judge_by_raised_epoch(transaction, request) is ending.Verdict.ENDED:
            return Decision(responses=[(token, _ended(transaction))])
        if transaction.is_epoch_exhausted and new_producer_id == NO_PRODUCER_ID:
            return _ask_for_producer_id(request, version, token)
        prepared = transaction.prepared(
            commit=request.committed,
            client_version=EPOCH_FOR_EACH_TRANSACTION,
            next_producer_id=new_producer_id if transaction.is_epoch_exhausted else NO_PRODUCER_ID,
            now_ms=now_ms,
        )
        return self._prepared(prepared, now_ms, (token, _ended(prepared.completed(now_ms))))

    # --- prepared, and completed ---

    def _prepared(self, prepared: Transaction, now_ms: int, *responses: tuple[Token, Any]) -> Decision:
        """It is decided: once that is committed the markers follow. Without partitions it is complete at once."""
        if not prepared.partitions:
            return Decision([_record(prepared), _record(prepared.completed(now_ms))], list(responses))
        return Decision([_record(prepared)], list(responses), effects=[_markers_of(prepared)])

    def markers_written(self, written: WriteMarkers, now_ms: int) -> Decision | None:
        """All of them are committed. If that cannot be written down, it is tried again."""
        transaction = self.transactions.get(written.transactional_id)
        if (
            transaction is None
            or transaction.state not in PREPARED
            or (transaction.producer_id, transaction.producer_epoch)
            != (written.producer_id, written.producer_epoch)
        ):
            return None  # said twice

        def again() -> None:
            key = ("completed", written.transactional_id)
            due_ms = now_ms + COMPLETE_RETRY_MS
            self.timers.schedule(key, due_ms, lambda now_ms: self.markers_written(written, now_ms))

        after: Transaction | None = transaction.completed(now_ms)
        decision = Decision([(transaction.transactional_id, after)], undo=again)
        for waiting in self._waiting.pop(transaction.transactional_id, ()):
            after = self._add(after, waiting, decision, now_ms)
        self.timers.cancel(("waiting", transaction.transactional_id))
        return decision

    def _write_markers_again(self, now_ms: int) -> Decision:
        """Write the markers of the transactions that an earlier coordinator prepared, and maybe did not complete."""
        prepared = [each for each in self.transactions.values() if each.state in PREPARED]
        return Decision(effects=[_markers_of(transaction) for transaction in prepared])

    # --- producer ids ---

    def producer_id_got(self, wanted: GetProducerId, producer_id: int, now_ms: int) -> Decision | None:
        """Do once more what needed it. If it needs no id any longer, the id is never used."""
        if wanted.token is None:
            return self._overdue(wanted.transactional_id, now_ms, producer_id)
        handler = self._handlers[type(wanted.request)]
        try:
            return handler(wanted.request, wanted.version, wanted.token, now_ms, producer_id)
        except KafkaError as error:
            return self.producer_id_refused(wanted, error.code)

    def producer_id_refused(self, wanted: GetProducerId, code: ErrorCode) -> Decision | None:
        if wanted.token is None:
            return None  # the timer comes again
        return Decision(responses=[(wanted.token, refuse(wanted.request, code))])

    # --- timeouts ---

    def _watch(self, transactional_id: str, transaction: Transaction | None) -> None:
        key = ("overdue", transactional_id)
        if transaction is None or transaction.state is not ONGOING:
            self.timers.cancel(key)
        else:
            due_ms = transaction.started_ms + transaction.timeout_ms
            self.timers.schedule(key, due_ms, lambda now_ms: self._overdue(transactional_id, now_ms))

    def _overdue(
        self, transactional_id: str, now_ms: int, new_producer_id: int = NO_PRODUCER_ID
    ) -> Decision | None:
        """The timer is set again, for the case that this cannot be written; what is written cancels it."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.state is not ONGOING:
            return None
        if now_ms < transaction.started_ms + transaction.timeout_ms:
            return None  # it is the next one, begun while a producer id was on its way
        again_ms = now_ms + self.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self.timers.schedule(
            ("overdue", transactional_id), again_ms, lambda now_ms: self._overdue(transactional_id, now_ms)
        )
        if self._fencing_needs_producer_id(transaction, new_producer_id):
            return Decision(effects=[GetProducerId(transactional_id)])
        decision = self._fence(transaction, now_ms, new_producer_id)
        limit = duration(transaction.timeout_ms / 1000)
        _note(decision, transactional_id, f"aborting its transaction: it was open for {limit}")
        return decision

    def _fencing_needs_producer_id(self, transaction: Transaction, new_producer_id: int) -> bool:
        return (
            self._version() >= EPOCH_FOR_EACH_TRANSACTION
            and transaction.is_epoch_exhausted
            and new_producer_id == NO_PRODUCER_ID
        )

    def _fence(self, transaction: Transaction, now_ms: int, new_producer_id: int) -> Decision:
        fenced = transaction.fenced(
            version=self._version(),
            next_producer_id=new_producer_id if transaction.is_epoch_exhausted else NO_PRODUCER_ID,
            now_ms=now_ms,
        )
        return self._prepared(fenced, now_ms)

    # --- expiry ---

    def _schedule_expiry(self, now_ms: int) -> None:
        interval_ms = self.settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self.timers.schedule("expiry", now_ms + interval_ms, self._expire)

    def _expire(self, now_ms: int) -> Decision:
        oldest_ms = now_ms - self.settings.transactional_id_expiration_ms
        expired = [
            transactional_id
            for transactional_id, transaction in self.transactions.items()
            if transaction.state in AT_REST and transaction.updated_ms <= oldest_ms
        ]
        self._schedule_expiry(now_ms)
        if len(expired) > EXPIRED_AT_ONCE:
            self.timers.schedule("expiry", now_ms, self._expire)
        tombstones: list[StateRecord] = [(each, None) for each in expired[:EXPIRED_AT_ONCE]]
        decision = Decision(tombstones, undo=lambda: self._schedule_expiry(now_ms))
        unused = duration(self.settings.transactional_id_expiration_ms / 1000)
        for transactional_id, _ in tombstones:
            _note(decision, transactional_id, f"forgotten: it was not used for {unused}")
        return decision

    # --- descriptions ---

    def _describe(
        self, request: DescribeTransactionsRequest, version: int, token: Token, now_ms: int
    ) -> Decision:
        states = [listing.described(self.transactions, each) for each in request.transactional_ids]
        return Decision(responses=[(token, DescribeTransactionsResponse(transaction_states=states))])

    def _list(self, request: ListTransactionsRequest, version: int, token: Token, now_ms: int) -> Decision:
        return Decision(responses=[(token, listing.listed(self.transactions.values(), request, now_ms))])

    def _known(self, transactional_id: str) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction


def _note(decision: Decision, transactional_id: str, text: str) -> None:
    decision.note(transactional_id, text, noun="transactional id")


def _record(transaction: Transaction) -> StateRecord:
    return transaction.transactional_id, transaction


def _ask_for_producer_id(request: Any, version: int, token: Token) -> Decision:
    return Decision(effects=[GetProducerId(request.transactional_id, request, version, token)])


def _ended(transaction: Transaction) -> EndTxnResponse:
    """The producer goes on with this id and epoch."""
    return EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)


def _markers_of(transaction: Transaction) -> WriteMarkers:
    return WriteMarkers(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.is_commit,
        transaction.client_version,
        tuple(sorted(transaction.partitions)),
    )
