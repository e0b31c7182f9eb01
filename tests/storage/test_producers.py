"""Sequences, epochs, retries and transactions of producers, and their snapshots."""

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import BatchHeader
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.producers import snapshots
from odradek.storage.producers.markers import Marker
from odradek.storage.producers.snapshots import CorruptSnapshot, Snapshots
from odradek.storage.producers.state import MAX_SEQUENCE, ProducedBatch, Producers
from odradek.storage.producers.verification import NOT_REQUIRED, Verification
from odradek.storage.segments.indexes import AbortedTransaction
from tests.storage.batches import NOW_MS

TRANSACTIONAL = 0x10
CONTROL = 0x20
COMMIT = Marker(is_abort=False, coordinator_epoch=1)
ABORT = Marker(is_abort=True, coordinator_epoch=1)


def data(
    sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, transactional: bool = False
) -> BatchHeader:
    attributes = TRANSACTIONAL if transactional else 0
    return BatchHeader(
        0, 60, 0, 2, 0, attributes, count - 1, NOW_MS, NOW_MS, producer, epoch, sequence, count
    )


def marker(*, producer: int = 7, epoch: int = 0) -> BatchHeader:
    attributes = TRANSACTIONAL | CONTROL
    return BatchHeader(0, 60, 0, 2, 0, attributes, 0, NOW_MS, NOW_MS, producer, epoch, -1, 1)


