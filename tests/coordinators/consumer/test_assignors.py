"""The assignors: valid, balanced and sticky, against oracles that try everything."""

import itertools
import random
from collections import Counter
from uuid import UUID

import pytest

from odradek.coordinators.consumer.assignment import Partitions
from odradek.coordinators.consumer.assignors import MemberSpec, assign_range, assign_uniform

FOO, BAR, BAZ = (UUID(int=number) for number in (10, 20, 30))
TOPICS = [FOO, BAR, BAZ]


def spec(
    *topics: UUID, held: dict[UUID, set[int]] | None = None, instance_id: str | None = None
) -> MemberSpec:
    promised = {topic: frozenset(numbers) for topic, numbers in (held or {}).items() if numbers}
    return MemberSpec(frozenset(topics), promised, instance_id)


def flat(partitions: Partitions) -> set[tuple[UUID, int]]:
    return {(topic, number) for topic, numbers in partitions.items() for number in numbers}


def size(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


def check_valid(
    members: dict[str, MemberSpec], counts: dict[UUID, int], found: dict[str, Partitions]
) -> None:
    """Everybody has a response, of topics it reads; each partition that is read has one owner."""
    assert found.keys() == members.keys()
    for member_id, partitions in found.items():
        assert partitions.keys() <= members[member_id].topics
        assert all(partitions.values()), "no topic maps to an empty set"
    owners = Counter(partition for partitions in found.values() for partition in flat(partitions))
    read = frozenset().union(*(member.topics for member in members.values()))
    assert owners == Counter((topic, number) for topic in read for number in range(counts[topic]))


def moves(members: dict[str, MemberSpec], found: dict[str, Partitions]) -> int:
    """Partitions that a member was promised and now is not."""
    return sum(len(flat(member.promised) - flat(found[member_id])) for member_id, member in members.items())


def every_assignment(members: dict[str, MemberSpec], counts: dict[UUID, int]) -> list[dict[str, Partitions]]:
    partitions = [(topic, number) for topic in TOPICS for number in range(counts[topic])]
    choices = [
        [member_id for member_id, member in members.items() if topic in member.topics] or [None]
        for topic, _ in partitions
    ]
    found = []
    for owners in itertools.product(*choices):
        assignment: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
        for (topic, number), owner in zip(partitions, owners, strict=True):
            if owner is not None:
                held = assignment[owner]
                held[topic] = held.get(topic, frozenset()) | {number}
        found.append(assignment)
    return found


def unevenness(found: dict[str, Partitions]) -> int:
    return sum(size(partitions) ** 2 for partitions in found.values())


def random_group(
    rng: random.Random, member_count: int, counts: dict[UUID, int], alike: bool
) -> dict[str, MemberSpec]:
    """Members with random, disjoint promises, some of them for what they no longer read or what is gone."""
    common = frozenset(rng.sample(TOPICS, rng.randint(1, 3)))
    owners: dict[int, dict[UUID, set[int]]] = {index: {} for index in range(member_count)}
    for topic in TOPICS:
        for number in range(counts[topic] + 1):
            if rng.random() < 0.7:
                owners[rng.randrange(member_count)].setdefault(topic, set()).add(number)
    return {
        f"m{index}": spec(*(common if alike else rng.sample(TOPICS, rng.randint(1, 3))), held=owners[index])
        for index in range(member_count)
    }


# --- uniform ---


@pytest.mark.parametrize("alike", [True, False])
def test_uniform_is_valid_and_as_even_as_any_assignment_can_be(alike: bool) -> None:
    for seed in range(150):
        rng = random.Random(seed)
        counts = {topic: rng.randint(0, 3) for topic in TOPICS}
        members = random_group(rng, rng.randint(1, 3), counts, alike)
        found = assign_uniform(members, counts)
        check_valid(members, counts, found)
        best = min(map(unevenness, every_assignment(members, counts)))
        assert unevenness(found) == best, (seed, found)


def test_uniform_of_like_subscriptions_moves_as_little_as_any_even_assignment() -> None:
    for seed in range(150):
        rng = random.Random(seed)
        counts = {topic: rng.randint(0, 3) for topic in TOPICS}
        members = random_group(rng, rng.randint(1, 3), counts, alike=True)
        found = assign_uniform(members, counts)
        every = every_assignment(members, counts)
        best = min(map(unevenness, every))
        fewest = min(moves(members, each) for each in every if unevenness(each) == best)
        assert moves(members, found) == fewest, seed


def test_larger_groups_are_valid_and_even_and_settle_at_once() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        counts = {topic: rng.randint(0, 40) for topic in TOPICS}
        members = random_group(rng, rng.randint(1, 25), counts, alike=seed % 2 == 0)
        found = assign_uniform(members, counts)
        check_valid(members, counts, found)
        again = {
            member_id: MemberSpec(member.topics, found[member_id]) for member_id, member in members.items()
        }
        settled = assign_uniform(again, counts)
        assert all(settled[member_id] is found[member_id] for member_id in members), (
            "unchanged is the same object"
        )


def test_a_long_way_round_is_found() -> None:
    """a can only give to b, b only to c: 3, 2, 1 looks even step by step, and is not."""
    members = {
        "a": spec(FOO, held={FOO: {0, 1, 2}}),
        "b": spec(FOO, BAR, held={BAR: {0, 1}}),
        "c": spec(BAR, held={BAR: {2}}),
    }
    found = assign_uniform(members, {FOO: 3, BAR: 3})
    assert [size(found[member_id]) for member_id in "abc"] == [2, 2, 2]


def test_one_departure_changes_one_promise() -> None:
    counts = {FOO: 1_000}
    members = {f"m{index}": spec(FOO) for index in range(1_000)}
    found = assign_uniform(members, counts)
    left = {
        member_id: MemberSpec(member.topics, found[member_id])
        for member_id, member in members.items()
        if member_id != "m500"
    }
    after = assign_uniform(left, counts)
    check_valid(left, counts, after)
    assert sum(after[member_id] is not found[member_id] for member_id in left) == 1


def test_one_arrival_takes_only_its_share() -> None:
    counts = {FOO: 100, BAR: 20}
    members = {f"m{index}": spec(FOO, BAR) for index in range(5)}
    found = assign_uniform(members, counts)
    grown = {member_id: MemberSpec(frozenset([FOO, BAR]), found[member_id]) for member_id in members}
    grown["new"] = spec(FOO, BAR)
    after = assign_uniform(grown, counts)
    assert size(after["new"]) == 20 and moves(grown, after) == 20


def test_new_partitions_go_to_those_with_least() -> None:
    members = {"a": spec(FOO, held={FOO: {0, 1}}), "b": spec(FOO, held={FOO: {2}})}
    assert assign_uniform(members, {FOO: 4}) == {"a": {FOO: {0, 1}}, "b": {FOO: {2, 3}}}


def test_more_members_than_partitions() -> None:
    members = {f"m{index}": spec(FOO) for index in range(5)}
    found = assign_uniform(members, {FOO: 2})
    assert sorted(map(size, found.values())) == [0, 0, 0, 1, 1]


def test_nobody_and_nothing() -> None:
    assert assign_uniform({}, {}) == {}
    assert assign_range({}, {}) == {}
    assert assign_uniform({"a": spec(held={FOO: {0}})}, {}) == {"a": {}}
    assert assign_range({"a": spec(held={FOO: {0}})}, {}) == {"a": {}}


# --- range ---


def test_range_hands_out_neighbours_topic_by_topic() -> None:
    members = {"b": spec(FOO, BAR), "a": spec(FOO, BAR), "c": spec(BAR)}
    found = assign_range(members, {FOO: 3, BAR: 3})
    assert found == {"a": {FOO: {0, 1}, BAR: {0}}, "b": {FOO: {2}, BAR: {1}}, "c": {BAR: {2}}}


def test_range_puts_static_members_first_by_instance() -> None:
    members = {"a": spec(FOO), "y": spec(FOO, instance_id="i2"), "z": spec(FOO, instance_id="i1")}
    assert assign_range(members, {FOO: 3}) == {"z": {FOO: {0}}, "y": {FOO: {1}}, "a": {FOO: {2}}}


def test_range_is_valid_and_even_within_each_topic() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        counts = {topic: rng.randint(0, 12) for topic in TOPICS}
        members = random_group(rng, rng.randint(1, 6), counts, alike=seed % 2 == 0)
        found = assign_range(members, counts)
        check_valid(members, counts, found)
        for topic in TOPICS:
            sizes = [
                len(found[member_id].get(topic, ()))
                for member_id, member in members.items()
                if topic in member.topics
            ]
            assert not sizes or max(sizes) - min(sizes) <= 1
