"""The transaction coordinator: transcripts of both protocols, of what fences, and of what must not be lost."""

import pytest

from odradek.coordinators.transactions.coordinator import (
    COMPLETE_RETRY_MS,
    EXPIRED_AT_ONCE,
    MOST_WAITING,
    PATIENCE_MS,
    TransactionSettings,
)
from odradek.coordinators.transactions.effects import GetProducerId
from odradek.coordinators.transactions.records import encode
from odradek.coordinators.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
)
from odradek.coordinators.transactions.transaction import Transaction
from odradek.errors import ErrorCode
from tests.coordinators.conversation import lines
from tests.coordinators.transaction_talk import ID, TransactionTalk

MAX = 32767


def put(talk: TransactionTalk, transaction: Transaction) -> None:
    """A state that another coordinator left behind."""
    key, value = encode(transaction.transactional_id, transaction, 2)
    talk.log.write(key, value)
    talk.restarts()
    talk.heard()


# --- the two protocols ---


def test_commit_and_abort_before_version_2() -> None:
    talk = TransactionTalk(version=1)
    talk.initialize()
    talk.add("t-0", "u-1")
    talk.add("t-0")
    talk.end(commit=True)
    talk.markers()
    talk.end(commit=True)
    talk.add("t-2")
    talk.end(commit=False)
    talk.markers()
    assert talk.heard() == lines("""
        initialize
            Empty 1000/0
            = 1000/0
        add t-0 u-1 as 1000/0
            Ongoing 1000/0: t-0 u-1
            = NONE NONE
        add t-0 as 1000/0
            = NONE
        commit as 1000/0
            PrepareCommit 1000/0: t-0 u-1
            = NONE
            > commit markers of 1000/0 (version 0) to t-0 u-1
        (the markers are written)
            CompleteCommit 1000/0
        commit as 1000/0
            = NONE
        add t-2 as 1000/0
            Ongoing 1000/0: t-2
            = NONE
        abort as 1000/0
            PrepareAbort 1000/0: t-2
            = NONE
            > abort markers of 1000/0 (version 0) to t-2
        (the markers are written)
            CompleteAbort 1000/0
    """)


def test_version_2_raises_the_epoch_at_every_end() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    talk.end(commit=True)
    talk.markers()
    talk.add("t-1")
    talk.end(commit=False)
    talk.markers()
    assert talk.heard() == lines("""
        initialize
            Empty 1000/0
            = 1000/0
        add t-0 as 1000/0
            Ongoing 1000/0: t-0
            = NONE
        commit as 1000/0
            PrepareCommit 1000/1: t-0
            = 1000/1
            > commit markers of 1000/1 (version 2) to t-0
        (the markers are written)
            CompleteCommit 1000/1
        add t-1 as 1000/1
            Ongoing 1000/1: t-1
            = NONE
        abort as 1000/1
            PrepareAbort 1000/2: t-1
            = 1000/2
            > abort markers of 1000/2 (version 2) to t-1
        (the markers are written)
            CompleteAbort 1000/2
    """)


def test_an_older_client_uses_its_own_protocol_on_a_cluster_of_version_2() -> None:
    talk = TransactionTalk()
    talk.initialize(version=4)
    talk.add("t-0", version=3)
    assert talk.transaction.client_version == 0
    assert talk.end(commit=True, version=4) is ErrorCode.NONE
    assert (talk.transaction.producer_epoch, talk.transaction.client_version) == (0, 0)


def test_a_newer_request_on_a_cluster_before_version_2_follows_the_older_protocol() -> None:
    talk = TransactionTalk(version=1)
    talk.initialize()
    talk.add("t-0")
    response = talk.end(commit=True, version=5)
    assert response is ErrorCode.NONE
    assert (talk.transaction.producer_epoch, talk.transaction.client_version) == (0, 0)


def test_version_2_aborts_what_was_never_begun_and_raises_the_epoch() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.end(commit=False)
    talk.end(commit=False)
    assert talk.heard() == lines("""
        initialize
            Empty 1000/0
            = 1000/0
        abort as 1000/0
            PrepareAbort 1000/1
            CompleteAbort 1000/1
            = 1000/1
        abort as 1000/1
            PrepareAbort 1000/2
            CompleteAbort 1000/2
            = 1000/2
    """)