class Scenario:
    """A log's worth of producers: each accepted batch gets the next offset."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.end = 0

    def write(
        self,
        header: BatchHeader,
        check_sequence: bool = True,
        verification: Verification | None = NOT_REQUIRED,
    ) -> int:
        duplicate = self.producers.check(header, check_sequence, verification)
        if duplicate is not None:
            return duplicate.base_offset
        base_offset = self.end
        self.producers.replay(header, base_offset)
        self.end = base_offset + header.last_offset_delta + 1
        return base_offset

    def end_transaction(self, kind: Marker, **options: int) -> AbortedTransaction | None:
        header = marker(**options)
        self.producers.check(header, False)
        self.producers.check_marker(header, kind)
        aborted = self.producers.aborted_by(header, self.end, kind)
        self.producers.replay_marker(header, self.end, kind)
        self.end += 1
        return aborted


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


def refused(scenario: Scenario, header: BatchHeader) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        scenario.write(header)
    return raised.value.code


def test_sequences_must_follow_one_another(scenario: Scenario) -> None:
    assert scenario.write(data(0, 3)) == 0
    assert refused(scenario, data(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(scenario, data(2, 5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert scenario.write(data(3, 2)) == 3


def test_a_retry_within_five_batches_gets_its_first_offset(scenario: Scenario) -> None:
    offsets = [scenario.write(data(number * 2, 2)) for number in range(6)]
    for number in range(1, 6):
        assert scenario.write(data(number * 2, 2)) == offsets[number]
    assert refused(scenario, data(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert scenario.end == 12


def test_a_retry_must_repeat_the_whole_batch(scenario: Scenario) -> None:
    scenario.write(data(0, 3))
    assert refused(scenario, data(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_anywhere(scenario: Scenario) -> None:
    assert scenario.write(data(1234)) == 0
    assert scenario.write(data(1235)) == 1


def test_a_new_epoch_begins_at_zero(scenario: Scenario) -> None:
    scenario.write(data(0))
    assert refused(scenario, data(1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    scenario.write(data(0, epoch=1))
    assert refused(scenario, data(1, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(scenario, data(0, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap(scenario: Scenario) -> None:
    scenario.write(data(MAX_SEQUENCE - 1, 1))
    wrapping = data(MAX_SEQUENCE, 3)
    assert wrapping.last_sequence == 1
    assert scenario.write(wrapping) == 1
    assert scenario.write(wrapping) == 1
    assert scenario.write(data(2)) == 4


def test_a_wrap_exactly_at_a_batch_border(scenario: Scenario) -> None:
    scenario.write(data(MAX_SEQUENCE))
    assert refused(scenario, data(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert scenario.write(data(0)) == 1


def test_coordinators_write_without_sequences(scenario: Scenario) -> None:
    for _ in range(3):
        scenario.write(data(-1, transactional=True), check_sequence=False)
    assert scenario.producers.by_id[7].batches[-1].last_sequence == -1


def test_a_transaction_holds_the_stable_offset_back_until_its_marker_is_committed(scenario: Scenario) -> None:
    scenario.write(data(0))
    assert scenario.producers.first_unstable_offset(1) is None
    scenario.write(data(1, transactional=True))
    scenario.write(data(2, transactional=True))
    assert scenario.producers.first_unstable_offset(3) == 1
    assert scenario.end_transaction(COMMIT) is None
    assert scenario.producers.first_unstable_offset(3) == 1
    assert scenario.producers.first_unstable_offset(4) is None


def test_the_oldest_of_several_transactions_counts(scenario: Scenario) -> None:
    scenario.write(data(0, producer=1, transactional=True))
    scenario.write(data(0, producer=2, transactional=True))
    assert scenario.end_transaction(COMMIT, producer=1) is None
    assert scenario.producers.first_unstable_offset(2) == 0
    assert scenario.producers.first_unstable_offset(3) == 1


def test_an_abort_tells_the_range_and_the_stable_offset(scenario: Scenario) -> None:
    scenario.write(data(0, producer=1, transactional=True))
    scenario.write(data(0, producer=2, transactional=True))
    assert scenario.end_transaction(ABORT, producer=2) == AbortedTransaction(2, 1, 2, 0)
    assert scenario.end_transaction(ABORT, producer=1) == AbortedTransaction(1, 0, 3, 4)


def test_an_empty_transaction_leaves_no_trace(scenario: Scenario) -> None:
    assert scenario.end_transaction(ABORT) is None
    assert scenario.producers.first_unstable_offset(0) is None


def test_a_marker_with_a_higher_epoch_fences_the_producer(scenario: Scenario) -> None:
    scenario.write(data(0, transactional=True))
    scenario.end_transaction(ABORT, epoch=1)
    assert refused(scenario, data(1, transactional=True)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(scenario, data(5, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    scenario.write(data(0, epoch=1))


def test_a_replaced_coordinator_is_fenced(scenario: Scenario) -> None:
    scenario.write(data(0, transactional=True))
    scenario.end_transaction(Marker(is_abort=False, coordinator_epoch=5))
    with pytest.raises(KafkaError) as raised:
        scenario.end_transaction(Marker(is_abort=False, coordinator_epoch=4))
    assert raised.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_plain_data_within_a_transaction_is_refused(scenario: Scenario) -> None:
    scenario.write(data(0, transactional=True))
    assert refused(scenario, data(1)) is ErrorCode.INVALID_TXN_STATE


def test_silent_producers_are_forgotten_unless_a_transaction_is_open(scenario: Scenario) -> None:
    scenario.write(data(0, producer=1))
    scenario.write(data(0, producer=2, transactional=True))
    scenario.producers.expire(NOW_MS + 99, 100)
    assert set(scenario.producers.by_id) == {1, 2}
    scenario.producers.expire(NOW_MS + 100, 100)
    assert set(scenario.producers.by_id) == {2}


# Verification


def verify(scenario: Scenario, sequence: int = 0, epoch: int = 0, zero: bool = False) -> Verification:
    return scenario.producers.begin_verification(7, epoch, sequence, NOW_MS, zero)


def refusal(scenario: Scenario, header: BatchHeader, verification: Verification | None) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        scenario.write(header, verification=verification)
    return raised.value.code


def test_a_transaction_begins_only_with_a_verification(scenario: Scenario) -> None:
    assert refusal(scenario, data(0, transactional=True), None) is ErrorCode.INVALID_TXN_STATE
    scenario.write(data(0))  # a producer that is known gets the same
    assert refusal(scenario, data(1, transactional=True), None) is ErrorCode.INVALID_TXN_STATE
    verification = verify(scenario, 1)
    scenario.write(data(1, transactional=True), verification=verification)
    scenario.write(data(2, transactional=True), verification=None)
    assert scenario.producers.has_open_transaction(7, 0) and not scenario.producers.has_open_transaction(7, 1)
    assert not scenario.producers.verifications


def test_a_marker_between_verification_and_append_makes_the_append_fail(scenario: Scenario) -> None:
    verification = verify(scenario)
    scenario.end_transaction(ABORT)
    assert not scenario.producers.is_known(verification)
    assert refusal(scenario, data(0, transactional=True), verification) is ErrorCode.INVALID_TXN_STATE


def test_the_marker_of_the_transaction_before_leaves_the_verification_of_the_next(scenario: Scenario) -> None:
    """The marker carries the epoch of the next transaction if each has an epoch of its own."""
    scenario.write(data(0, transactional=True), verification=verify(scenario, zero=True))
    ended = verify(scenario, epoch=0, zero=True)
    following = verify(scenario, epoch=1, zero=True)
    scenario.end_transaction(COMMIT, epoch=1)
    assert not scenario.producers.is_known(ended)
    scenario.write(data(0, epoch=1, transactional=True), verification=following)


def test_a_verification_of_the_transaction_before_does_not_serve_for_the_next(scenario: Scenario) -> None:
    late = verify(scenario)
    scenario.end_transaction(ABORT)
    current = verify(scenario)
    assert refusal(scenario, data(0, transactional=True), late) is ErrorCode.INVALID_TXN_STATE
    scenario.write(data(0, transactional=True), verification=current)


def test_requests_at_the_same_time_share_a_verification(scenario: Scenario) -> None:
    first, second = verify(scenario, 0), verify(scenario, 1)
    assert first is second
    scenario.write(data(0, transactional=True), verification=first)
    scenario.write(data(1, transactional=True), verification=second)


def test_a_later_batch_does_not_overtake_the_first_of_its_transaction(scenario: Scenario) -> None:
    first, second = verify(scenario, 5), verify(scenario, 6)
    late = data(6, transactional=True)
    assert refusal(scenario, late, second) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    scenario.write(data(5, transactional=True), verification=first)
    scenario.write(late, verification=second)


def test_a_retry_that_comes_after_the_end_does_not_hold_up_the_next_transaction(scenario: Scenario) -> None:
    scenario.write(data(0, transactional=True), verification=verify(scenario))
    scenario.end_transaction(COMMIT)
    verify(scenario, 0)  # the retry, whose coordinator responds that the markers are still being written
    scenario.write(data(1, transactional=True), verification=verify(scenario, 1))


def test_another_epoch_needs_a_verification_of_its_own(scenario: Scenario) -> None:
    scenario.write(data(0, transactional=True), verification=verify(scenario))
    newer = data(0, epoch=1, transactional=True)
    assert refusal(scenario, newer, None) is ErrorCode.INVALID_TXN_STATE
    assert refusal(scenario, newer, verify(scenario)) is ErrorCode.INVALID_TXN_STATE
    scenario.write(newer, verification=verify(scenario, epoch=1))


def test_with_an_epoch_for_each_transaction_an_unknown_producer_begins_at_zero(scenario: Scenario) -> None:
    verification = verify(scenario, 3, zero=True)
    begins_at_three = data(3, transactional=True)
    assert refusal(scenario, begins_at_three, verification) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    scenario.write(data(0, transactional=True), verification=verify(scenario, 0, zero=True))


def test_a_repeated_batch_needs_no_verification(scenario: Scenario) -> None:
    assert scenario.write(data(0, 3, transactional=True), verification=verify(scenario)) == 0
    scenario.end_transaction(COMMIT)
    assert scenario.write(data(0, 3, transactional=True), verification=None) == 0


def test_coordinators_verify_on_their_own(scenario: Scenario) -> None:
    scenario.write(data(-1, transactional=True), check_sequence=False, verification=None)
    assert scenario.producers.has_open_transaction(7, 0)


def test_a_verification_is_forgotten_when_it_fails_or_grows_old(scenario: Scenario) -> None:
    refused_one = verify(scenario)
    scenario.producers.give_up(refused_one)
    assert not scenario.producers.is_known(refused_one)
    scenario.producers.give_up(refused_one)
    verify(scenario)
    scenario.producers.expire(NOW_MS + 99, 100)
    assert scenario.producers.verifications
    scenario.producers.expire(NOW_MS + 100, 100)
    assert not scenario.producers.verifications


# Markers


def test_before_version_two_a_marker_may_have_the_epoch_of_its_data(scenario: Scenario) -> None:
    scenario.write(data(0, transactional=True))
    assert not scenario.producers.is_repeated_marker(7, 0, transaction_version=1)
    assert not scenario.producers.is_repeated_marker(7, 1, transaction_version=1)


def test_since_version_two_a_marker_has_a_higher_epoch_than_its_data(scenario: Scenario) -> None:
    assert not scenario.producers.is_repeated_marker(
        7, 0, transaction_version=2
    )  # unknown: nothing to compare
    scenario.write(data(0, transactional=True))
    with pytest.raises(KafkaError) as raised:
        scenario.producers.is_repeated_marker(7, 0, transaction_version=2)
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert not scenario.producers.is_repeated_marker(7, 1, transaction_version=2)
    scenario.end_transaction(COMMIT, epoch=1)
    assert scenario.producers.is_repeated_marker(7, 1, transaction_version=2)


def test_a_late_marker_does_not_end_the_next_transaction(scenario: Scenario) -> None:
    scenario.write(data(0, transactional=True))
    scenario.end_transaction(COMMIT, epoch=1)
    scenario.write(data(0, epoch=1, transactional=True))
    with pytest.raises(KafkaError) as raised:
        scenario.producers.is_repeated_marker(7, 1, transaction_version=2)
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


# Snapshots


def test_the_bytes_of_a_snapshot(scenario: Scenario) -> None:
    scenario.end = 100
    scenario.write(data(5, 3, producer=9, epoch=2, transactional=True))
    encoded = snapshots.encode(scenario.producers)
    assert encoded[:2] == bytes.fromhex("0001")
    assert encoded[6:] == bytes.fromhex(
        "00000001"  # one producer
        "0000000000000009 0002 00000007 0000000000000066 00000002 0000018bcfe56800 ffffffff 0000000000000064"
    )


def test_an_empty_snapshot() -> None:
    encoded = snapshots.encode(Producers())
    assert encoded == bytes.fromhex("0001 48674bc7 00000000")


def test_a_snapshot_keeps_the_window_of_batches_and_the_open_transaction(scenario: Scenario) -> None:
    scenario.write(data(0, 2))
    scenario.write(data(2, 4, transactional=True))
    restored = Producers()
    for producer_id, producer in snapshots.decode(snapshots.encode(scenario.producers)).producers.items():
        restored.restore(producer_id, producer)
    assert restored.by_id[7].batches == [ProducedBatch(0, 1, 1, 1, NOW_MS), ProducedBatch(2, 5, 5, 3, NOW_MS)]
    assert restored.first_unstable_offset(6) == 2


def test_a_snapshot_keeps_transactions_whose_markers_may_not_be_committed(scenario: Scenario) -> None:
    files = SimulatedFiles()
    files.make_directory("/d")
    scenario.write(data(0, 2))
    scenario.write(data(2, transactional=True))
    scenario.end_transaction(COMMIT)
    assert snapshots.decode(snapshots.encode(scenario.producers)).ended == {2: 3}
    Snapshots(files, "/d", []).write(scenario.producers, 4)
    restored = Producers()
    assert Snapshots(files, "/d", [4]).restore_latest(restored, 4) == 4
    assert restored.first_unstable_offset(3) == 2
    assert restored.first_unstable_offset(4) is None
    assert restored.ended == {}


def test_a_snapshot_of_a_wrapped_batch(scenario: Scenario) -> None:
    scenario.write(data(MAX_SEQUENCE, 2))
    ((_, producer),) = snapshots.decode(snapshots.encode(scenario.producers)).producers.items()
    assert producer.batches[0][:2] == (MAX_SEQUENCE, 0)


def test_a_snapshot_of_a_batch_without_sequences(scenario: Scenario) -> None:
    """Write markers as coordinators do."""
    scenario.write(data(-1, 2, transactional=True), check_sequence=False)
    ((_, producer),) = snapshots.decode(snapshots.encode(scenario.producers)).producers.items()
    assert producer.batches == scenario.producers.by_id[7].batches


def test_a_damaged_snapshot_is_noticed(scenario: Scenario) -> None:
    scenario.write(data(0))
    encoded = snapshots.encode(scenario.producers)
    for position in range(len(encoded)):
        with pytest.raises(CorruptSnapshot):
            snapshots.decode(encoded[:position])
        flipped = bytearray(encoded)
        flipped[position] ^= 4
        with pytest.raises(CorruptSnapshot):
            snapshots.decode(bytes(flipped))


def test_a_damaged_snapshot_is_passed_over_for_an_older_one(scenario: Scenario) -> None:
    files = SimulatedFiles()
    files.make_directory("/d")
    stored = Snapshots(files, "/d", [])
    scenario.write(data(0))
    stored.write(scenario.producers, 1)
    scenario.write(data(1))
    stored.write(scenario.producers, 2)
    files.file("/d/00000000000000000002.snapshot").truncate(20)
    restored = Producers()
    assert Snapshots(files, "/d", [1, 2]).restore_latest(restored, 10) == 1
    assert restored.by_id[7].batches[-1].last_sequence == 0
    assert [entry.name for entry in files.list("/d")] == ["00000000000000000001.snapshot"]
