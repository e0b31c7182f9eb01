"""The audit finds what it is there to find: each planted fault turns one check, and only that, red."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tools.bookstore.audit import check_results, check_topic
from tools.bookstore.backends import ORDERS
from tools.bookstore.hour import Hour, play_hour
from tools.bookstore.ledger import Rejected, Takings
from tools.bookstore.results import Results


@pytest.fixture(scope="module")
def hour() -> Hour:
    return play_hour(3, visits=200)


def faithful(hour: Hour) -> Results:
    """Return what a pipeline without a fault finds."""
    ledger = hour.ledger
    return Results(
        takings=dict(ledger.takings),
        suspicions=set(ledger.suspicions),
        addresses={},
        returns=list(ledger.returns.values()),
        looks=dict(ledger.looks),
        rejected=list(reversed(ledger.rejected)),
    )


def wrong(hour: Hour, results: Results) -> list[str]:
    return [check.what for check in check_results(hour.ledger, results) if not check.agrees]


def test_faithful_results_agree(hour: Hour) -> None:
    assert wrong(hour, faithful(hour)) == []
    for check in check_results(hour.ledger, faithful(hour)):
        assert check.expected == check.found


def moved_revenue(results: Results) -> Any:
    """The sum is right, the minutes are not."""
    first, second = sorted(results.takings)[:2]
    return {**results.takings, first: results.takings[second], second: results.takings[first]}


@pytest.mark.parametrize(
    ("field", "damage", "what"),
    [
        ("takings", moved_revenue, "revenue, minute by minute"),
        ("takings", lambda it: {**it.takings, "2026-01-05T19:00": Takings()}, "revenue, minute by minute"),
        ("suspicions", lambda it: set(list(it.suspicions)[1:]), "suspicious logins"),
        ("returns", lambda it: it.returns[1:], "orders joined with their returns"),
        ("returns", lambda it: [*it.returns, it.returns[0]], "orders joined with their returns"),
        ("looks", lambda it: {**it.looks, "b01": it.looks["b01"] + 1}, "looks at each book"),
        ("rejected", lambda it: it.rejected[1:], "dead letters"),
        ("rejected", lambda it: [*it.rejected[1:], Rejected("t", "k", "decode")], "dead letters"),
        ("rejected", lambda it: [*it.rejected, it.rejected[0]], "dead letters"),
    ],
)
def test_a_fault_is_found(hour: Hour, field: str, damage: Callable[[Results], Any], what: str) -> None:
    results = faithful(hour)
    assert wrong(hour, replace(results, **{field: damage(results)})) == [what]


def read_of(hour: Hour) -> list[tuple[str, bytes]]:
    return [(event.key, event.value) for event in hour.events if event.topic == ORDERS]


def test_a_topic_is_compared_record_by_record(hour: Hour) -> None:
    read = read_of(hour)
    assert check_topic(hour.ledger, ORDERS, hour.events, read).agrees
    assert not check_topic(hour.ledger, ORDERS, hour.events, read[1:]).agrees
    assert not check_topic(hour.ledger, ORDERS, hour.events, [*read, read[0]]).agrees
    assert not check_topic(hour.ledger, ORDERS, hour.events, [(read[0][0], b"{}"), *read[1:]]).agrees


def test_only_the_order_within_a_key_matters(hour: Hour) -> None:
    read = read_of(hour)
    by_key = sorted(read, key=lambda record: record[0])
    assert by_key != read
    assert check_topic(hour.ledger, ORDERS, hour.events, by_key).agrees
    assert not check_topic(hour.ledger, ORDERS, hour.events, read[::-1]).agrees
