"""Events between two looks at a cluster, in sentences. Pure. Many changes of one cause are one event."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from odradek.admin.status import ClusterStatus
from odradek.console.watch.seen import Event, GroupSeen, TopicSeen, Topology
from odradek.wording import count_of, some

REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def topology_events(before: Topology, after: Topology, now_ms: int) -> list[Event]:
    return [Event(now_ms, text, is_bad) for text, is_bad in _changes(before, after)]


def _changes(before: Topology, after: Topology) -> Iterator[tuple[str, bool]]:
    yield from _broker_changes(before, after)
    if before.controller != after.controller and after.controller is not None:
        yield f"controller {after.controller} is active, after {_or_none(before.controller)}", False
    yield from _topic_changes(before.topics, after.topics)
    yield from _partition_changes(before.topics, after.topics)


def _broker_changes(before: Topology, after: Topology) -> Iterator[tuple[str, bool]]:
    was, now = alive_brokers(before.status), alive_brokers(after.status)
    for broker in sorted(was - now):
        count = sum(broker in replicas for topic in after.topics.values() for replicas in topic.replicas)
        yield f"broker {broker} left; {count_of(count, 'partition')} affected", True
    for broker in sorted(now - was):
        yield f"broker {broker} joined", False


def alive_brokers(status: ClusterStatus) -> set[int]:
    return {one.broker for one in status.brokers if not one.is_fenced}


def _topic_changes(
    before: Mapping[str, TopicSeen], after: Mapping[str, TopicSeen]
) -> Iterator[tuple[str, bool]]:
    for verb, names in (("created", after.keys() - before.keys()), ("deleted", before.keys() - after.keys())):
        if names:
            noun = "topic" if len(names) == 1 else f"{len(names)} topics:"
            yield f"{verb} {noun} {some(sorted(names), 3)}", False


def _partition_changes(
    before: Mapping[str, TopicSeen], after: Mapping[str, TopicSeen]
) -> Iterator[tuple[str, bool]]:
    led: Counter[int] = Counter()
    shrunk: Counter[int] = Counter()
    grown: Counter[int] = Counter()
    lost = 0
    for name, topic in after.items():
        old = before.get(name)
        if old is None or old == topic:
            continue
        for was, now in zip(old.leaders, topic.leaders, strict=False):
            if was != now and now is not None:
                led[now] += 1
            lost += was is not None and now is None
        for was_isr, isr in zip(old.isr, topic.isr, strict=False):
            if was_isr != isr:
                shrunk.update(set(was_isr) - set(isr))
                grown.update(set(isr) - set(was_isr))
    if lost:
        yield f"{count_of(lost, 'partition')} lost the last replica that could lead", True
    for broker, count in sorted(led.items()):
        yield f"broker {broker} became the leader of {count_of(count, 'partition')}", False
    for broker, count in sorted(shrunk.items()):
        yield f"broker {broker} fell out of sync in {count_of(count, 'partition')}", True
    for broker, count in sorted(grown.items()):
        yield f"broker {broker} is in sync again in {count_of(count, 'partition')}", False


def group_events(before: Mapping[str, GroupSeen], after: Mapping[str, GroupSeen], now_ms: int) -> list[Event]:
    found = []
    for name, group in after.items():
        old = before.get(name)
        if old is not None and old.state != group.state:
            if group.state in REBALANCING:
                found.append(Event(now_ms, f"group {name} is rebalancing"))
            elif group.state == "Empty":
                found.append(Event(now_ms, f"group {name} has no members left", True))
            elif group.state == "Stable":
                found.append(Event(now_ms, f"group {name} is stable"))
    return _aggregated(found, now_ms)


def _aggregated(events: Iterable[Event], now_ms: int) -> list[Event]:
    events = list(events)
    if len(events) <= 5:
        return events
    return [
        Event(now_ms, f"{count_of(len(events), 'group')} changed their state", any(e.is_bad for e in events))
    ]


def _or_none(number: int | None) -> str:
    return "none" if number is None else str(number)
