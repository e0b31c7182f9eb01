"""The server-side assignors `uniform` and `range`: which member should read which partition.

Both are pure functions from the members (their subscriptions and previous target assignments) and the
partition counts to a new target for every member. They never look at the partitions that members have right now:
getting there is `member.reconcile`.

`uniform` balances first and moves as little as it can second. If all members subscribe to the same topics
the result is exact: sizes differ by at most one, and no assignment of that balance keeps more partitions
where they are. Kafka's own gives the larger shares to the first members; we give them to those that
already have that much, then to those that change anyway, so one departure affects few members. Different
subscriptions are handled by `balance`.

`range` is Kafka's: per topic, members in order (static ones first, by instance id) take neighbouring
partitions, so topics of equal size that all members read are split in the same way. It is not sticky.

A member whose target does not change keeps the same object. Racks are ignored, as in
Kafka 4.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from odradek.coordinators.consumer.assignment import Partitions
from odradek.coordinators.consumer.balance import balance_unlike

TopicPartitionId = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """The facts about a member that an assignor uses. Members with the same subscription share one `topics` object if
    possible.
    """

    topics: frozenset[UUID]
    promised: Partitions
    instance_id: str | None = None


MemberSpecs = Mapping[str, MemberSpec]
Assignor = Callable[[MemberSpecs, Mapping[UUID, int]], dict[str, Partitions]]


def assign_uniform(members: MemberSpecs, partition_counts: Mapping[UUID, int]) -> dict[str, Partitions]:
    subscriptions = iter({spec.topics for spec in members.values()})
    topics = next(subscriptions, frozenset[UUID]())
    if next(subscriptions, None) is None:
        return _balance_alike(members, {topic: partition_counts[topic] for topic in sorted(topics)})
    return balance_unlike(
        {member_id: (spec.topics, spec.promised) for member_id, spec in members.items()}, partition_counts
    )


def assign_range(members: MemberSpecs, partition_counts: Mapping[UUID, int]) -> dict[str, Partitions]:
    ordered = sorted(members, key=lambda member_id: _range_order(member_id, members[member_id]))
    readers: dict[UUID, list[str]] = {}
    for member_id in ordered:
        for topic in sorted(members[member_id].topics):
            readers.setdefault(topic, []).append(member_id)
    found: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic, topic_readers in readers.items():
        for member_id, start, end in _ranges(topic_readers, partition_counts[topic]):
            found[member_id][topic] = frozenset(range(start, end))
    return {member_id: _same_or(members[member_id].promised, new) for member_id, new in found.items()}


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR = "uniform"


def _range_order(member_id: str, spec: MemberSpec) -> tuple[bool, str]:
    return (spec.instance_id is None, spec.instance_id or member_id)


def _ranges(readers: list[str], partition_count: int) -> Iterator[tuple[str, int, int]]:
    share, extra = divmod(partition_count, len(readers))
    start = 0
    for index, member_id in enumerate(readers):
        end = start + share + (index < extra)
        if start == end:
            return
        yield member_id, start, end
        start = end


def _same_or(old: Partitions, new: Partitions) -> Partitions:
    return old if old == new else new


def _balance_alike(members: MemberSpecs, partition_counts: dict[UUID, int]) -> dict[str, Partitions]:
    if not members:
        return {}
    unclaimed = {topic: set(range(count)) for topic, count in partition_counts.items()}
    kept = {member_id: _claim(spec.promised, unclaimed) for member_id, spec in members.items()}
    sizes = {member_id: sum(map(len, kept[member_id].values())) for member_id in members}
    quotas = _quotas(sizes, sum(partition_counts.values()))
    pool = [(topic, partition) for topic, left in unclaimed.items() for partition in sorted(left)]
    for member_id, quota in quotas.items():
        if sizes[member_id] > quota:
            kept[member_id] = _give_up(kept[member_id], sizes[member_id] - quota, pool)
    hand_out = iter(pool)
    for member_id, quota in quotas.items():
        if sizes[member_id] < quota:
            kept[member_id] = _take(kept[member_id], quota - sizes[member_id], hand_out)
    return kept


def _claim(promised: Partitions, unclaimed: dict[UUID, set[int]]) -> Partitions:
    """The part of the old target that still exists and no other member had; it is removed from `unclaimed`."""
    claimed = {}
    for topic, partitions in promised.items():
        left = unclaimed.get(topic)
        if left is None:
            continue
        still = partitions if partitions <= left else partitions & left
        if still:
            claimed[topic] = still
            left -= still
    return _same_or(promised, claimed)


def _quotas(sizes: dict[str, int], partition_count: int) -> dict[str, int]:
    """Sizes to reach, in the members' order: larger shares to those that have one, then to those that
    change anyway.
    """
    share, extra = divmod(partition_count, len(sizes))
    large = [member_id for member_id, size in sizes.items() if size > share]
    small = [member_id for member_id, size in sizes.items() if size < share]
    exact = [member_id for member_id, size in sizes.items() if size == share]
    favoured = set([*large, *small, *exact][:extra])
    return {member_id: share + (member_id in favoured) for member_id in sizes}


def _give_up(partitions: Partitions, count: int, pool: list[TopicPartitionId]) -> Partitions:
    """Take `count` partitions away, the last ones first, and put them into the pool."""
    held = _listed(partitions)
    pool.extend(held[-count:])
    return _grouped(held[:-count])


def _take(partitions: Partitions, count: int, hand_out: Iterator[TopicPartitionId]) -> Partitions:
    taken = [found for _, found in zip(range(count), hand_out, strict=False)]
    assert len(taken) == count, "the quotas add up to the partitions"
    return _grouped([*_listed(partitions), *taken])


def _listed(partitions: Partitions) -> list[TopicPartitionId]:
    return [(topic, number) for topic in sorted(partitions) for number in sorted(partitions[topic])]


def _grouped(partitions: Iterable[TopicPartitionId]) -> Partitions:
    found: dict[UUID, set[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, set()).add(number)
    return {topic: frozenset(numbers) for topic, numbers in found.items()}
