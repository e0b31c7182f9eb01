"""The ledger itself: it sees whatever is wrong with a topic or a group."""

import pytest

from tests.processes.record_ledger import RecordLedger

A0, A1, A2, B0 = b"a/0/0", b"a/0/1", b"a/0/2", b"b/0/0"


@pytest.fixture
def ledger() -> RecordLedger:
    """Producer a sent three records and knows of two, b sent one."""
    ledger = RecordLedger(1)
    for _ in range(3):
        ledger.next_of("a", 0)
    ledger.next_of("b", 0)
    ledger.told(A0, 0)
    ledger.told(A1, None, "timed out")
    ledger.told(B0, 1)
    ledger.told(A2, 3)
    return ledger


def test_what_was_in_doubt_may_be_there(ledger: RecordLedger) -> None:
    ledger.check_records({0: {0: A0, 1: B0, 2: A1, 3: A2}})
    ledger.check_records({0: {0: A0, 1: B0, 3: A2}})
    assert (ledger.acknowledged, len(ledger.doubts)) == (3, 1)


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ({0: A0, 1: B0}, "1 acknowledged records are not where they were"),
        ({0: A0, 2: B0, 3: A2}, "1 acknowledged records are not where they were"),
        ({0: A0, 1: B0, 2: A0, 3: A2}, "a/0/0 comes after number 0"),
        ({0: A0, 1: B0, 3: A2, 4: A1}, "a/0/1 comes after number 2"),
        ({0: A0, 1: B0, 3: A2, 4: b"a/0/3"}, "a/0/3 was never sent"),
        ({0: A0, 1: B0, 3: A2, 4: b"a/1/0"}, "a/1/0 was sent elsewhere"),
    ],
    ids=["lost", "moved", "twice", "out of order", "invented", "elsewhere"],
)
def test_what_is_wrong_with_records_is_seen(
    ledger: RecordLedger, found: dict[int, bytes], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        ledger.check_records({0: found})


def test_what_was_acknowledged_without_an_offset_is_somewhere(ledger: RecordLedger) -> None:
    value = ledger.next_of("a", 0).value
    ledger.told(value, None)
    ledger.check_records({0: {0: A0, 1: B0, 3: A2, 5: value}})
    with pytest.raises(AssertionError, match="1 acknowledged records are not where they were"):
        ledger.check_records({0: {0: A0, 1: B0, 3: A2}})


def test_a_group_reads_everything_and_nothing_else(ledger: RecordLedger) -> None:
    ledger.has_read("g", 0, 0, A0)
    ledger.check_groups({0: {0: A0}})
    ledger.has_read("g", 0, 0, A0)
    with pytest.raises(AssertionError, match="had not read"):
        ledger.check_groups({0: {0: A0, 1: B0}})
    with pytest.raises(AssertionError, match="is not there"):
        ledger.check_groups({0: {}})
    with pytest.raises(AssertionError, match="and now"):
        ledger.has_read("g", 0, 0, A1)


def test_committed_offsets_that_go_back_are_seen(ledger: RecordLedger) -> None:
    ledger.has_committed("g", 0, 3)
    ledger.has_committed("g", 0, 2)  # heard of late
    ledger.check_committed("g", ledger.committed("g"), {0: 3})
    for found in ({0: 2}, {}):
        with pytest.raises(AssertionError, match="offsets went back"):
            ledger.check_committed("g", ledger.committed("g"), found)
