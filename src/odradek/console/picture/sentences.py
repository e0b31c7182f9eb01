"""The changes between two scenes of a topic, told to somebody who watches. Pure."""

from collections.abc import Iterable, Iterator

from odradek.console.picture.scene import (
    NO_COORDINATOR,
    ConsumerScene,
    GroupScene,
    PartitionScene,
    Scene,
)
from odradek.console.watch.events import REBALANCING
from odradek.console.watch.seen import Event

NAMED = 4  # partitions in a sentence
Told = Iterator[tuple[str, bool]]


def changes(before: Scene, after: Scene, now_ms: int) -> list[Event]:
    return [Event(now_ms, text, is_bad) for text, is_bad in _changes(before, after)]


def _changes(before: Scene, after: Scene) -> Told:
    yield from _brokers(before, after)
    old = {one.partition: one for one in before.partitions}
    pairs = [(old[one.partition], one) for one in after.partitions if one.partition in old]
    yield from _leaders(after.topic, pairs)
    yield from _in_sync(pairs)
    groups = {one.group: one for one in before.groups}
    for group in after.groups:
        yield from _group(groups.get(group.group), group)
    for name in groups.keys() - {one.group for one in after.groups}:
        yield f"group {name} no longer reads it", False


def _brokers(before: Scene, after: Scene) -> Told:
    was = {one.broker: one for one in before.brokers}
    for one in after.brokers:
        old = was.get(one.broker)
        if old is None:
            yield f"broker {one.broker} has replicas now", False
        elif old.is_alive and not one.is_alive:
            yield f"broker {one.broker} is away", True
        elif one.is_alive and not old.is_alive:
            yield f"broker {one.broker} is back", False
        if old is not None and one.is_controller and not old.is_controller:
            yield f"broker {one.broker} is the active controller now", False


def _leaders(topic: str, pairs: list[tuple[PartitionScene, PartitionScene]]) -> Told:
    moved: dict[tuple[int | None, int | None], list[int]] = {}
    for was, now in pairs:
        if was.leader != now.leader:
            moved.setdefault((was.leader, now.leader), []).append(now.partition)
    for (old, new), numbers in moved.items():
        names = partitions_named(numbers)
        if new is None:
            verb = "has" if len(numbers) == 1 else "have"
            yield f"{names} of {topic} {verb} no leader: no replica that is in sync is left", True
        elif old is None:
            yield f"broker {new} leads {names}, which had no leader", False
        else:
            yield f"broker {new} leads {names} now, after broker {old}", False


def _in_sync(pairs: list[tuple[PartitionScene, PartitionScene]]) -> Told:
    lost: dict[int, list[int]] = {}
    gained: dict[int, list[int]] = {}
    for was, now in pairs:
        for broker in was.isr - now.isr:
            lost.setdefault(broker, []).append(now.partition)
        for broker in now.isr - was.isr:
            gained.setdefault(broker, []).append(now.partition)
    for broker, numbers in sorted(lost.items()):
        yield f"broker {broker} fell out of sync in {partitions_named(numbers)}", True
    for broker, numbers in sorted(gained.items()):
        yield f"broker {broker} is in sync in {partitions_named(numbers)}", False


def _group(before: GroupScene | None, after: GroupScene) -> Told:
    if before is None:
        yield f"group {after.group} reads it, with {len(after.consumers)} members", False
        return
    was = {one.member_id: one for one in before.consumers}
    now = {one.member_id: one for one in after.consumers}
    for member_id in was.keys() - now.keys():
        yield f"{was[member_id].name} left group {after.group}", False
    for member_id in now.keys() - was.keys():
        yield f"{now[member_id].name} joined group {after.group}", False
    if before.state != after.state:
        if after.state in REBALANCING:
            yield f"group {after.group} is rebalancing", False
        elif after.state == NO_COORDINATOR:
            yield f"group {after.group} waits for a coordinator, after broker {before.coordinator}", True
        elif after.state == "Empty":
            yield f"group {after.group} has no members left", False
    if before.coordinator != after.coordinator:
        yield f"broker {after.coordinator} coordinates group {after.group} now", False
    yield from _assignment(before, after, now.values())


def _assignment(before: GroupScene, after: GroupScene, consumers: Iterable[ConsumerScene]) -> Told:
    had = {number: one.member_id for number, one in before.readers().items()}
    for consumer in consumers:
        gained = [number for number in consumer.partitions if had.get(number) != consumer.member_id]
        if gained:
            yield f"{consumer.name} of group {after.group} reads {partitions_named(gained)} now", False


def partitions_named(numbers: Iterable[int]) -> str:
    """partition 0; partitions 0, 1 and 2; partitions 0, 1, 2, 3 and 6 more"""
    numbers = sorted(numbers)
    if len(numbers) == 1:
        return f"partition {numbers[0]}"
    shown = [str(one) for one in numbers[:NAMED]]
    if len(numbers) > NAMED:
        return f"partitions {', '.join(shown)} and {len(numbers) - NAMED} more"
    return f"partitions {', '.join(shown[:-1])} and {shown[-1]}"
