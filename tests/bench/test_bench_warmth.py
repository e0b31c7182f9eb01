"""Tests of when a server counts as warm, and which bounds end a warm-up that does not settle."""

from collections.abc import Iterable

import pytest

from bench.warmth import LEAST_SECONDS, MORE_PIECES, MORE_SECONDS, Warming, WarmUp, is_settled, warm


def warmed(rates: Iterable[float], least: int = 5, seconds: float = 1.0) -> Warming:
    """Warm up by pieces of these rates, each of which takes so many seconds."""
    warming, now, left = Warming("kafka", "one-message", "30,000 requests"), [0.0], iter(rates)

    def run_piece() -> dict[str, float]:
        now[0] += seconds
        return {"requests_s": next(left), "request_user_us": 1.0}

    plan = WarmUp(warming.piece, 0.6, ("requests_s",), least)
    warm(warming, plan, run_piece, clock=lambda: now[0])
    return warming


@pytest.mark.parametrize(
    ("values", "settled"),
    [
        ([100.0] * 4, False),
        ([100.0] * 5, True),
        ([10.0, 95.0, 100.0, 105.0, 100.0, 100.0], True),
        ([94.0, 100.0, 100.0, 100.0, 100.0], False),
        ([100.0, 100.0, 100.0, 100.0, 106.0], False),
    ],
)
def test_five_in_a_row_within_five_percent_of_their_median(values: list[float], settled: bool) -> None:
    assert is_settled(values) is settled


def test_a_server_that_gets_faster_is_warmed_until_it_no_longer_does() -> None:
    warming = warmed([40.0, 60.0, 70.0, 80.0, 90.0, 98.0, 100.0, 101.0, 102.0, 100.0, 99.0])
    assert warming.settled
    assert warming.pieces == 10
    assert warming.seconds == 10.0
    assert warming.spread_percent == pytest.approx(2.0)


def test_no_fewer_pieces_than_there_must_be() -> None:
    assert warmed([100.0] * 50, least=10).pieces == 10


def test_a_machine_that_is_never_quiet_ends_the_warm_up_at_a_bound() -> None:
    unsteady = [100.0, 200.0] * 100
    by_count = warmed(unsteady, seconds=0.1)
    assert not by_count.settled
    assert by_count.pieces == 5 + MORE_PIECES
    by_time = warmed(unsteady, seconds=2.0)
    assert not by_time.settled
    assert by_time.seconds == pytest.approx(5 * 2.0 + MORE_SECONDS, abs=2.0)


def test_a_server_that_does_not_compile_has_what_there_must_be_and_no_more() -> None:
    warming = Warming("redis", "one-message", "30,000 requests", has_to_settle=False)
    rates = iter([100.0, 200.0] * 5)
    plan = WarmUp(warming.piece, 0.6, ("requests_s",), least=6)
    warm(warming, plan, lambda: {"requests_s": next(rates)}, clock=lambda: 0.0)
    assert (warming.pieces, warming.settled, warming.outcome) == (6, False, "")


def test_slow_pieces_are_not_repeated_as_often_as_there_must_be() -> None:
    warming = warmed([100.0] * 100, least=50, seconds=LEAST_SECONDS / 8)
    assert warming.settled
    assert warming.pieces == 8


def test_all_figures_must_settle() -> None:
    rates = iter([100.0, 200.0, 100.0, 100.0, 100.0, 100.0, 100.0])
    warming = Warming("kafka", "bulk-1k", "half the load")
    plan = WarmUp(warming.piece, 0.5, ("produce_mb_s", "consume_mb_s"))
    warm(warming, plan, lambda: {"produce_mb_s": 1.0, "consume_mb_s": next(rates)}, clock=lambda: 0.0)
    assert warming.settled
    assert warming.pieces == 7


def test_a_warm_up_whose_first_piece_failed_can_be_shown() -> None:
    warming = Warming("kafka", "bulk-1k", "half the load", values={"produce_mb_s": []})
    assert (warming.pieces, warming.spread_percent, warming.settled) == (0, 0.0, False)
