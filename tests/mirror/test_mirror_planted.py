"""Bugs planted into a mirror: each must be caught by what `test_mirror_crashes` checks."""

import pytest

from odradek.client.aborted import AbortedTransactions
from odradek.client.producing import Producer
from odradek.errors import KafkaError
from odradek.mirror import protocol, reframing
from odradek.mirror.copying import CARRIED_OUT, Copier
from tests.ledger.simulated_cluster import SimulatedClient
from tests.ledger.test_ledger_planted import fresh_producer
from tests.mirror import test_mirror_crashes as crashes


def test_a_position_outside_of_the_transaction_is_caught(monkeypatch):
    def record(self, step):
        self._sent_next = step.position.next
        producer = Producer(self._clients.target, self._producer._settings)
        producer.send([self._positions.encoded(self.copy, step.position)])
        producer.close()
        return protocol.Succeeded()

    monkeypatch.setitem(CARRIED_OUT, protocol.Record, record)
    monkeypatch.setattr(SimulatedClient, "new_producer_id", fresh_producer, raising=False)
    with pytest.raises(AssertionError):
        crashes.test_one_fault_at_any_request("crash before")


def test_a_transaction_without_its_position_is_caught(monkeypatch):
    monkeypatch.setitem(CARRIED_OUT, protocol.Record, lambda self, step: protocol.Succeeded())
    with pytest.raises(AssertionError):
        crashes.test_a_second_life_copies_only_what_is_new()


def test_a_position_that_counts_only_records_is_caught(monkeypatch):
    """Markers at the end would be read again for ever, and overtaken by retention."""
    fetch = Copier._fetch

    def last_record(self, step):
        fetched = fetch(self, step)
        return fetched if fetched.records else protocol.Fetched(step.offset, 0, fetched.epoch)

    monkeypatch.setitem(CARRIED_OUT, protocol.Fetch, last_record)
    monkeypatch.setattr(protocol.CopyProtocol, "_fetch_next", ends_after(40))
    with pytest.raises(AssertionError):
        crashes.test_a_life_without_faults_copies_everything()


def ends_after(count: int):
    """A protocol that would read for ever ends."""
    original = protocol.CopyProtocol._fetch_next

    def fetch_next(self):
        self.__dict__["reads"] = self.__dict__.get("reads", 0) + 1
        return protocol.Finish() if self.__dict__["reads"] > count else original(self)

    return fetch_next


def test_topics_that_are_not_compared_before_the_commit_are_caught(monkeypatch):
    monkeypatch.setitem(CARRIED_OUT, protocol.Confirm, lambda self, step: protocol.Succeeded())
    with pytest.raises(AssertionError):
        crashes.test_a_topic_that_is_created_again_during_a_transaction("copy")
    with pytest.raises(AssertionError):
        crashes.test_a_topic_that_is_created_again_during_a_transaction("source")


def test_aborted_batches_that_are_passed_on_are_caught(monkeypatch):
    monkeypatch.setattr(AbortedTransactions, "leaves_out", lambda self, header, batch: header.is_control)
    with pytest.raises(AssertionError):
        crashes.test_a_life_without_faults_copies_everything()


def test_batches_with_gaps_that_are_passed_on_are_caught(monkeypatch):
    monkeypatch.setattr(reframing, "_can_stay", lambda header, start: True)
    with pytest.raises(KafkaError, match="Offset delta"):
        crashes.test_a_life_without_faults_copies_everything()


def test_fenced_that_is_taken_for_an_unknown_outcome_is_caught(monkeypatch):
    """The bug lets the first of two take the partition back from its rival."""
    for step in protocol.IN_TRANSACTION:
        monkeypatch.setitem(protocol.MOVES, (step, protocol.Fenced), protocol.CopyProtocol._again)
    with pytest.raises(AssertionError):
        crashes.test_two_mirrors_of_one_partition_do_not_fence_each_other_for_ever()


def test_every_step_of_the_protocol_can_be_carried_out():
    assert set(CARRIED_OUT) == {step for step, _ in protocol.MOVES}