@pytest.mark.parametrize("commit", [True, False])
def test_a_retried_end_gets_the_same_response(commit: bool) -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    talk.end(commit=commit)
    talk.producer = (1000, 0)
    assert talk.end(commit=commit) is ErrorCode.CONCURRENT_TRANSACTIONS
    talk.markers()
    assert talk.end(commit=commit) is ErrorCode.NONE
    assert talk.producer == (1000, 1)
    talk.producer = (1000, 0)
    assert talk.end(commit=not commit) is ErrorCode.INVALID_TXN_STATE


def test_a_late_end_does_not_end_the_next_transaction() -> None:
    talk = TransactionTalk()
    talk.writes_markers = True
    talk.initialize()
    talk.add("t-0")
    talk.end(commit=True)
    talk.host.run_for(0)
    talk.add("t-1")
    assert talk.transaction.state is ONGOING
    assert talk.end(commit=False, producer=(1000, 0)) is ErrorCode.PRODUCER_FENCED
    assert talk.transaction.state is ONGOING


@pytest.mark.parametrize("commit", [True, False])
def test_a_fenced_producer_does_not_take_the_end_of_an_older_one_for_its_own(commit: bool) -> None:
    """The older protocol keeps the epoch at the end, so the one before it belongs to somebody else."""
    talk = TransactionTalk()
    talk.initialize()
    fenced = talk.producer
    talk.initialize()
    talk.add("t-0", version=3)
    talk.end(commit=commit, version=4)
    talk.markers()
    assert talk.end(commit=commit, producer=fenced) is ErrorCode.PRODUCER_FENCED


# --- the next transaction begins early ---


@pytest.mark.parametrize("version", [1, 2])
def test_partitions_that_come_early_wait_for_the_completion(version: int) -> None:
    talk = TransactionTalk(version)
    talk.initialize()
    talk.add("t-0")
    talk.end(commit=True)
    talk.heard()
    assert talk.add("t-1") is None
    assert talk.add("t-2", "t-1") is None
    talk.markers()
    epoch = 1 if version == 2 else 0
    assert talk.heard() == lines(f"""
        add t-1 as 1000/{epoch}
        add t-2 t-1 as 1000/{epoch}
        (the markers are written)
            CompleteCommit 1000/{epoch}
            Ongoing 1000/{epoch}: t-1
            Ongoing 1000/{epoch}: t-1 t-2
            = NONE
            = NONE NONE
    """)
    assert talk.transaction.started_ms == talk.host.time_ms
    talk.passes(1_000)
    assert talk.heard() == "(1000 ms pass)"


def test_partitions_of_the_next_producer_id_wait_too() -> None:
    talk = TransactionTalk()
    put(talk, Transaction(ID, 5, MAX - 1, timeout_ms=1_000))
    talk.add("t-0", producer=(5, MAX - 1))
    talk.end(commit=True, producer=(5, MAX - 1))
    assert talk.add("t-1") is None
    assert talk.add("t-1", producer=(5, MAX - 1)) is ErrorCode.CONCURRENT_TRANSACTIONS
    talk.markers()
    assert talk.transaction.state is ONGOING


def test_the_wait_is_short() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    talk.end(commit=True)
    talk.add("t-1")
    talk.passes(PATIENCE_MS - 1)
    talk.add("t-2")
    talk.heard()
    talk.passes(1)
    talk.markers()
    assert talk.heard() == lines("""
        (1 ms pass)
            = CONCURRENT_TRANSACTIONS
            = CONCURRENT_TRANSACTIONS
        (the markers are written)
            CompleteCommit 1000/1
    """)


def test_only_so_many_wait() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    talk.end(commit=True)
    for _ in range(MOST_WAITING):
        assert talk.add("t-1") is None
    assert talk.add("t-1") is ErrorCode.CONCURRENT_TRANSACTIONS


def test_those_who_wait_are_refused_if_the_completion_cannot_be_written() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    talk.end(commit=True)
    talk.add("t-1")
    talk.heard()
    talk.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    talk.markers()
    assert talk.heard() == lines("""
        (the markers are written)
            = COORDINATOR_NOT_AVAILABLE
    """)
    talk.passes(1_000)
    assert talk.transaction.state is PREPARE_COMMIT


def test_those_who_wait_are_refused_when_the_coordinator_moves() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    talk.end(commit=True)
    talk.add("t-1")
    talk.heard()
    talk.restarts()
    assert talk.heard().splitlines()[:2] == ["(the coordinator moves)", "    = NOT_COORDINATOR"]


# --- verification ---


