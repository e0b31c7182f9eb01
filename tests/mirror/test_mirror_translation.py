"""Translated offsets never skip a record, and repeat no more than is promised: beside a copy that is known record by
record."""

import random
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from odradek.mirror.position import NO_TARGET, Copy, Position, decode_key, encode_key, slot_of
from odradek.mirror.translation import to_source, to_target


@dataclass
class World:
    """A source with gaps, and a copy of it with markers and aborted attempts."""

    rng: random.Random
    gaps: float = 0.0  # of the source's offsets
    aborts: float = 0.0  # of transactions
    origin: int = 0
    places: list[tuple[int, int]] = field(default_factory=list)  # source and target offset of each record
    kept: dict[str, Position] = field(default_factory=dict)
    others: list[int] = field(default_factory=list)  # target offsets that are no records
    number: int = 0

    def __post_init__(self) -> None:
        self.next, self.end = self.origin, self.rng.choice([0, 3])
        self.others += range(self.end)

    def first_at_source(self, offset: int) -> int:
        """The number of the first record at the source's offset, or after it."""
        return bisect_left(self.places, offset, key=lambda place: place[0])

    def first_at_target(self, offset: int) -> int:
        return bisect_left(self.places, offset, key=lambda place: place[1])

    def transact(self) -> None:
        begin, count = self.next, self.rng.randrange(1, 30)
        if self.rng.random() < self.aborts:
            lost = self.rng.randrange(0, 20)
            self.others += range(self.end, self.end + lost)
            self.end += lost
        target, records = self.end, 0
        for offset in range(begin, begin + count):
            if self.rng.random() >= self.gaps:
                self.places.append((offset, self.end))
                self.end, records = self.end + 1, records + 1
        self.number, self.next = self.number + 1, begin + count
        said = target if records and self.rng.random() > 0.1 else NO_TARGET
        self.kept[slot_of(self.number)] = Position(
            "s", "t", begin, self.next, said, records, len(self.places), self.number, self.origin
        )
        self.others.append(self.end)  # the marker
        self.end += 1


WORLDS = [
    pytest.param(gaps, aborts, id=f"gaps {gaps}, aborted {aborts}")
    for gaps, aborts in [(0.0, 0.0), (0.0, 0.3), (0.2, 0.0), (0.5, 0.5)]
]


@pytest.mark.parametrize(("gaps", "aborts"), WORLDS)
@pytest.mark.parametrize("seed", range(5))
def test_no_record_is_skipped_in_either_direction(seed, gaps, aborts):
    world = World(random.Random(seed), gaps, aborts, origin=seed * 7)
    for _ in range(random.Random(seed).randrange(1, 300)):
        world.transact()
    positions = list(world.kept.values())
    for offset in range(world.origin, world.next + 3):
        response = to_target(positions, offset) or 0
        assert world.first_at_target(response) <= world.first_at_source(offset), (
            f"{offset} becomes {response}"
        )
    for offset in range(world.end + 3):
        response = to_source(positions, offset) or world.origin
        assert world.first_at_source(response) <= world.first_at_target(offset), (
            f"{offset} becomes {response}"
        )


@pytest.mark.parametrize(("gaps", "aborts"), WORLDS)
def test_few_records_are_repeated(gaps, aborts):
    """One for each offset between two kept positions that is not a record, on either side."""
    world = World(random.Random(5), gaps, aborts)
    for _ in range(300):
        world.transact()
    positions = sorted(
        (one for one in world.kept.values() if one.target != NO_TARGET), key=lambda one: one.number
    )
    sources, others = {one for one, _ in world.places}, set(world.others)
    for offset in range(positions[-1].next):
        repeated = world.first_at_source(offset) - world.first_at_target(to_target(positions, offset) or 0)
        low = max((one.target_next for one in positions if one.next <= offset), default=0)
        high = min(one.begin if one.begin > offset else one.next for one in positions if one.next > offset)
        at = world.first_at_source(offset)
        true = world.places[at][1] if at < len(world.places) else world.end
        missing = sum(one not in sources for one in range(offset, high))
        assert repeated <= missing + sum(one in others for one in range(low, true))


def test_without_gaps_the_last_eight_transactions_repeat_nothing():
    rng = random.Random(3)
    world = World(rng)
    for _ in range(1000):
        world.transact()
    positions = list(world.kept.values())
    recent = [one for one in positions if one.number > 993 and one.target != NO_TARGET]
    assert recent
    for position in recent:
        for offset in range(position.begin, position.next):
            response = to_target(positions, offset)
            assert world.first_at_target(response or 0) == world.first_at_source(offset)


def test_few_positions_are_kept_of_many():
    kept = {slot_of(number): number for number in range(1, 1_000_001)}
    assert len(kept) < 85
    assert set(range(999_993, 1_000_001)) <= set(kept.values()), "the last eight"
    ages = sorted(1_000_000 - number for number in kept.values())
    assert all(later <= 2 * max(earlier, 8) for earlier, later in pairwise(ages))


def test_keys_are_read_as_they_were_written():
    copy = Copy("west", "orders", 3)
    assert decode_key(encode_key(copy, 12)) == (copy, slot_of(12))
