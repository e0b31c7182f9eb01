"""Every crash, lost response and move at every request of a batch's life: each row is there once."""

import random

import pytest

from odradek.client.settings import ProduceSettings
from odradek.errors import ErrorCode, KafkaError
from odradek.ledger.protocol import AnotherProcess, LedgerLost, OlderCheckpoint, TooSlow, TransactionLost
from odradek.ledger.record import Entry
from odradek.ledger.topic import NAME, Ledger
from odradek.ledger.writer import RowsChanged, Writer
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import ProduceRequest
from tests.ledger.program import (
    TOPIC,
    Checkpoint,
    Program,
    SomeRows,
    check_exactly_once,
    ledger_of,
    lives,
    new_cluster,
)
from tests.ledger.simulated_cluster import LAST_EPOCH, Crashed, SimulatedClient

FAULTS = ["crash before", "crash after", "lost before", "lost after", "coordinator moves", "leader moves"]


def requests_of_two_batches() -> int:
    """Return how many requests a life without faults takes."""
    program = Program(new_cluster(), Checkpoint())
    program.run(2)
    return len(program.client.requests)


REQUESTS = requests_of_two_batches()


def test_a_life_without_faults_initializes_once_and_reads_the_ledger_once():
    program = Program(new_cluster(), Checkpoint())
    program.run(3)
    kinds = [type(one) for one in program.client.requests]
    assert kinds.count(InitProducerIdRequest) == 1
    assert kinds.count(FetchRequest) == 1  # the ledger was empty, but may it be read?
    assert kinds.count(EndTxnRequest) == 3
    assert kinds.count(AddPartitionsToTxnRequest) == 3  # the rows' partitions and the ledger's


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_at_any_request(fault):
    for number in range(REQUESTS):
        simulated = new_cluster()
        lives(simulated, [{number: fault}])
        check_exactly_once(simulated, 2)


@pytest.mark.parametrize("slow_commits", [1, 3])
@pytest.mark.parametrize("fault", FAULTS[:4])
def test_one_fault_while_markers_are_written_after_the_response(fault, slow_commits):
    for number in range(REQUESTS):
        simulated = new_cluster()
        simulated.slow_commits = slow_commits
        lives(simulated, [{number: fault}])
        check_exactly_once(simulated, 2)


@pytest.mark.parametrize("late_by", range(1, 9))
def test_a_request_that_was_repeated_arrives_late(late_by):
    """A late EndTxn must not commit the next transaction, which has the same epoch. A late InitProducerId fences us."""
    for number in range(REQUESTS):
        simulated, checkpoint = new_cluster(), Checkpoint()
        program = Program(simulated, checkpoint, {number: "late"})
        program.client.late_by = late_by
        try:
            program.run(4)
        except AnotherProcess:
            Program(simulated, checkpoint).run(4)
        check_exactly_once(simulated, 4)


def test_two_crashes_at_any_two_requests():
    for first in range(REQUESTS):
        for second in range(0, REQUESTS, 2):
            simulated = new_cluster()
            lives(simulated, [{first: "crash after"}, {second: "crash after"}])
            check_exactly_once(simulated, 2)


def test_a_driver_that_is_stopped_beyond_the_timeout_at_any_request():
    for number in range(REQUESTS):
        simulated = new_cluster()
        checkpoint = Checkpoint()
        Program(simulated, checkpoint, {number: "stopped"}).run(2)
        check_exactly_once(simulated, 2)


@pytest.mark.parametrize("seed", range(150))
def test_many_faults_of_all_kinds(seed):
    rng = random.Random(seed)
    simulated = new_cluster()
    simulated.slow_commits = rng.choice([0, 0, 2])
    scripts = [
        {rng.randrange(REQUESTS): rng.choice(FAULTS) for _ in range(rng.randrange(1, 6))}
        for _ in range(rng.randrange(1, 6))
    ]
    lives(simulated, scripts, batches=4)
    check_exactly_once(simulated, 4)


# Another process


