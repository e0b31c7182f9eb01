"""The rate of throttled replication, and when it is too high."""

from odradek.config.broker import BrokerConfig
from odradek.replication.quota import ReplicationQuota, new_quota


def quota_of(bytes_per_second: int, windows: int = 3, window_ms: int = 1000) -> ReplicationQuota:
    quota = ReplicationQuota(windows, window_ms)
    quota.bytes_per_second = bytes_per_second
    return quota


def test_without_a_limit_nothing_is_too_much() -> None:
    quota = ReplicationQuota()
    quota.record(1 << 60, 0)
    assert not quota.is_exceeded(0)


def test_nothing_that_was_counted_is_no_rate() -> None:
    quota = quota_of(0)
    assert quota.rate(0) == quota.rate(1_000_000) == 0
    assert not quota.is_exceeded(0)


def test_the_first_window_counts_as_a_whole() -> None:
    """Otherwise the first bytes would come at an endless rate."""
    quota = quota_of(100)
    quota.record(100, 5000)
    assert quota.rate(5000) == quota.rate(5500) == quota.rate(6000) == 100
    assert not quota.is_exceeded(5000), "the limit is reached, not exceeded"
    quota.record(1, 5000)
    assert quota.is_exceeded(5000)


def test_the_rate_falls_with_time() -> None:
    quota = quota_of(100)
    quota.record(250, 0)
    assert quota.is_exceeded(2499)
    assert not quota.is_exceeded(2500)


def test_windows_add_up_from_the_beginning_of_the_first() -> None:
    quota = quota_of(100)
    for now_ms in (0, 500, 1000, 1500, 2000):
        quota.record(100, now_ms)
    assert quota.rate(2000) == 250
    assert quota.rate(2500) == 200


def test_a_window_is_forgotten_once_nothing_was_counted_in_it_for_all_of_the_time() -> None:
    quota = quota_of(100)
    quota.record(900, 0)
    quota.record(90, 1000)
    assert quota.rate(2999) == 990 * 1000 / 2999
    assert quota.rate(3000) == 90 * 1000 / 2000, "that at 0 is gone"
    assert quota.rate(4000) == 0


def test_a_window_that_is_past_in_part_counts_from_its_beginning() -> None:
    quota = quota_of(100)
    for second in range(10):
        quota.record(50, second * 1000)
        quota.record(50, second * 1000 + 900)
    assert quota.rate(9800) == 400 * 1000 / 3800
    assert quota.rate(9900) == 300 * 1000 / 2900


def test_the_limit_may_change_at_any_time() -> None:
    quota = quota_of(100)
    quota.record(1000, 0)
    assert quota.is_exceeded(0)
    quota.bytes_per_second = 1000
    assert not quota.is_exceeded(0)


def test_the_windows_are_configured() -> None:
    settings = {"replication.quota.window.num": "2", "replication.quota.window.size.seconds": "5"}
    quota = new_quota(BrokerConfig(settings))
    quota.record(5000, 0)
    assert (quota.rate(5000), quota.rate(9999), quota.rate(10_000)) == (1000, 5000 / 9.999, 0)
