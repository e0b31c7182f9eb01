"""The ledger, entry by entry."""

import pytest

from tools.bookstore.ledger import Ledger, Rejected, Return, Suspicion, Takings, minute_of

MINUTE_MS = 60_000
OPENING_MS = 1_767_636_000_000  # 2026-01-05T18:00Z


def test_minutes_are_of_utc_and_begin_with_their_first_millisecond() -> None:
    assert minute_of(OPENING_MS) == "2026-01-05T18:00"
    assert minute_of(OPENING_MS + MINUTE_MS - 1) == "2026-01-05T18:00"
    assert minute_of(OPENING_MS + MINUTE_MS) == "2026-01-05T18:01"


def test_sales_are_summed_by_the_minute() -> None:
    ledger = Ledger()
    ledger.enter_sale(OPENING_MS, 399)
    ledger.enter_sale(OPENING_MS + MINUTE_MS - 1, 1)
    ledger.enter_sale(OPENING_MS + MINUTE_MS, 50)
    assert ledger.takings == {"2026-01-05T18:00": Takings(2, 400), "2026-01-05T18:01": Takings(1, 50)}
    assert ledger.total == Takings(3, 450)


def test_five_failures_of_an_account_within_a_minute_are_suspicious() -> None:
    ledger = Ledger()
    for number in range(5):
        ledger.enter_login(OPENING_MS + number, "josef", ok=False)
        ledger.enter_login(OPENING_MS + MINUTE_MS - 3 + number, "grete", ok=False)  # three, then two
        ledger.enter_login(OPENING_MS + number, "leni", ok=True)
    assert ledger.suspicions == {Suspicion("josef", "2026-01-05T18:00", 5, got_in=False)}
    ledger.enter_login(OPENING_MS + MINUTE_MS, "josef", ok=True)  # another minute
    assert ledger.suspicions == {Suspicion("josef", "2026-01-05T18:00", 5, got_in=False)}
    ledger.enter_login(OPENING_MS + 9, "josef", ok=True)
    assert ledger.suspicions == {Suspicion("josef", "2026-01-05T18:00", 5, got_in=True)}


def test_an_order_is_returned_once() -> None:
    ledger = Ledger()
    ledger.enter_return(Return(1, "b01", 399, "wrong book", 2))
    assert ledger.refunded_cents == 399
    with pytest.raises(AssertionError):
        ledger.enter_return(Return(1, "b01", 399, "wrong book", 3))


def test_records_looks_and_rejected_records_are_counted() -> None:
    ledger = Ledger()
    ledger.enter_record("orders", "buy")
    ledger.enter_record("orders", "status")
    ledger.enter_look("b01")
    ledger.enter_rejected("orders", "till-7", "decode")
    assert (ledger.records, ledger.actions) == ({"orders": 2}, {"buy": 1, "status": 1})
    assert ledger.looks == {"b01": 1}
    assert ledger.rejected == [Rejected("orders", "till-7", "decode")]
