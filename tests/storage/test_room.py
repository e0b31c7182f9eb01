"""Tests of when a disk has room for users' records, and when it has not."""

import pytest

from odradek.storage.disk.room import DISTRUST_SECONDS, Level, Room

TOTAL = 1_000_000
RESERVE = 10_000


@pytest.fixture
def room() -> Room:
    return Room(RESERVE)


def look(room: Room, free: int, now: float = 0.0) -> Level:
    room.look(TOTAL, free, now)
    return room.level


def test_below_the_reserve_it_is_full(room: Room) -> None:
    assert look(room, 500_000) is Level.PLENTY
    assert look(room, RESERVE) is Level.LOW
    assert look(room, RESERVE - 1) is Level.FULL


def test_it_stays_full_until_a_probe_succeeds_at_twice_the_reserve(room: Room) -> None:
    look(room, 0)
    for free in (RESERVE, 2 * RESERVE - 1):
        assert look(room, free) is Level.FULL
        assert not room.wants_probe(0.0)
    assert look(room, 2 * RESERVE) is Level.FULL
    assert room.wants_probe(0.0)
    room.probe_succeeded(0.0)
    assert room.level is Level.LOW
    assert look(room, 6 * RESERVE) is Level.PLENTY


def test_it_is_full_at_once_again_after_a_probe(room: Room) -> None:
    look(room, 0)
    look(room, 2 * RESERVE)
    room.probe_succeeded(0.0)
    assert look(room, RESERVE - 1) is Level.FULL


def test_a_small_disk_keeps_a_twentieth_in_reserve() -> None:
    room = Room(256 << 20)
    room.look(1000, 50, 0.0)
    assert (room.reserve, room.level) == (50, Level.LOW)
    room.look(1000, 49, 0.0)
    assert room.level is Level.FULL


def test_a_write_that_failed_makes_it_full_whatever_seems_to_be_free(room: Room) -> None:
    look(room, 500_000, 100.0)
    room.write_failed(100.0)
    assert look(room, 500_000, 100.1) is Level.FULL
    assert not room.wants_probe(100.0 + DISTRUST_SECONDS - 0.1), "or it would lead, fail and leave in turns"
    assert room.wants_probe(100.0 + DISTRUST_SECONDS)


def test_without_a_reserve_only_a_write_that_fails_makes_it_full() -> None:
    room = Room(0)
    assert look(room, 0) is Level.PLENTY
    room.write_failed(0.0)
    assert room.level is Level.FULL
    assert room.wants_probe(DISTRUST_SECONDS)


def test_the_last_two_minutes_are_warned_of(room: Room) -> None:
    """5,000 bytes a second: 600,000 bytes above the reserve last for 120 s."""
    free = 900_000
    for second in range(100):
        now = float(second)
        level = look(room, free - 5_000 * second, now)
        left = room.seconds_left(now)
        above = free - 5_000 * second - RESERVE
        if second >= 3:
            assert left == pytest.approx(above / 5_000)
        assert (level is Level.LOW) is (second >= 3 and above < 600_000)


def test_a_disk_that_is_not_written_to_lasts_for_ever(room: Room) -> None:
    for second in range(60):
        assert look(room, 500_000 + second, float(second)) is Level.PLENTY
    assert room.seconds_left(60.0) is None


def test_one_large_write_is_forgotten(room: Room) -> None:
    assert look(room, 900_000, 0.0) is Level.PLENTY
    assert [look(room, 300_000, float(second)) for second in range(3, 30)] == [Level.LOW] * 27
    assert look(room, 300_000, 35.0) is Level.PLENTY


def test_it_is_looked_at_more_often_where_little_is_left() -> None:
    room = Room(256 << 20)
    room.look(1 << 40, 1 << 38, 0.0)
    assert room.next_look_seconds == 1.0
    room.look(1 << 40, 1 << 30, 0.0)
    assert 0.1 < room.next_look_seconds < 1.0
    room.look(1 << 40, 0, 0.0)
    assert room.next_look_seconds == 0.1
