"""The states of a transactional id, and the moves between them that are legal.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ──► Ongoing, Empty
                     └──► PrepareAbort  ──► CompleteAbort  ──► Ongoing, Empty

A prepared transaction is decided: whoever coordinates it can only complete it. Under transaction.version 2 a producer
may abort a transaction to which nothing was ever added, so PrepareAbort may also follow Empty and the Complete states.
"""

import enum


class TransactionState(enum.IntEnum):
    """The numbers are those of the records."""

    label: str  # as ListTransactions and DescribeTransactions spell it

    def __new__(cls, number: int, label: str) -> "TransactionState":
        state = int.__new__(cls, number)
        state._value_ = number
        state.label = label
        return state

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    # Kafka's names for moments that do not exist here: an id that expires is gone with its tombstone, and a producer is
    # fenced by the very record that aborts its transaction. ListTransactions knows them as filters.
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT

LEGAL_MOVES: dict[TransactionState, frozenset[TransactionState]] = {
    EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
    COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
}

PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
AT_REST = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})  # nothing is open; such an id may expire

BY_LABEL = {state.label: state for state in TransactionState}
BY_NUMBER = {state.value: state for state in TransactionState}
