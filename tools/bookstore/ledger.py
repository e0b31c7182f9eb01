"""The store's own books: what happened, entered by the backends as they do it.

It knows nothing of topics, JSON or Spark, so it can disagree with them. Money is counted in cents, minutes are those
of the event's time in UTC.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime

SUSPICIOUS_FAILURES = 5


def minute_of(at_ms: int) -> str:
    """The minute that a time belongs to, as 2026-01-05T18:07."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M")


@dataclass(frozen=True)
class Takings:
    orders: int = 0
    cents: int = 0


@dataclass(frozen=True)
class Suspicion:
    """Many wrong passwords for an account in one minute, and whether a right one was among them."""

    customer: str
    minute: str
    failures: int
    got_in: bool


@dataclass(frozen=True)
class Return:
    order_id: int
    book: str
    cents: int
    reason: str
    minutes_kept: int


@dataclass(frozen=True)
class Rejected:
    """A record that the pipeline must set aside, and where: when it is decoded, or by a rule."""

    topic: str
    key: str
    stage: str


class Ledger:
    def __init__(self) -> None:
        self.records: Counter[str] = Counter()
        self.actions: Counter[str] = Counter()
        self.takings: defaultdict[str, Takings] = defaultdict(Takings)
        self.looks: Counter[str] = Counter()
        self.returns: dict[int, Return] = {}
        self.rejected: list[Rejected] = []
        self._failures: Counter[tuple[str, str]] = Counter()
        self._entered: set[tuple[str, str]] = set()

    def enter_record(self, topic: str, action: str) -> None:
        self.records[topic] += 1
        self.actions[action] += 1

    def enter_login(self, at_ms: int, customer: str, ok: bool) -> None:
        place = (customer, minute_of(at_ms))
        if ok:
            self._entered.add(place)
        else:
            self._failures[place] += 1

    def enter_look(self, book: str) -> None:
        self.looks[book] += 1

    def enter_sale(self, at_ms: int, cents: int) -> None:
        minute = minute_of(at_ms)
        before = self.takings[minute]
        self.takings[minute] = Takings(before.orders + 1, before.cents + cents)

    def enter_return(self, returned: Return) -> None:
        assert returned.order_id not in self.returns, "an order is returned once"
        self.returns[returned.order_id] = returned

    def enter_rejected(self, topic: str, key: str, stage: str) -> None:
        self.rejected.append(Rejected(topic, key, stage))

    @property
    def suspicions(self) -> set[Suspicion]:
        return {
            Suspicion(customer, minute, failures, (customer, minute) in self._entered)
            for (customer, minute), failures in self._failures.items()
            if failures >= SUSPICIOUS_FAILURES
        }

    @property
    def total(self) -> Takings:
        return Takings(
            sum(one.orders for one in self.takings.values()), sum(one.cents for one in self.takings.values())
        )

    @property
    def refunded_cents(self) -> int:
        return sum(one.cents for one in self.returns.values())
