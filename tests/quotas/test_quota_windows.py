"""The sampled rate against a dumb oracle that keeps every event, and the time that a client has to be silent."""

from random import Random

import pytest

from odradek.quotas.bucket import TokenBucket
from odradek.quotas.windows import Rate


class Samples:
    """Kafka's own way of counting: a ring of samples, which are reset and used again."""

    def __init__(self, count: int, window_ms: int) -> None:
        self.count, self.window_ms, self.at = count, window_ms, 0
        self.samples: list[list[float]] = []  # began, last event, sum

    def record(self, value: float, now: int) -> None:
        if not self.samples:
            self.samples.append([now, now, 0.0])
        sample = self.samples[self.at]
        if now - sample[0] >= self.window_ms:
            self.at = (self.at + 1) % (self.count + 1)
            if self.at >= len(self.samples):
                self.samples.append([now, now, 0.0])
            sample = self.samples[self.at]
            sample[:] = [now, now, 0.0]
        sample[2] += value
        sample[1] = now

    def measure(self, now: int) -> tuple[float, int]:
        for sample in self.samples:
            if now - sample[1] >= self.count * self.window_ms:
                sample[:] = [now, now, 0.0]
        began = min((sample[0] for sample in self.samples), default=now)
        elapsed = now - began
        full = int(elapsed // self.window_ms)
        if full < self.count - 1:
            elapsed += (self.count - 1 - full) * self.window_ms
        return sum(sample[2] for sample in self.samples) * 1000 / max(elapsed, 1), int(max(elapsed, 1))


@pytest.mark.parametrize("seed", range(200))
def test_rates_are_those_of_kafkas_samples(seed: int) -> None:
    rng = Random(seed)
    count, window_ms = rng.choice([1, 2, 3, 11]), rng.choice([100, 1000])
    rate, samples, now = Rate(count, window_ms), Samples(count, window_ms), rng.randrange(10_000)
    for _ in range(200):
        now += rng.choice([0, 1, rng.randrange(window_ms), window_ms, rng.randrange(20 * window_ms)])
        value = rng.choice([1, 1000, 0.5, rng.randrange(10**6)])
        rate.record(value, now)
        samples.record(value, now)
        if rng.random() < 0.7:
            expected, elapsed_ms = samples.measure(now)
            assert rate.measure(now) == (pytest.approx(expected), elapsed_ms)
            limit = rng.choice([1, 1000, 10**5])
            silence = round((expected - limit) / limit * elapsed_ms) if expected > limit else 0
            assert rate.throttle_ms(limit, now) == silence


def test_a_client_that_was_silent_may_use_what_it_has_not_used() -> None:
    rate = Rate(11, 1000)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0  # ten windows at once
    rate.record(500, 0)
    assert rate.throttle_ms(1000, 0) == 500
    assert rate.throttle_ms(1000, 20_000) == 0


def test_what_is_taken_back_does_not_count() -> None:
    rate = Rate(11, 1000)
    rate.record(50_000, 0)
    rate.record(-50_000, 0)
    assert rate.measure(0)[0] == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_client_that_obeys_stays_near_its_limit(seed: int) -> None:
    """Over three times all windows: a burst is followed by silence, until all of its windows are past."""
    rng = Random(seed)
    rate, now, limit, counted = Rate(11, 1000), 0, 100_000, 0
    while now < 55_000:
        size = rng.randrange(1000, 10_000)
        rate.record(size, now)
        if now >= 22_000:
            counted += size
        now += rng.randrange(20) + rate.throttle_ms(limit, now)
    assert counted / 33 == pytest.approx(limit, rel=0.1)


def test_a_bucket_is_full_at_first_may_be_overdrawn_once_and_fills_at_its_limit() -> None:
    bucket = TokenBucket(burst_seconds=11)
    assert bucket.refill(2.0, 5_000) == 22
    bucket.take(30)
    assert bucket.throttle_ms(2.0) == 4000
    assert bucket.refill(2.0, 7_000) == -4
    assert bucket.refill(2.0, 9_000) == 0 and bucket.throttle_ms(2.0) == 0
    assert bucket.refill(2.0, 3_600_000) == 22
