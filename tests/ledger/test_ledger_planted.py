"""Bugs planted into the protocol: each must be caught by what `test_ledger_crashes` checks."""

import pytest

from odradek.client.cluster import LATEST, ProducerId
from odradek.client.producing import Producer
from odradek.ledger import protocol, topic
from odradek.ledger.protocol import AnotherProcess
from odradek.ledger.record import Entry
from odradek.ledger.writer import CARRIED_OUT
from tests.ledger import test_ledger_crashes as crashes
from tests.ledger.program import Checkpoint, Program, new_cluster
from tests.ledger.simulated_cluster import SimulatedClient


def fresh_producer(client: SimulatedClient) -> ProducerId:
    return ProducerId(client._simulated.new_producer(), 0)


class Noticed(Exception):
    """Two programs fence each other again and again."""


def test_a_ledger_record_outside_of_the_transaction_is_caught(monkeypatch):
    def record(self, batch):
        self._entry = Entry(batch.order.batch, batch.order.fingerprint)
        producer = Producer(self._cluster, self._producer._settings)
        producer.send([self._ledger.encoded(self.sink, self._entry, 0)])
        producer.close()
        return protocol.Succeeded()

    monkeypatch.setitem(CARRIED_OUT, protocol.Record, record)
    monkeypatch.setattr(SimulatedClient, "new_producer_id", fresh_producer, raising=False)
    with pytest.raises(AssertionError, match=r"missing: \{\("):
        crashes.test_one_fault_at_any_request("crash before")


def test_a_ledger_that_is_read_without_waiting_for_the_last_stable_offset_is_caught(monkeypatch):
    def stable_offset(self, partition):
        return self._cluster.list_offsets({partition: LATEST}, read_committed=True)[partition]

    monkeypatch.setattr(topic.Ledger, "_high_watermark", stable_offset)
    with pytest.raises(AssertionError):
        crashes.test_another_sinks_open_transaction_does_not_hide_our_record()


def test_a_fingerprint_that_is_not_compared_is_caught(monkeypatch):
    monkeypatch.setattr(Entry, "is_of", lambda self, fingerprint: True)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        crashes.test_an_older_checkpoint_that_plans_the_last_batch_anew_is_refused()


def test_fenced_that_is_taken_for_an_unknown_outcome_is_caught(monkeypatch):
    """The bug lets each of two programs on copies of a checkpoint take the id back from the other."""
    for step in protocol.IN_TRANSACTION:
        monkeypatch.setitem(protocol.MOVES, (step, protocol.Fenced), lambda self, _: protocol.Initialize())
    assert times_that_two_programs_fence_each_other() > 5
    monkeypatch.undo()
    with pytest.raises(AnotherProcess):
        times_that_two_programs_fence_each_other()


def times_that_two_programs_fence_each_other() -> int:
    """Whenever one of them is about to send, the other initializes: as if both ran at once."""
    simulated = new_cluster()
    count = 0

    def other_initializes() -> None:
        nonlocal count
        count += 1
        if count > 20:
            raise Noticed
        Program(simulated, Checkpoint())._writer._producer.initialize()

    at = crashes.first_request(crashes.ProduceRequest)
    script = dict.fromkeys(range(at, at + 500), "other initializes")
    program = Program(simulated, Checkpoint(), script, **{"other initializes": other_initializes})
    try:
        program.run(1)
    except Noticed:
        pass
    return count


def test_every_step_of_the_protocol_can_be_carried_out():
    assert set(CARRIED_OUT) == {step for step, _ in protocol.MOVES}