def test_verification_looks_and_changes_nothing() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0", version=3)
    talk.heard()
    talk.add("t-0", "t-1", verify=True)
    talk.add("t-0", verify=True, producer=(1000, 1))
    talk.add("t-0", verify=True, producer=(999, 0))
    talk.end(commit=True, version=4)
    talk.add("t-0", verify=True)
    talk.markers()
    talk.add("t-0", verify=True)
    assert talk.heard() == lines("""
        verify t-0 t-1 as 1000/0
            = NONE TRANSACTION_ABORTABLE
        verify t-0 as 1000/1
            = PRODUCER_FENCED
        verify t-0 as 999/0
            = INVALID_PRODUCER_ID_MAPPING
        commit as 1000/0
            PrepareCommit 1000/0: t-0
            = NONE
            > commit markers of 1000/0 (version 0) to t-0
        verify t-0 as 1000/0
            = CONCURRENT_TRANSACTIONS
        (the markers are written)
            CompleteCommit 1000/0
        verify t-0 as 1000/0
            = TRANSACTION_ABORTABLE
    """)


# --- InitProducerId ---


def test_a_new_producer_aborts_the_open_transaction_of_the_last_one() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    talk.heard()
    talk.initialize()
    talk.initialize()
    talk.end(commit=True, producer=(1000, 0))
    talk.markers()
    talk.end(commit=True, producer=(1000, 0))
    talk.initialize()
    talk.end(commit=True, producer=(1000, 0))
    assert talk.heard() == lines("""
        initialize
            PrepareAbort 1000/1: t-0
            = CONCURRENT_TRANSACTIONS
            > abort markers of 1000/1 (version 2) to t-0
        initialize
            = CONCURRENT_TRANSACTIONS
        commit as 1000/0
            = CONCURRENT_TRANSACTIONS
        (the markers are written)
            CompleteAbort 1000/1
        commit as 1000/0
            = INVALID_TXN_STATE
        initialize
            Empty 1000/2
            = 1000/2
        commit as 1000/0
            = PRODUCER_FENCED
    """)


def test_before_version_2_the_fenced_producer_is_told_so_at_once() -> None:
    talk = TransactionTalk(version=1)
    talk.initialize()
    talk.add("t-0")
    talk.heard()
    talk.initialize()
    talk.end(commit=True, producer=(1000, 0))
    talk.add("t-1", producer=(1000, 0))
    assert talk.heard() == lines("""
        initialize
            PrepareAbort 1000/1: t-0
            = CONCURRENT_TRANSACTIONS
            > abort markers of 1000/1 (version 0) to t-0
        commit as 1000/0
            = PRODUCER_FENCED
        add t-1 as 1000/0
            = CONCURRENT_TRANSACTIONS
    """)


def test_a_producer_that_knows_its_epoch_continues_and_may_ask_again() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.heard()
    talk.initialize((1000, 0))
    talk.initialize((1000, 0))
    talk.initialize((1000, 1))
    talk.initialize((1000, 0))
    talk.initialize((999, 2))
    assert talk.heard() == lines("""
        initialize as 1000/0
            Empty 1000/1
            = 1000/1
        initialize as 1000/0
            Empty 1000/1
            = 1000/1
        initialize as 1000/1
            Empty 1000/2
            = 1000/2
        initialize as 1000/0
            = PRODUCER_FENCED
        initialize as 999/2
            = PRODUCER_FENCED
    """)


def test_a_producer_that_was_replaced_cannot_continue() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.initialize()
    assert talk.initialize((1000, 0)).error_code == ErrorCode.PRODUCER_FENCED


def test_an_unknown_id_takes_whatever_the_producer_expects_as_a_beginning() -> None:
    talk = TransactionTalk()
    response = talk.initialize((77, 3))
    assert (response.producer_id, response.producer_epoch) == (1000, 0)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"expected": (5, -1)}, ErrorCode.INVALID_REQUEST),
        ({"expected": (-1, 5)}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"enable2_pc": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_initialization_refuses(fields: dict[str, object], code: ErrorCode) -> None:
    talk = TransactionTalk()
    response = talk.initialize(**fields)  # type: ignore[arg-type]
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)
    assert not talk.log.records()


def test_the_longest_timeout_is_allowed() -> None:
    assert TransactionTalk().initialize(timeout_ms=900_000).error_code == 0


# --- the end of the epochs ---


