"""One hour of the store on a simulated clock. The same seed gives the same events, byte for byte."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from .backends import BookInformation, Desk, Event, OrderProcessing, Security
from .customers import NAMES, Behaviour, Chance, Store, guess_passwords, old_till, visit
from .ledger import Ledger

OPENING_MS = int(datetime(2026, 1, 5, 18, tzinfo=UTC).timestamp() * 1000)
MINUTES = 60
VISITS, GUESSERS = 2000, 6
# The number of customers, of every 16, that come in each sixth of the hour: quiet at first, two rushes.
ARRIVALS = (1, 2, 4, 2, 5, 2)


@dataclass(frozen=True)
class Hour:
    events: list[Event]
    ledger: Ledger


def play_hour(seed: int, visits: int = VISITS) -> Hour:
    chance = Chance(seed)
    ledger, events = Ledger(), list[Event]()
    desk = Desk(ledger, events.append)
    store = Store(Security(desk), BookInformation(desk), OrderProcessing(desk))
    _run(desk, people(store, visits, chance))
    return Hour(events, ledger)


def people(store: Store, visits: int, chance: Chance) -> Iterator[tuple[int, Behaviour]]:
    """Yield who comes, and how many milliseconds after the opening."""
    yield 0, old_till(store, chance)
    for number in range(visits):
        customer = f"{NAMES[number % len(NAMES)]}-{number // len(NAMES)}"
        yield _arrival_ms(chance), visit(store, customer, chance)
    for _ in range(GUESSERS):
        victim = chance.below(visits)
        customer = f"{NAMES[victim % len(NAMES)]}-{victim // len(NAMES)}"
        minute = 1 + chance.below(MINUTES - 5)
        yield minute * 60_000, guess_passwords(store, customer, chance)


def _arrival_ms(chance: Chance) -> int:
    sixths = [sixth for sixth, share in enumerate(ARRIVALS) for _ in range(share)]
    length_ms = MINUTES * 60_000 // len(ARRIVALS)
    return sixths[chance.below(len(sixths))] * length_ms + chance.below(length_ms)


def _run(desk: Desk, arrivals: Iterator[tuple[int, Behaviour]]) -> None:
    """Whose turn comes first acts first; after the hour nobody does."""
    queue = [(at_ms, number, behaviour) for number, (at_ms, behaviour) in enumerate(arrivals)]
    heapq.heapify(queue)
    while queue:
        at_ms, number, behaviour = heapq.heappop(queue)
        if at_ms >= MINUTES * 60_000:
            return
        desk.now_ms = OPENING_MS + at_ms
        wait_s = next(behaviour, None)
        if wait_s is not None:
            heapq.heappush(queue, (at_ms + int(wait_s * 1000), number, behaviour))
