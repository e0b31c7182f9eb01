"""Every state by every request: what each of them gets, by both protocols. The codes are Apache Kafka's.

The transactional id has producer 5 in epoch 3, which was 2 before; t-0 is in its transaction if that is not over.
"""

import pytest

from odradek.coordinators.transactions.coordinator import PATIENCE_MS
from odradek.coordinators.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from odradek.coordinators.transactions.transaction import Transaction
from odradek.model import TopicPartition
from tests.coordinators.transaction_talk import ID, TransactionTalk

STATES = [None, EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]
SHORT = {
    "BUSY": "CONCURRENT_TRANSACTIONS",
    "FENCED": "PRODUCER_FENCED",
    "MAPPING": "INVALID_PRODUCER_ID_MAPPING",
    "STATE": "INVALID_TXN_STATE",
    "ABORTABLE": "TRANSACTION_ABORTABLE",
}

# Columns: the states above. A producer is what the response names; a star says that something is written.
BOTH = """
                    unknown  Empty      Ongoing  P.Commit P.Abort  C.Commit   C.Abort
    initialize      1000/0*  5/4*       BUSY*    BUSY     BUSY     5/4*       5/4*
    initialize 5/3  1000/0*  5/4*       BUSY*    BUSY     BUSY     5/4*       5/4*
    initialize 5/2  1000/0*  5/3*       BUSY*    BUSY     BUSY     5/3*       5/3*
    initialize 5/1  1000/0*  FENCED     BUSY*    BUSY     BUSY     FENCED     FENCED
    initialize 9/3  1000/0*  FENCED     FENCED   BUSY     BUSY     FENCED     FENCED
    add 5/3         MAPPING  NONE*      NONE     BUSY     BUSY     NONE*      NONE*
    add 5/2         MAPPING  FENCED     FENCED   BUSY     BUSY     FENCED     FENCED
    add 5/4         MAPPING  FENCED     FENCED   BUSY     BUSY     FENCED     FENCED
    add 9/3         MAPPING  MAPPING    MAPPING  BUSY     BUSY     MAPPING    MAPPING
    verify 5/3      MAPPING  ABORTABLE  NONE     BUSY     BUSY     ABORTABLE  ABORTABLE
    verify 5/2      MAPPING  FENCED     FENCED   FENCED   FENCED   FENCED     FENCED
    verify 9/3      MAPPING  MAPPING    MAPPING  MAPPING  MAPPING  MAPPING    MAPPING
"""
BEFORE_2 = """
                    unknown  Empty      Ongoing  P.Commit P.Abort  C.Commit   C.Abort
    commit 5/3      MAPPING  STATE      NONE*    BUSY     BUSY     NONE       STATE
    abort 5/3       MAPPING  STATE      NONE*    BUSY     BUSY     STATE      NONE
    commit 5/2      MAPPING  FENCED     FENCED   FENCED   FENCED   FENCED     FENCED
    abort 5/2       MAPPING  FENCED     FENCED   FENCED   FENCED   FENCED     FENCED
    commit 5/4      MAPPING  FENCED     FENCED   FENCED   FENCED   FENCED     FENCED
    commit 9/3      MAPPING  MAPPING    MAPPING  MAPPING  MAPPING  MAPPING    MAPPING
"""
SINCE_2 = """
                    unknown  Empty      Ongoing  P.Commit P.Abort  C.Commit   C.Abort
    commit 5/3      MAPPING  STATE      5/4*     BUSY     BUSY     STATE      STATE
    abort 5/3       MAPPING  5/4*       5/4*     BUSY     BUSY     5/4*       5/4*
    commit 5/2      MAPPING  FENCED     FENCED   BUSY     BUSY     5/3        STATE
    abort 5/2       MAPPING  FENCED     FENCED   BUSY     BUSY     STATE      5/3
    commit 5/1      MAPPING  FENCED     FENCED   BUSY     BUSY     FENCED     FENCED
    abort 5/4       MAPPING  FENCED     FENCED   BUSY     BUSY     FENCED     FENCED
    commit 9/3      MAPPING  MAPPING    MAPPING  BUSY     BUSY     MAPPING    MAPPING
"""

Case = tuple[int, str, TransactionState | None, str]


def cases(level: int, table: str) -> list[Case]:
    rows = [line.split("  ") for line in table.strip("\n").splitlines()[1:]]
    found: list[Case] = []
    for row in rows:
        name, *expected = [cell.strip() for cell in row if cell.strip()]
        expected = " ".join(expected).split()
        assert len(expected) == len(STATES), row
        found += [(level, name, state, what) for state, what in zip(STATES, expected, strict=True)]
    return found


CASES = [
    *cases(0, BOTH),
    *cases(1, BOTH),
    *cases(2, BOTH),
    *cases(0, BEFORE_2),
    *cases(1, BEFORE_2),
    *cases(2, SINCE_2),
]


def name_of(case: object) -> str | None:
    return getattr(case, "name", None)


@pytest.mark.parametrize(("level", "request_name", "state", "expected"), CASES, ids=name_of)
def test_every_state_by_every_request(
    level: int, request_name: str, state: TransactionState | None, expected: str
) -> None:
    talk = TransactionTalk(level)
    if state is not None:
        is_over = state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
        talk.coordinator.transactions[ID] = Transaction(
            ID,
            5,
            3,
            last_producer_epoch=2,
            previous_producer_id=5,
            timeout_ms=60_000,
            state=state,
            partitions=frozenset() if is_over else frozenset({TopicPartition("t", 0)}),
            started_ms=talk.host.time_ms,
            updated_ms=talk.host.time_ms,
            client_version=2 if level == 2 else 0,
        )
    ask(talk, request_name)
    talk.passes(PATIENCE_MS)
    responses = [line.split("= ")[1] for line in talk.heard().splitlines() if "    = " in line]
    is_written = bool(talk.log.batches)
    result = SHORT.get(expected.rstrip("*"), expected.rstrip("*"))
    assert (responses, is_written) == ([result], expected.endswith("*"))


def ask(talk: TransactionTalk, request_name: str) -> None:
    verb, _, who = request_name.partition(" ")
    producer = (int(who[0]), int(who[2:])) if who else (-1, -1)
    if verb == "initialize":
        talk.initialize(producer)
    elif verb in ("add", "verify"):
        talk.add("t-0", producer=producer, verify=verb == "verify")
    else:
        talk.end(commit=verb == "commit", producer=producer)
