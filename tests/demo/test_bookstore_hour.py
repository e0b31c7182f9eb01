"""The simulated hour: the same for a seed, whole, and as the ledger says when it is read by somebody else."""

import json
from collections import Counter, defaultdict
from typing import Any

import pytest

from tools.bookstore.backends import BOOKS, ORDERS, RETURNS, SECURITY, TOPICS
from tools.bookstore.hour import Hour, play_hour
from tools.bookstore.ledger import SUSPICIOUS_FAILURES

SEED = 17


@pytest.fixture(scope="module")
def hour() -> Hour:
    return play_hour(SEED)


def rows(hour: Hour, topic: str, action: str) -> list[dict[str, Any]]:
    """Events as a reader of the topic finds them, those of the old till left out."""
    found = []
    for event in hour.events:
        if event.topic == topic and not event.key.startswith("till"):
            content = json.loads(event.value)
            if content["event"] == action:
                found.append(content)
    return found


def test_a_seed_is_an_hour_byte_for_byte(hour: Hour) -> None:
    again = play_hour(SEED)
    assert again.events == hour.events
    assert again.ledger.takings == hour.ledger.takings
    assert play_hour(SEED + 1).events != hour.events


def test_the_hour_of_the_demo(hour: Hour) -> None:
    """These figures are what `make demo` shows, on every machine and Python."""
    ledger = hour.ledger
    assert len(hour.events) == 21_559
    assert (ledger.total.orders, ledger.total.cents) == (2_358, 4_291_259)
    assert (len(ledger.returns), ledger.refunded_cents) == (281, 501_789)
    assert len(ledger.suspicions) == 7
    assert any(one.got_in for one in ledger.suspicions)
    assert [one.stage for one in ledger.rejected] == ["decode", "transform", "decode"]


def test_everything_a_store_does_happens(hour: Hour) -> None:
    assert set(hour.ledger.actions) == {"login", "logout", "list", "details", "buy", "status", "return"}
    assert set(hour.ledger.records) == set(TOPICS)
    assert hour.ledger.records == Counter(event.topic for event in hour.events)


def test_events_come_in_the_order_of_their_times(hour: Hour) -> None:
    times = [json.loads(event.value)["at"] for event in hour.events if event.value.endswith(b"}")]
    assert times == sorted(times)
    assert len(times) == len(hour.events) - 1  # all but the half order
    assert times[0] >= "2026-01-05T18:00" and times[-1] < "2026-01-05T19:00"


def test_takings_as_a_reader_counts_them(hour: Hour) -> None:
    orders: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    for row in rows(hour, ORDERS, "buy"):
        orders[row["at"][:16]] += 1
        cents[row["at"][:16]] += round(row["amount"] * 100)
    assert {minute: (one.orders, one.cents) for minute, one in hour.ledger.takings.items()} == {
        minute: (orders[minute], cents[minute]) for minute in orders
    }


def test_suspicious_logins_as_a_reader_counts_them(hour: Hour) -> None:
    attempts: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
    for row in rows(hour, SECURITY, "login"):
        attempts[row["customer"], row["at"][:16]].append(row["ok"])
    expected = {
        (*place, tries.count(False), any(tries))
        for place, tries in attempts.items()
        if tries.count(False) >= SUSPICIOUS_FAILURES
    }
    found = {(one.customer, one.minute, one.failures, one.got_in) for one in hour.ledger.suspicions}
    assert found == expected


def test_returns_belong_to_orders_of_the_last_half_hour(hour: Hour) -> None:
    bought = {row["order_id"]: row for row in rows(hour, ORDERS, "buy")}
    returned = rows(hour, RETURNS, "return")
    assert [row["order_id"] for row in returned] == list(hour.ledger.returns)
    for row in returned:
        order, entry = bought[row["order_id"]], hour.ledger.returns[row["order_id"]]
        assert row["customer"] == order["customer"]
        assert order["at"] < row["at"]
        assert entry.minutes_kept < 30
        assert (entry.book, entry.cents) == (order["book"], round(order["amount"] * 100))
        assert entry.reason == row["reason"]


def test_looks_as_a_reader_counts_them(hour: Hour) -> None:
    assert hour.ledger.looks == Counter(row["book"] for row in rows(hour, BOOKS, "details"))


def test_a_customer_is_logged_in_when_buying(hour: Hour) -> None:
    """Looked at in the order of the events, which is that of the clock."""
    inside: Counter[str] = Counter()
    for event in hour.events:
        if event.key.startswith("till"):
            continue
        content = json.loads(event.value)
        if content["event"] == "login":
            inside[content["customer"]] += content["ok"]
        elif content["event"] == "logout":
            inside[content["customer"]] -= 1
        else:
            assert inside[content["customer"]] > 0