def test_the_last_epoch_of_a_producer_id_brings_another_id_at_initialization() -> None:
    talk = TransactionTalk()
    put(talk, Transaction(ID, 5, MAX - 1, timeout_ms=1_000))
    talk.initialize((5, MAX - 1))
    talk.initialize((5, MAX - 1))
    talk.initialize((1000, 0))
    talk.initialize((5, MAX - 1))
    assert talk.heard() == lines(f"""
        initialize as 5/{MAX - 1}
            Empty 1000/0
            = 1000/0
        initialize as 5/{MAX - 1}
            Empty 1000/0
            = 1000/0
        initialize as 1000/0
            Empty 1000/1
            = 1000/1
        initialize as 5/{MAX - 1}
            = PRODUCER_FENCED
    """)


def test_the_last_epoch_of_a_producer_id_brings_another_id_at_the_end_of_a_transaction() -> None:
    talk = TransactionTalk()
    put(talk, Transaction(ID, 5, MAX - 1, timeout_ms=1_000))
    talk.producer = (5, MAX - 1)
    talk.add("t-0")
    talk.end(commit=True)
    talk.end(commit=True, producer=(5, MAX - 1))
    talk.markers()
    talk.end(commit=True, producer=(5, MAX - 1))
    talk.end(commit=False, producer=(5, MAX - 1))
    talk.add("t-1")
    talk.end(commit=True, producer=(5, MAX - 1))
    assert talk.heard() == lines(f"""
        add t-0 as 5/{MAX - 1}
            Ongoing 5/{MAX - 1}: t-0
            = NONE
        commit as 5/{MAX - 1}
            PrepareCommit 5/{MAX}, then 1000: t-0
            = 1000/0
            > commit markers of 5/{MAX} (version 2) to t-0
        commit as 5/{MAX - 1}
            = CONCURRENT_TRANSACTIONS
        (the markers are written)
            CompleteCommit 1000/0
        commit as 5/{MAX - 1}
            = 1000/0
        abort as 5/{MAX - 1}
            = INVALID_TXN_STATE
        add t-1 as 1000/0
            Ongoing 1000/0: t-1
            = NONE
        commit as 5/{MAX - 1}
            = INVALID_PRODUCER_ID_MAPPING
    """)


@pytest.mark.parametrize("by_timeout", [True, False])
def test_fencing_at_the_last_epoch_brings_another_id(by_timeout: bool) -> None:
    talk = TransactionTalk()
    put(talk, Transaction(ID, 5, MAX - 1, timeout_ms=1_000))
    talk.add("t-0", producer=(5, MAX - 1))
    if by_timeout:
        talk.passes(1_000)
    else:
        talk.initialize()
    talk.markers()
    assert (talk.transaction.producer_id, talk.transaction.producer_epoch) == (1000, 0)
    assert talk.transaction.state is COMPLETE_ABORT


def test_before_version_2_fencing_at_the_last_epoch_keeps_the_id_and_initialization_changes_it() -> None:
    talk = TransactionTalk(version=1)
    put(talk, Transaction(ID, 5, MAX - 1, timeout_ms=1_000))
    talk.add("t-0", producer=(5, MAX - 1))
    talk.initialize()
    talk.markers()
    assert (talk.transaction.producer_id, talk.transaction.producer_epoch) == (5, MAX)
    response = talk.initialize()
    assert (response.producer_id, response.producer_epoch) == (1000, 0)


def test_without_producer_ids_an_overdue_transaction_is_tried_again() -> None:
    talk = TransactionTalk()
    put(talk, Transaction(ID, 5, MAX - 1, timeout_ms=1_000))
    talk.add("t-0", producer=(5, MAX - 1))
    talk.has_producer_ids = False
    talk.passes(5_000)
    assert talk.transaction.state is ONGOING
    talk.has_producer_ids = True
    talk.passes(10_000)
    talk.markers()
    assert talk.transaction.state is COMPLETE_ABORT


def test_a_producer_id_that_comes_after_an_overdue_transaction_has_ended_is_not_used() -> None:
    talk = TransactionTalk()
    put(talk, Transaction(ID, 5, MAX - 2, timeout_ms=1_000))
    talk.producer = (5, MAX - 2)
    talk.add("t-0", version=3)
    talk.end(commit=True, version=4)
    talk.markers()
    talk.add("t-0")
    talk.heard()
    late = GetProducerId(ID)
    talk.runner.tell(lambda coordinator, now_ms: coordinator.producer_id_got(late, 7, now_ms))
    assert talk.heard() == "" and talk.transaction.state is ONGOING, "it is the next one, and has time"


