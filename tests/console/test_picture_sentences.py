"""Tests of the changes that the picture tells."""

from dataclasses import replace

from odradek.console.picture.asking import MOST_MISSED, waiting_groups
from odradek.console.picture.scene import (
    BrokerScene,
    ConsumerScene,
    GroupScene,
    PartitionScene,
    ReplicaScene,
    Scene,
)
from odradek.console.picture.sentences import changes, partitions_named


def partition(number: int, leader: int | None, isr: tuple[int, ...]) -> PartitionScene:
    replicas = tuple(ReplicaScene(one, one == leader, one in isr, True) for one in (1, 2, 3))
    return PartitionScene(number, leader, replicas)


def group(**reads: tuple[int, ...]) -> GroupScene:
    members = tuple(ConsumerScene(f"id-{name}", name, numbers) for name, numbers in reads.items())
    return GroupScene("readers", "Stable" if members else "Empty", members)


BROKERS = tuple(BrokerScene(one, True, one == 1) for one in (1, 2, 3))
WELL = Scene("orders", BROKERS, tuple(partition(one, one + 1, (1, 2, 3)) for one in range(3)))


def told(before: Scene, after: Scene) -> list[str]:
    return [one.text for one in changes(before, after, 0)]


def test_nothing_changed() -> None:
    assert told(WELL, WELL) == []


def test_a_broker_dies_and_comes_back() -> None:
    brokers = (BrokerScene(1, False), BrokerScene(2, True, True), BrokerScene(3, True))
    parts = (partition(0, 2, (2, 3)), partition(1, 2, (2, 3)), partition(2, 3, (2, 3)))
    broken = replace(WELL, brokers=brokers, partitions=parts)
    assert told(WELL, broken) == [
        "broker 1 is away",
        "broker 2 is the active controller now",
        "broker 2 leads partition 0 now, after broker 1",
        "broker 1 fell out of sync in partitions 0, 1 and 2",
    ]
    assert told(broken, WELL) == [
        "broker 1 is back",
        "broker 1 is the active controller now",
        "broker 1 leads partition 0 now, after broker 2",
        "broker 1 is in sync in partitions 0, 1 and 2",
    ]
    assert [one.is_bad for one in changes(WELL, broken, 0)] == [True, False, False, True]


def test_a_partition_loses_its_last_leader() -> None:
    lost = replace(WELL, partitions=(partition(0, None, ()), *WELL.partitions[1:]))
    assert told(WELL, lost)[0] == "partition 0 of orders has no leader: no replica that is in sync is left"
    assert "broker 1 leads partition 0, which had no leader" in told(lost, WELL)


def test_a_group_rebalances() -> None:
    three = replace(WELL, groups=(group(a=(0,), b=(1,), c=(2,)),))
    two = replace(WELL, groups=(group(a=(0, 1), c=(2,)),))
    assert told(WELL, three) == ["group readers reads it, with 3 members"]
    assert told(three, two) == ["b left group readers", "a of group readers reads partition 1 now"]
    assert told(two, three) == ["b joined group readers", "b of group readers reads partition 1 now"]
    assert told(two, replace(WELL, groups=(group(),)))[-1] == "group readers has no members left"
    assert told(three, WELL) == ["group readers no longer reads it"]


def test_other_partitions_of_a_topic_are_no_change() -> None:
    further = replace(WELL, partitions=tuple(partition(one, 1, (1,)) for one in range(12, 15)))
    assert told(WELL, further) == []


def test_many_partitions_are_named_by_their_number() -> None:
    assert partitions_named([2]) == "partition 2"
    assert partitions_named([1, 0]) == "partitions 0 and 1"
    assert partitions_named(range(10)) == "partitions 0, 1, 2, 3 and 6 more"


def test_a_group_whose_coordinator_dies_waits_for_another() -> None:
    led = replace(group(a=(0, 1, 2)), coordinator=1)
    before = replace(WELL, groups=(led,))
    (waiting,) = waiting_groups(before, set(), {2, 3})
    assert waiting_groups(before, set(), {1, 2, 3}) == [], "it is gone, not its coordinator"
    assert waiting_groups(before, {"readers"}, {2, 3}) == []
    without = replace(WELL, groups=(waiting,))
    assert told(before, without) == ["group readers waits for a coordinator, after broker 1"]
    assert told(without, replace(WELL, groups=(replace(led, coordinator=3),))) == [
        "broker 3 coordinates group readers now"
    ]
    for _ in range(MOST_MISSED):
        without = replace(WELL, groups=tuple(waiting_groups(without, set(), {2, 3})))
    assert without.groups == (), "nobody waits for ever"