def test_two_processes_on_copies_of_one_checkpoint_do_not_fence_each_other_for_ever():
    for number in range(REQUESTS):
        simulated = new_cluster()
        checkpoint = Checkpoint()
        copies: list[Checkpoint] = []

        def other_runs(simulated=simulated, checkpoint=checkpoint, copies=copies):
            copies.append(checkpoint.copy())
            Program(simulated, copies[0]).run(3)

        program = Program(simulated, checkpoint, {number: "other runs"}, **{"other runs": other_runs})
        try:
            program.run(3)
        except AnotherProcess:
            pass  # the usual end of the first
        except OlderCheckpoint:
            pass  # it initialized after the other, and found its work
        assert len(copies) == 1
        check_exactly_once(simulated, 3)


def test_a_writer_that_is_used_again_after_another_process_went_on():
    """A query that is stopped, runs elsewhere, and is started again by the program that had started it first."""
    simulated, checkpoint = new_cluster(), Checkpoint()
    first = Program(simulated, checkpoint)
    first.run(1)
    Program(simulated, checkpoint).run(3)
    first.run(4)
    check_exactly_once(simulated, 4)


def test_a_batch_that_an_operator_has_taken_back_is_written_again_by_the_same_process():
    simulated, checkpoint = new_cluster(), Checkpoint()
    program = Program(simulated, checkpoint)
    program.run(2)
    Ledger(SimulatedClient(simulated)).reset("sink", 0)
    checkpoint.finished = 0  # its end was not noted
    program.run(2)
    assert program.skipped == []


def test_a_process_that_is_fenced_while_it_initializes_stops():
    """And one whose transaction is in an odd state then tries again, a few times."""

    class Refusing(SimulatedClient):
        def arrive(self, node, request):
            if isinstance(request, InitProducerIdRequest):
                return InitProducerIdResponse(error_code=self.code)
            return super().arrive(node, request)

    for code, expected in (
        (ErrorCode.PRODUCER_FENCED, AnotherProcess),
        (ErrorCode.INVALID_TXN_STATE, TransactionLost),
    ):
        client = Refusing(new_cluster())
        client.code = code
        with pytest.raises(expected):
            Writer(client, "sink", ProduceSettings()).write(order_of(0), SomeRows(0), lambda _: None)


def test_a_process_that_wakes_up_after_its_timeout_leaves_its_successor_alone():
    simulated, checkpoint = new_cluster(), Checkpoint()
    successor: list[Program] = []

    def other_takes_over():
        simulated.pass_time(700)
        successor.append(Program(simulated, checkpoint.copy()))
        successor[0].run(2)

    at = first_request(ProduceRequest)
    stopped = Program(simulated, checkpoint, {at: "taken over"}, **{"taken over": other_takes_over})
    with pytest.raises(AnotherProcess, match="another process has begun to write for sink"):
        stopped.run(2)
    successor[0].run(3)  # it has not been fenced
    check_exactly_once(simulated, 3)


def first_request(kind: type) -> int:
    program = Program(new_cluster(), Checkpoint())
    program.run(1)
    return [type(one) for one in program.client.requests].index(kind)


def test_a_batch_that_is_too_slow_twice_says_so():
    simulated = new_cluster()
    script = dict.fromkeys(range(first_request(ProduceRequest), 200), "stopped")
    with pytest.raises(TooSlow, match=r"within 120 s.*raise kafka.transaction.timeout.ms"):
        Program(simulated, Checkpoint(), script).run(1)
    assert simulated.visible(TOPIC) == []


# Checkpoints and ledgers that do not fit


def test_an_older_checkpoint_is_refused():
    simulated, checkpoint = new_cluster(), Checkpoint()
    Program(simulated, checkpoint).run(2)
    older = checkpoint.copy()
    Program(simulated, checkpoint).run(4)
    with pytest.raises(OlderCheckpoint, match="at batch 2, but batch 3 was written"):
        Program(simulated, older).run(5)
    check_exactly_once(simulated, 4)


def test_an_older_checkpoint_that_plans_the_last_batch_anew_is_refused():
    simulated, checkpoint = new_cluster(), Checkpoint()
    Program(simulated, checkpoint).run(2)
    older = checkpoint.copy()
    Program(simulated, checkpoint).run(3)
    with pytest.raises(OlderCheckpoint, match="read other records"):
        Program(simulated, older, plan="other offsets").run(3)
    check_exactly_once(simulated, 3)


