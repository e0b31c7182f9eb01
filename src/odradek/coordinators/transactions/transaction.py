"""One transactional id: its producer, and the transaction that is open, or was last.

A `Transaction` never changes: each step makes the next one, which is written to the log, and replayed from there. The
steps know nothing of requests; who may take which step is decided in `initializing`, `adding` and `ending`.

The epoch says who may write. A producer that initializes gets the next one, which fences those before it. Under
transaction.version 2 every end of a transaction raises it too, and the markers carry the raised epoch: a late write
of transaction n has the epoch of n, and cannot join n+1. Epochs are 16 bits; at the last but one a producer gets a new
id, and the last is kept for the markers of that end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek.coordinators.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    LEGAL_MOVES,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from odradek.model import EPOCH_FOR_EACH_TRANSACTION, TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
MAX_EPOCH = (1 << 15) - 1
LAST_EPOCH_OF_A_PRODUCER = MAX_EPOCH - 1  # so that there is always one left to fence it with


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    # The producer's epoch before this one, if the same producer had it. Memory only: the log does not say.
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID  # before the last move; mostly the same
    next_producer_id: int = NO_PRODUCER_ID  # while prepared: the producer's id from the completion on
    timeout_ms: int = 0
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    client_version: int = 0  # the transaction.version by which the last step was taken

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH_OF_A_PRODUCER

    @property
    def is_commit(self) -> bool:
        return self.state in (PREPARE_COMMIT, COMPLETE_COMMIT)

    def _moved(self, state: TransactionState, now_ms: int, **changes: Any) -> Transaction:
        assert state in LEGAL_MOVES[self.state], f"{self.state.name} to {state.name}"
        return self._replace(state=state, updated_ms=now_ms, previous_producer_id=self.producer_id, **changes)

    # --- a producer initializes ---

    def initialized(self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        return self._moved(
            EMPTY,
            now_ms,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NO_TIME,
        )

    def with_new_producer(
        self, producer_id: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        return self.initialized(0, last_epoch, timeout_ms, now_ms)._replace(producer_id=producer_id)

    # --- a transaction goes on ---

    def with_partitions(
        self, partitions: frozenset[TopicPartition], now_ms: int, client_version: int
    ) -> Transaction:
        return self._moved(
            ONGOING,
            now_ms,
            partitions=self.partitions | partitions,
            started_ms=self.started_ms if self.state is ONGOING else now_ms,
            client_version=client_version,
        )

    # --- a transaction ends ---

    def prepared(
        self, *, commit: bool, client_version: int, next_producer_id: int, now_ms: int
    ) -> Transaction:
        """Returns the transaction with its end decided, as the producer asked for."""
        raised = {}
        if client_version >= EPOCH_FOR_EACH_TRANSACTION:
            raised = {
                "producer_epoch": min(self.producer_epoch + 1, MAX_EPOCH),
                "last_producer_epoch": self.producer_epoch,
            }
        return self._moved(
            PREPARE_COMMIT if commit else PREPARE_ABORT,
            now_ms,
            next_producer_id=next_producer_id,
            started_ms=self.started_ms if self.state is ONGOING else now_ms,
            client_version=client_version,
            **raised,
        )

    def fenced(self, *, version: int, next_producer_id: int, now_ms: int) -> Transaction:
        """Abort it, and shut its producer out: it was silent for too long, or another one takes its place."""
        if version >= EPOCH_FOR_EACH_TRANSACTION:
            return self.prepared(
                commit=False, client_version=version, next_producer_id=next_producer_id, now_ms=now_ms
            )
        return self._moved(
            PREPARE_ABORT,
            now_ms,
            producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH),
            last_producer_epoch=NO_EPOCH,
            client_version=0,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Every partition has its marker."""
        renewed = {}
        if self.client_version >= EPOCH_FOR_EACH_TRANSACTION and self.next_producer_id != NO_PRODUCER_ID:
            renewed = {"producer_id": self.next_producer_id, "producer_epoch": 0}
        return self._moved(
            COMPLETE_COMMIT if self.is_commit else COMPLETE_ABORT,
            now_ms,
            partitions=frozenset(),
            next_producer_id=NO_PRODUCER_ID,
            **renewed,
        )
