"""Warm a server: repeat pieces of a workload until five in a row are equally fast.

A Java machine goes on compiling for hundreds of thousands of requests, and only what it is asked to do: a broker that
has moved gigabytes is still cold for small requests. So every workload has a warm-up of its own kind, which says how
much of it there must be at least. All systems get that much; only those that compile while they run are then watched
until they settle.

A machine that is never quiet would be warmed for ever, so there are bounds in count and time. A warm-up that ended at
one of them has not settled, and the results say so.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.measure import Numbers

STEADY_PIECES = 5
WITHIN = 0.05  # of their median
LEAST_SECONDS = 240  # after which the least number of pieces is waived
MORE_SECONDS = 15  # to settle, once there were as many pieces as there must be
MORE_PIECES = 20


@dataclass(frozen=True)
class WarmUp:
    """The way in which a workload is warmed."""

    piece: str  # what one piece is, for the reader
    share: float  # of the workload, which makes a piece of it
    figures: tuple[str, ...]  # those that must settle
    least: int = STEADY_PIECES
    after: str = (
        ""  # the workload that must have been warmed before, because the server does the same for both
    )
    run: Callable[[Any, float], Numbers] | None = (
        None  # for a piece that is not a share of the workload itself
    )


@dataclass
class Warming:
    """The course of one warm-up. It is stored as it is."""

    system: str
    workload: str
    piece: str
    seconds: float = 0.0
    settled: bool = False
    values: dict[str, list[float]] = field(default_factory=dict)  # of each figure, by piece
    has_to_settle: bool = True  # or the least number of pieces is enough

    @property
    def outcome(self) -> str:
        return "NOT SETTLED" if self.has_to_settle and not self.settled else ""

    @property
    def pieces(self) -> int:
        return max(map(len, self.values.values()), default=0)

    @property
    def spread_percent(self) -> float:
        """The farthest of the last five from their median, over all figures."""
        return 100 * max(map(deviation, self.values.values()), default=0.0)

    def as_stored(self) -> dict[str, Any]:
        return asdict(self)


def deviation(values: Sequence[float]) -> float:
    """Return the largest distance of the last five from their median, as a share of it."""
    last = values[-STEADY_PIECES:]
    median = statistics.median(last) if last else 0.0
    return max(abs(value - median) for value in last) / median if median else 0.0


def is_settled(values: Sequence[float]) -> bool:
    return len(values) >= STEADY_PIECES and deviation(values) <= WITHIN


def warm(
    warming: Warming,
    plan: WarmUp,
    run_piece: Callable[[], Numbers],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run pieces until all figures have settled, or a bound is reached."""
    began, enough_at = clock(), None
    warming.values = {figure: [] for figure in plan.figures}
    while not warming.settled:
        numbers = run_piece()
        for figure, values in warming.values.items():
            values.append(numbers[figure])
        now = clock()
        warming.seconds = round(now - began, 1)
        if warming.pieces < plan.least and warming.seconds < LEAST_SECONDS:
            continue
        enough_at = now if enough_at is None else enough_at
        warming.settled = all(map(is_settled, warming.values.values()))
        if not warming.has_to_settle:
            break
        if now - enough_at >= MORE_SECONDS or warming.pieces >= plan.least + MORE_PIECES:
            break
