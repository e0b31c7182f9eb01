"""Holds what was read back against the ledger. A check compares everything there is; its two figures are only what
is shown of it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .backends import Event
from .drawing import money
from .ledger import Ledger, Suspicion, Takings
from .results import Results


@dataclass(frozen=True)
class Check:
    what: str
    expected: str
    found: str
    agrees: bool


def check_topic(
    ledger: Ledger, topic: str, sent: Sequence[Event], read: Iterable[tuple[str, bytes]]
) -> Check:
    """Every record of a topic is there, and those of a key are in the order in which they were sent."""
    arrived: defaultdict[str, list[bytes]] = defaultdict(list)
    for key, value in read:
        arrived[key].append(value)
    wanted: defaultdict[str, list[bytes]] = defaultdict(list)
    for event in sent:
        if event.topic == topic:
            wanted[event.key].append(event.value)
    count = sum(map(len, arrived.values()))
    agrees = arrived == wanted and count == ledger.records[topic]
    return Check(f"{topic}, in order by key", f"{ledger.records[topic]:,}", f"{count:,}", agrees)


def check_archives(ledger: Ledger, found: Mapping[str, tuple[int, int]]) -> list[Check]:
    """Every record is in the table of its topic, once. `found`: records, and different offsets."""
    return [
        Check(
            f"{topic}, archived",
            f"{ledger.records[topic]:,}",
            f"{count:,}",
            count == different == ledger.records[topic],
        )
        for topic, (count, different) in found.items()
    ]


def check_results(ledger: Ledger, results: Results) -> list[Check]:
    returns = {one.order_id: one for one in results.returns}
    once = len(returns) == len(results.returns)
    refunded = sum(one.cents for one in results.returns)
    return [
        Check(
            "revenue, minute by minute",
            _takings(ledger.takings),
            _takings(results.takings),
            results.takings == ledger.takings,
        ),
        Check(
            "suspicious logins",
            _suspicions(ledger.suspicions),
            _suspicions(results.suspicions),
            results.suspicions == ledger.suspicions,
        ),
        Check(
            "orders joined with their returns",
            f"{len(ledger.returns):,} for {money(ledger.refunded_cents)}",
            f"{len(results.returns):,} for {money(refunded)}",
            once and returns == ledger.returns,
        ),
        Check(
            "looks at each book",
            f"{ledger.looks.total():,}",
            f"{sum(results.looks.values()):,}",
            results.looks == ledger.looks,
        ),
        Check(
            "dead letters",
            f"{len(ledger.rejected)}",
            f"{len(results.rejected)}",
            Counter(results.rejected) == Counter(ledger.rejected),
        ),
    ]


def _takings(takings: dict[str, Takings]) -> str:
    cents = sum(one.cents for one in takings.values())
    return f"{sum(one.orders for one in takings.values()):,} for {money(cents)}"


def _suspicions(suspicions: set[Suspicion]) -> str:
    return f"{len(suspicions)} with {sum(one.failures for one in suspicions)} failures"