def test_a_request_that_waits_for_a_producer_id_is_refused_when_the_coordinator_moves() -> None:
    talk = TransactionTalk()
    talk.has_producer_ids = False
    assert talk.initialize() is None
    talk.restarts()
    assert talk.heard() == lines("""
        initialize
        (the coordinator moves)
            = NOT_COORDINATOR
    """)
    talk.passes(60_000)
    assert talk.heard() == "(60000 ms pass)"


def test_a_request_for_which_there_is_no_producer_id_is_refused() -> None:
    talk = TransactionTalk()
    talk.refuses_producer_ids = True
    assert talk.initialize().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    talk.refuses_producer_ids = False
    assert talk.initialize().producer_id == 1000


def test_a_request_may_be_refused_though_its_producer_id_has_come() -> None:
    """Two producers initialize the same new id; the second one says who it is, and is not."""
    talk = TransactionTalk()
    talk.has_producer_ids = False
    talk.initialize((7, 3))
    (waiting,) = talk.asked_for
    talk.has_producer_ids = True
    talk.initialize()
    talk.heard()
    talk.runner.tell(lambda coordinator, now_ms: coordinator.producer_id_got(waiting, 2000, now_ms))
    assert talk.heard() == "    = PRODUCER_FENCED"


# --- timeouts and expiry ---


def test_a_transaction_that_is_open_for_too_long_is_aborted() -> None:
    talk = TransactionTalk()
    talk.initialize(timeout_ms=10_000)
    talk.add("t-0")
    talk.passes(6_000)
    talk.add("t-1")
    talk.heard()
    talk.passes(3_999)
    talk.passes(1)
    talk.markers()
    assert talk.heard() == lines("""
        (3999 ms pass)
        (1 ms pass)
            PrepareAbort 1000/1: t-0 t-1
            > abort markers of 1000/1 (version 2) to t-0 t-1
        (the markers are written)
            CompleteAbort 1000/1
    """)


def test_a_timeout_leaves_a_prepared_transaction_alone() -> None:
    talk = TransactionTalk()
    talk.initialize(timeout_ms=10_000)
    talk.add("t-0")
    talk.end(commit=True)
    talk.heard()
    talk.passes(60_000)
    assert talk.heard() == "(60000 ms pass)"


def test_each_transaction_has_its_own_time() -> None:
    talk = TransactionTalk()
    talk.writes_markers = True
    talk.initialize(timeout_ms=10_000)
    for _ in range(5):
        talk.add("t-0")
        talk.passes(7_000)
        assert talk.end(commit=True) is ErrorCode.NONE
        talk.passes(0)


def test_a_timeout_goes_on_after_the_coordinator_has_moved() -> None:
    talk = TransactionTalk()
    talk.initialize(timeout_ms=10_000)
    talk.add("t-0")
    talk.passes(8_000)
    talk.restarts()
    talk.heard()
    talk.passes(2_000)
    assert talk.heard() == lines("""
        (2000 ms pass)
            PrepareAbort 1000/1: t-0
            > abort markers of 1000/1 (version 2) to t-0
    """)


def test_an_abort_that_cannot_be_written_is_tried_again() -> None:
    talk = TransactionTalk()
    talk.initialize(timeout_ms=10_000)
    talk.add("t-0")
    talk.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    talk.passes(15_000)
    assert talk.transaction.state is ONGOING
    assert not talk.wanted
    talk.append_error = None
    talk.passes(10_000)
    assert talk.wanted


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    talk = TransactionTalk(settings=TransactionSettings(transactional_id_expiration_ms=5_000_000))
    talk.initialize(timeout_ms=900_000)
    talk.initialize(timeout_ms=900_000, transactional_id="open")
    talk.add("t-0", transactional_id="open")
    talk.heard()
    talk.writes_markers = False
    talk.passes(4_000_000)
    assert ID in talk.coordinator.transactions
    talk.passes(4_000_000)
    assert list(talk.coordinator.transactions) == ["open"]  # its markers are not written yet
    talk.restarts()
    assert ID not in talk.coordinator.transactions
    assert talk.end(commit=False) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_many_ids_expire_in_several_batches() -> None:
    talk = TransactionTalk()
    for number in range(EXPIRED_AT_ONCE + 1):
        key, value = encode(f"id-{number}", Transaction(f"id-{number}", number, 0, updated_ms=0), 2)
        talk.log.write(key, value)
    talk.restarts()
    batches = len(talk.log.batches)
    talk.passes(604_800_000)
    assert not talk.coordinator.transactions
    assert len(talk.log.batches) == batches + 2