def test_a_ledger_that_was_deleted_is_noticed():
    for finished in (1, 2):
        simulated, checkpoint = new_cluster(), Checkpoint()
        Program(simulated, checkpoint).run(finished)
        del simulated.topics[NAME]
        with pytest.raises(LedgerLost, match="odradek ledger reset sink --to"):
            Program(simulated, checkpoint).run(3)


def test_a_ledger_that_was_deleted_with_the_first_batch_in_flight_is_noticed():
    simulated, checkpoint = new_cluster(), Checkpoint()
    Program(simulated, checkpoint).run(1)
    checkpoint.finished = -1  # killed before Spark noted the end
    del simulated.topics[NAME]
    with pytest.raises(LedgerLost):
        Program(simulated, checkpoint).run(1)


def test_a_lost_record_of_the_ledger_is_noticed():
    simulated, checkpoint = new_cluster(), Checkpoint()
    Program(simulated, checkpoint).run(2)
    Ledger(SimulatedClient(simulated)).reset("sink", None)
    with pytest.raises(LedgerLost, match="has no record of sink, which has written since batch 0"):
        Program(simulated, checkpoint).run(3)


@pytest.mark.parametrize(("to", "rows_of_batch_2"), [(1, 4), (2, 0)])
def test_an_operator_says_whether_a_batch_was_written(to, rows_of_batch_2):
    simulated, checkpoint = new_cluster(), Checkpoint()
    Program(simulated, checkpoint).run(2)
    del simulated.topics[NAME]
    Ledger(SimulatedClient(simulated)).reset("sink", to)
    Program(simulated, checkpoint).run(4)
    Program(simulated, checkpoint).run(5)  # it has adopted the new ledger
    values = [one.value.decode().split("/")[0] for one in simulated.visible(TOPIC)]
    assert [values.count(str(batch)) for batch in range(5)] == [4, 4, rows_of_batch_2, 4, 4]
    assert ledger_of(simulated) is not None


def test_an_existing_checkpoint_is_adopted():
    simulated = new_cluster()
    checkpoint = Checkpoint(offsets=[f"old {batch}" for batch in range(8)], finished=6)
    Program(simulated, checkpoint).run(9)
    assert checkpoint.adoption is not None and checkpoint.adoption.first == 7
    assert ledger_of(simulated).batch == 8


def test_a_topic_that_is_created_again_while_rows_are_sent_gets_all_rows():
    produces = [
        number
        for number, one in enumerate(requests_with(Program(new_cluster(), Checkpoint())))
        if isinstance(one, ProduceRequest | EndTxnRequest)
    ]
    for number in produces[:3]:
        simulated = new_cluster()

        def create_again(simulated=simulated):
            simulated.create(TOPIC, 2)

        lives(simulated, [{number: "created again"}], batches=1, **{"created again": create_again})
        check_exactly_once(simulated, 1)


def requests_with(program: Program) -> list[object]:
    program.run(1)
    return program.client.requests


# Producers


def test_epochs_that_are_used_up_bring_another_producer_id():
    simulated, checkpoint = new_cluster(), Checkpoint()
    Program(simulated, checkpoint).run(1)
    simulated.transactions["odradek-once-sink"].epoch = LAST_EPOCH
    before = simulated.transactions["odradek-once-sink"].producer
    with pytest.raises(Crashed):
        Program(simulated, checkpoint, {first_request(EndTxnRequest) + 1: "crash before"}).run(3)
    Program(simulated, checkpoint).run(3)
    assert simulated.transactions["odradek-once-sink"].producer != before
    check_exactly_once(simulated, 3)


def test_an_id_that_the_coordinator_has_forgotten_is_initialized_again():
    simulated, checkpoint = new_cluster(), Checkpoint()
    program = Program(simulated, checkpoint)
    program.run(1)
    del simulated.transactions["odradek-once-sink"]  # transactional.id.expiration.ms
    program.run(2)
    check_exactly_once(simulated, 2)


def test_a_timeout_that_the_broker_does_not_allow_is_halved():
    simulated = new_cluster(max_timeout_ms=40_000)
    Program(simulated, Checkpoint()).run(1)
    assert simulated.transactions["odradek-once-sink"].timeout_s == 30
    check_exactly_once(simulated, 1)


