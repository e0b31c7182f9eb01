"""Elects a leader after all in-sync replicas of a partition were killed, by what brokers tell of their logs. Pure.

Nobody can know from one disk alone whether it is whole: a log that lost its end looks like a log that ended there. So
the election waits until `min.insync.replicas` of the last known members (`controller.elections`) are back: active
brokers that have told where their logs end, and in which leader epoch. A member whose log is known to be lost counts as
back, with nothing. Then the log with the highest last epoch leads, and of those with the same one the longest.

**Nothing committed is lost, though all but one of the logs that count were cut short.** Every last known member had
every committed record on disk when it died, and what it copied since came from a leader that had them, too. So each of
their logs is the beginning of a log that has them all, cut short or not. Let c be the leader epoch of the last
committed record, and A a log that is whole: its last epoch is at least c. The elected log W ends in the same epoch as
A, or in a later one.

- If W ends in an epoch after c, it has a record that comes after every committed one, and so it has them all.
- If W ends in c, so does A, and W is no shorter. One leader wrote all records of an epoch, so W has what A has: all.

A log without records has no last epoch. If it ends later than the log that would lead otherwise, it leads: only what is
committed is deleted, so it once had all records up to its end, and they are gone for good.

With `min.insync.replicas` m, at least one of m logs is whole as long as fewer than m were damaged. Members that count
may even be damaged without knowing it. A log whose broker knows that it is damaged (it ends before its recovery point)
is never elected here, and is named as lost in the metadata: if more logs are damaged than the promise covers, the
partition waits for another member, or for an operator's unclean election, which takes such a log last.

What a broker tells counts only while it is registered with the same broker epoch, and only in the current leader epoch
of the partition: then it knows that there is no leader whom it could still follow.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.controller.brokers import Records
from odradek.controller.elections import change_record, has_lost_log, next_registration, rules_of
from odradek.metadata.image import LOST_DIRECTORY, NO_LEADER, MetadataImage, Partition, Topic

NO_EPOCH = -1

PartitionId = tuple[UUID, int]  # topic id, partition


class LogEnd(NamedTuple):
    """A broker's report on one of its logs."""

    broker_epoch: int
    leader_epoch: int  # of the partition, as far as the broker knew
    last_epoch: int  # of the last record; NO_EPOCH if there is none
    end_offset: int
    is_damaged: bool = False


LogEnds = Mapping[int, LogEnd]  # by broker


def is_waiting(partition: Partition) -> bool:
    """Only the logs of its last known members can say who may lead."""
    return (
        partition.leader == NO_LEADER
        and not partition.isr
        and not partition.eligible_leader_replicas
        and bool(partition.last_known_elr)
        and len(partition.replicas) > 1
    )


def find_partition(image: MetadataImage, place: PartitionId) -> Partition | None:
    topic = image.topics_by_id.get(place[0])
    return None if topic is None else topic.partitions.get(place[1])


def members_to_ask(image: MetadataImage, partition: Partition, ends: LogEnds) -> list[int]:
    """The last known members that are active, and have not told the end of their log."""
    if not is_waiting(partition):
        return []
    return [
        member
        for member in partition.last_known_elr
        if _is_active(image, member)
        and not _is_gone(image, partition, member)
        and not _counts(image, partition, member, ends)
    ]


def members_missing(image: MetadataImage, partition: Partition, ends: LogEnds) -> list[int]:
    """The last known members that have not told anything, active or not."""
    return [
        member
        for member in partition.last_known_elr
        if not _is_gone(image, partition, member) and not _counts(image, partition, member, ends)
    ]


def elect_recovered(
    image: MetadataImage, config: BrokerConfig, told: Iterable[tuple[PartitionId, LogEnds]]
) -> Records:
    """The records that elect leaders where enough is known, and name logs as lost that are told to be damaged."""
    records: Records = []
    for (topic_id, index), ends in told:
        topic, before = image.topics_by_id.get(topic_id), find_partition(image, (topic_id, index))
        if topic is not None and before is not None and is_waiting(before):
            after = _next(image, config, topic, before, ends)
            record = change_record(topic_id, index, before, after)
            if record is not None:
                records.append(record)
    return records


def _next(
    image: MetadataImage, config: BrokerConfig, topic: Topic, partition: Partition, ends: LogEnds
) -> Partition:
    for member in partition.last_known_elr:
        if _counts(image, partition, member, ends) and ends[member].is_damaged:
            partition = partition.in_directory(member, LOST_DIRECTORY)
    rules = rules_of(image, topic, config)
    chosen = choose_leader(image, partition, rules.min_isr, ends)
    if chosen is None:
        return partition
    active = {broker.id for broker in image.active_brokers()}
    return next_registration(partition, active, *rules, recovered=chosen)


def choose_leader(image: MetadataImage, partition: Partition, min_isr: int, ends: LogEnds) -> int | None:
    """The last known member with the most of the log; None if that is not known yet."""
    known = partition.last_known_elr
    gone = [member for member in known if _is_gone(image, partition, member)]
    told = [member for member in known if member not in gone and _counts(image, partition, member, ends)]
    if len(gone) + len(told) < min(min_isr, len(known)) or not told:
        return None

    def order(member: int) -> tuple[int, int, int]:
        return ends[member].last_epoch, ends[member].end_offset, -partition.replicas.index(member)

    best = max(told, key=order)
    emptied = [member for member in told if ends[member].last_epoch == NO_EPOCH]
    return max([best, *emptied], key=lambda member: ends[member].end_offset)


def _is_gone(image: MetadataImage, partition: Partition, member: int) -> bool:
    """Its log is lost, or an operator has unregistered its broker: it counts as back, with nothing."""
    return has_lost_log(partition, member) or member not in image.brokers


def _counts(image: MetadataImage, partition: Partition, member: int, ends: LogEnds) -> bool:
    """It has told the end of its log, and that is still true."""
    end = ends.get(member)
    if end is None or not _is_active(image, member) or image.brokers[member].epoch != end.broker_epoch:
        return False
    return end.is_damaged or end.leader_epoch == partition.leader_epoch


def _is_active(image: MetadataImage, member: int) -> bool:
    broker = image.brokers.get(member)
    return broker is not None and broker.is_active