def test_an_expiry_that_cannot_be_written_waits_for_the_next_look() -> None:
    talk = TransactionTalk(settings=TransactionSettings(transactional_id_expiration_ms=1_000))
    for number in range(EXPIRED_AT_ONCE + 1):
        key, value = encode(f"id-{number}", Transaction(f"id-{number}", number, 0, updated_ms=0), 2)
        talk.log.write(key, value)
    talk.restarts()
    talk.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    talk.passes(3_600_000)
    assert talk.coordinator.transactions
    talk.append_error = None
    talk.passes(3_600_000)
    assert not talk.coordinator.transactions


# --- commits, failures, moves ---


def test_markers_leave_only_once_the_decision_is_committed() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    talk.commits = False
    assert talk.end(commit=True) is None
    assert not talk.wanted
    talk.commit()
    assert [each.producer_epoch for each in talk.wanted] == [1]


def test_markers_of_a_loaded_decision_leave_only_once_it_is_committed() -> None:
    """The new leader has the record, but nobody else may have it yet: another leader might decide otherwise."""
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    talk.end(commit=True)
    talk.commits = False
    talk.log_is_ahead = True
    talk.restarts()
    assert not talk.wanted
    talk.commit()
    assert talk.wanted


def test_responses_on_a_loaded_state_wait_for_its_commit() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    talk.log_is_ahead = True
    talk.restarts()
    assert talk.add("t-0") is None
    talk.commit()
    assert talk.heard().splitlines()[-1] == "    = NONE"


def test_an_end_that_cannot_be_written_changes_nothing() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    talk.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert talk.end(commit=True) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not talk.wanted
    talk.append_error = None
    assert talk.end(commit=False) is ErrorCode.NONE
    assert [each.is_commit for each in talk.wanted] == [False]


def test_a_takeover_that_cannot_be_written_does_not_cost_an_epoch() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    talk.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert talk.initialize().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.initialize().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.append_error = None
    talk.initialize()
    assert talk.transaction.producer_epoch == 1


def test_a_completion_that_cannot_be_written_is_tried_again() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    talk.end(commit=True)
    talk.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    talk.markers()
    talk.passes(5 * COMPLETE_RETRY_MS)
    assert talk.transaction.state is PREPARE_COMMIT
    talk.append_error = None
    talk.passes(COMPLETE_RETRY_MS)
    assert talk.transaction.state is COMPLETE_COMMIT
    talk.heard()
    talk.passes(10 * COMPLETE_RETRY_MS)
    assert talk.heard() == f"({10 * COMPLETE_RETRY_MS} ms pass)"


def test_completions_that_come_late_or_twice_change_nothing() -> None:
    talk = TransactionTalk()
    talk.initialize()
    talk.add("t-0")
    talk.end(commit=True)
    wanted = list(talk.wanted)
    talk.markers()
    talk.add("t-1")
    talk.end(commit=False)
    talk.heard()
    talk.wanted = wanted
    talk.markers()
    assert talk.heard() == "(the markers are written)"


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_coordinator_that_moves_ends_a_prepared_transaction_the_same_way(
    version: int, commit: bool
) -> None:
    talk = TransactionTalk(version)
    talk.initialize()
    talk.add("t-0")
    talk.end(commit=commit)
    wanted = list(talk.wanted)
    if version == 0:  # its records do not say by which version the transaction ended
        assert wanted[0].transaction_version == 0
    talk.restarts()
    assert talk.wanted == wanted
    talk.markers()
    talk.restarts()
    assert not talk.wanted
    assert talk.transaction.is_commit is commit


def test_a_coordinator_that_moves_knows_the_next_producer_id() -> None:
    talk = TransactionTalk()
    put(talk, Transaction(ID, 5, MAX - 1, timeout_ms=1_000))
    talk.add("t-0", producer=(5, MAX - 1))
    talk.end(commit=True, producer=(5, MAX - 1))
    talk.restarts()
    talk.markers()
    talk.restarts()
    assert talk.end(commit=True, producer=(5, MAX - 1)) is ErrorCode.NONE
    assert talk.producer == (1000, 0)
    assert talk.transaction.state is not EMPTY


def test_the_level_may_rise_under_way() -> None:
    talk = TransactionTalk(version=0)
    talk.initialize()
    talk.add("t-0")
    talk.version = 2
    talk.restarts()
    assert talk.end(commit=True, version=4) is ErrorCode.NONE
    talk.markers()
    talk.add("t-0")
    assert talk.end(commit=True) is ErrorCode.NONE
    assert talk.producer == (1000, 1)