def test_another_sinks_open_transaction_does_not_hide_our_record():
    """It shares our ledger partition, began before our commit, and ends only by its timeout."""
    simulated, checkpoint = new_cluster(), Checkpoint()
    partition = Ledger(SimulatedClient(simulated)).partition_of("sink").partition
    other = next(
        name
        for name in (f"other-{number}" for number in range(100))
        if Ledger(SimulatedClient(simulated)).partition_of(name).partition == partition
    )
    Program(simulated, checkpoint).run(1)
    at = first_request(EndTxnRequest)
    with pytest.raises(Crashed):
        Program(simulated, Checkpoint(), {at: "crash before"}, sink=other).run(1)
    with pytest.raises(Crashed):  # our second batch is committed, and nobody noted it
        Program(simulated, checkpoint, {requests_until_commit(checkpoint, simulated): "crash after"}).run(2)
    restarted = Program(simulated, checkpoint)
    restarted.run(3)
    assert restarted.skipped == [1]
    rows = [one.value.decode().split("/")[0] for one in simulated.visible(TOPIC)]
    assert [rows.count(str(batch)) for batch in range(3)] == [4, 4, 4]


def requests_until_commit(checkpoint: Checkpoint, simulated) -> int:
    """The number of requests of a life that begins at `checkpoint`, on a copy that does not disturb it."""
    import copy

    program = Program(copy.deepcopy(simulated), checkpoint.copy())
    program.run(checkpoint.finished + 2)
    return [type(one) for one in program.client.requests].index(EndTxnRequest)


# Rows


class BrokenRows(SomeRows):
    def __init__(self, batch: int, error: Exception, failures: int) -> None:
        super().__init__(batch)
        self.error, self.failures = error, failures

    def rounds(self):
        found = super().rounds()
        yield next(found)
        if self.failures:
            self.failures -= 1
            raise self.error
        yield from found


def order_of(batch: int):
    from odradek.ledger.protocol import Order

    return Order("sink", batch, "f")


def writer_on(simulated):
    return Writer(SimulatedClient(simulated), "sink", ProduceSettings(), clock=lambda: simulated.now_s)


def test_rows_that_changed_while_they_were_sent_are_sent_again_as_a_whole():
    simulated = new_cluster()
    rows = BrokenRows(0, RowsChanged("a block was lost"), 1)
    assert writer_on(simulated).write(order_of(0), rows, lambda _: None).is_new
    check_exactly_once(simulated, 1)


class SlowRows(BrokenRows):
    """Computing them, also a second time, takes longer than a transaction may."""

    def __init__(self, simulated, *rest) -> None:
        super().__init__(*rest)
        self.simulated, self.looks = simulated, 0

    def ready(self) -> None:
        self.looks += 1
        assert all(log.open == {} for _, logs in self.simulated.topics.values() for log in logs)
        self.simulated.pass_time(1000)


def test_readers_wait_only_while_rows_are_sent_not_while_they_are_computed():
    simulated = new_cluster()
    rows = SlowRows(simulated, 0, RowsChanged("a block was lost"), 1)
    assert writer_on(simulated).write(order_of(0), rows, lambda _: None).is_new
    assert rows.looks == 2
    check_exactly_once(simulated, 1)


def test_rows_that_cannot_be_read_leave_nothing_open():
    simulated = new_cluster()
    rows = BrokenRows(0, KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large"), 99)
    with pytest.raises(KafkaError, match="too large"):
        writer_on(simulated).write(order_of(0), rows, lambda _: None)
    assert all(log.open == {} for _, logs in simulated.topics.values() for log in logs)
    assert simulated.visible(TOPIC) == []


def test_the_ledger_says_what_a_batch_took():
    simulated = new_cluster()
    written = writer_on(simulated).write(order_of(0), SomeRows(0), lambda _: None, {"compute": 7})
    assert isinstance(written.entry, Entry)
    assert (written.entry.rows, written.entry.topics) == (4, (TOPIC,))
    assert written.entry.phases["compute"] == 7 and "send" in written.entry.phases
    assert ledger_of(simulated) == written.entry
