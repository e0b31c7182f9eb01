"""Describes for the log what it meant that a broker left, or came back: how many partitions, and the first few names.

A broker that stops changes hundreds of partitions. An operator wants one line that says what the cluster has lost by
it: which partitions changed leaders, which now refuse writes, and which cannot be used at all. Pure: it compares the
image before the change with the one after it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from odradek.config.broker import BrokerConfig
from odradek.controller.elections import rules_of
from odradek.metadata.image import NO_LEADER, Broker, MetadataImage, Partition
from odradek.wording import count_of, some

NAMES_SHOWN = 3


class Arrived(NamedTuple):
    broker_id: int
    led: list[str]  # partitions that have a leader again

    def __str__(self) -> str:
        text = f"broker {self.broker_id} is active"
        if not self.led:
            return text
        names = some(self.led, NAMES_SHOWN)
        return f"{text}: {count_of(len(self.led), 'partition')} without a leader got one ({names})"


class Departed(NamedTuple):
    broker_id: int
    reason: str  # in brackets, or empty if it left without notice
    is_expected: bool
    moved: int  # partitions that it led, and another broker leads now
    refusing: list[str]  # partitions whose ISR fell below the minimum
    leaderless: list[str]  # partitions that it was the last to lead

    def __str__(self) -> str:
        parts = [f"{count_of(self.moved, 'partition')} changed leaders"] if self.moved else []
        for names, what in ((self.refusing, "under min ISR"), (self.leaderless, "without a leader")):
            if names:
                count = f"{len(names):,}" if parts else count_of(len(names), "partition")
                parts.append(f"{count} {what} ({some(names, NAMES_SHOWN)})")
        return f"broker {self.broker_id} left{self.reason}: {', '.join(parts) or 'no partition changed its leader'}"


def has_left(before: Broker | None, after: Broker | None) -> bool:
    return before is not None and before.is_active and (after is None or not after.is_active)


def has_arrived(before: Broker | None, after: Broker | None) -> bool:
    return after is not None and after.is_active and (before is None or not before.is_active)


def departed(before: MetadataImage, after: MetadataImage, config: BrokerConfig, broker_id: int) -> Departed:
    """`before` is the last image in which the broker was active."""
    broker = after.brokers.get(broker_id)
    is_expected = broker is None or broker.in_controlled_shutdown
    reason = ""
    if is_expected:
        reason = " (it was removed)" if broker is None else " (it is stopping)"
    moved = 0
    refusing: list[str] = []
    leaderless: list[str] = []
    for name, was, now, min_isr in _changed_partitions(before, after, config):
        if broker_id not in was.isr:
            continue
        if now.leader == NO_LEADER:
            leaderless += [name] if was.leader == broker_id else []
            continue
        moved += was.leader == broker_id != now.leader
        if len(now.isr) < min_isr <= len(was.isr):
            refusing.append(name)
    return Departed(broker_id, reason, is_expected, moved, refusing, leaderless)


def arrived(before: MetadataImage, after: MetadataImage, config: BrokerConfig, broker_id: int) -> Arrived:
    """`before` is the last image in which the broker was not active."""
    led = [
        name
        for name, was, now, _ in _changed_partitions(before, after, config)
        if was.leader == NO_LEADER and now.leader == broker_id
    ]
    return Arrived(broker_id, led)


def _changed_partitions(
    before: MetadataImage, after: MetadataImage, config: BrokerConfig
) -> Iterator[tuple[str, Partition, Partition, int]]:
    """Name, before, after and the minimal ISR, of partitions that are in both images and differ."""
    for topic_id, topic in after.topics_by_id.items():
        earlier = before.topics_by_id.get(topic_id)
        if earlier is None or earlier is topic:
            continue
        min_isr = rules_of(after, topic, config).min_isr
        for index, now in topic.partitions.items():
            was = earlier.partitions.get(index)
            if was is not None and was is not now:
                yield f"{topic.name}-{index}", was, now, min_isr
