"""Elects the leader of a partition: one registration in, the next one out. Pure.

- The **in-sync replicas** (ISR) have everything committed. The leader is one of them.
- The **eligible leader replicas** (ELR, KIP-966) were in the ISR when it fell below `min.insync.replicas`. Nothing was
  committed since, so they have everything committed, too: while the ISR is empty, one of them may lead.
- The **last known leader** remains when both are empty, because every member was killed and may have lost what it had
  not synced. It leads again as soon as it is back, unless it is back without its disk. That is an unclean election, but
  it loses less than any other would.
- Any other replica is elected **uncleanly**, and the records that it does not have are lost. That happens only if the
  topic's `unclean.leader.election.enable` allows it, or an operator asks for it.

A leader that may still lead stays; otherwise the first replica that may lead is elected. Only a preferred election
tries the first replica before the current leader. Every election raises the leader epoch.

Any change may also complete a reassignment (`controller.reassignment`): the leader is then elected among the replicas
that remain.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigError
from odradek.config.topic_definitions import TOPIC_DEFINITIONS
from odradek.controller.reassignment import completed
from odradek.metadata.delta import CHANGEABLE_LISTS
from odradek.metadata.image import (
    LOST_DIRECTORY,
    NO_LEADER,
    MetadataImage,
    Partition,
    Topic,
    directory_for_new_logs,
)
from odradek.metadata.records import PartitionChangeRecord

RECOVERED, RECOVERING = 0, 1

MIN_ISR = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"


class Election(Enum):
    ONLINE = 0
    PREFERRED = 1
    UNCLEAN = 2


class Rules(NamedTuple):
    """From a topic's settings."""

    min_isr: int  # at most the number of replicas
    election: Election  # without an operator's request: ONLINE or UNCLEAN


def rules_of(image: MetadataImage, topic: Topic, config: BrokerConfig) -> Rules:
    overrides = image.topic_overrides(topic.name)
    # From the image, not from this node's configuration: all controllers must use the same value.
    min_isr = _first(MIN_ISR, (overrides, image.default_broker_overrides), config)
    is_unclean = _first(UNCLEAN_ELECTION, (overrides,), config)
    replicas = len(topic.partitions[0].replicas) if 0 in topic.partitions else 1
    return Rules(min(min_isr, replicas), Election.UNCLEAN if is_unclean else Election.ONLINE)


def _first(name: str, layers: Iterable[Mapping[str, str]], config: BrokerConfig) -> Any:
    """The value in the first layer that sets it, or the broker's default."""
    for layer in layers:
        if name in layer:
            try:
                return TOPIC_DEFINITIONS[name].parse(layer[name])
            except ConfigError:  # an earlier release allowed it
                continue
    return config.topic_defaults[name]


def next_registration(
    partition: Partition,
    active: Collection[int],
    min_isr: int,
    election: Election,
    *,
    isr: Sequence[int] | None = None,
    killed: int | None = None,
    leader_recovery_state: int | None = None,
    placed: Partition | None = None,
) -> Partition:
    """The next registration of a partition, except for its partition epoch. `active`: the brokers that may lead. `isr`:
    the new ISR, if it changes. `killed`: a replica that may have lost what it had not synced. `placed`: the same
    registration with the replicas that it gets, if they change."""
    new_isr = tuple(partition.isr if isr is None else isr)
    placed, new_isr = completed(placed or partition, new_isr)
    elr = _eligible(placed, new_isr, min_isr, killed)
    recovery_state = (
        partition.leader_recovery_state if leader_recovery_state is None else leader_recovery_state
    )
    leader, is_clean = _elect(placed, new_isr, elr, active, election)
    if not is_clean:
        new_isr, elr, recovery_state = (leader,), (), RECOVERING
    elif leader != NO_LEADER and leader not in new_isr:
        new_isr, elr = (leader,), tuple(replica for replica in elr if replica != leader)
    if len(new_isr) >= min_isr:
        elr = ()
    begins_epoch = leader != partition.leader or not set(partition.replicas) <= set(placed.replicas)
    return placed._replace(
        leader=leader,
        leader_epoch=partition.leader_epoch + begins_epoch,
        isr=new_isr,
        eligible_leader_replicas=elr,
        last_known_elr=_last_known_leader(placed, leader, new_isr),
        leader_recovery_state=recovery_state,
    )


def _eligible(
    partition: Partition, isr: tuple[int, ...], min_isr: int, killed: int | None
) -> tuple[int, ...]:
    """A replica that leaves the partition is not eligible."""
    if len(isr) >= min_isr:
        return ()
    candidates = dict.fromkeys((*partition.eligible_leader_replicas, *partition.isr))
    return tuple(
        replica
        for replica in candidates
        if replica in partition.replicas and replica not in isr and replica != killed
    )


def _elect(
    partition: Partition,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    active: Collection[int],
    election: Election,
) -> tuple[int, bool]:
    """The leader, and whether it has everything committed."""
    eligible = isr or elr
    candidates = (partition.leader, *partition.replicas)
    if election is Election.PREFERRED:
        candidates = (partition.replicas[0], *candidates)
    for replica in candidates:
        if replica in eligible and replica in active:
            return replica, True
    if not eligible and len(partition.last_known_elr) == 1:
        last_known = partition.last_known_elr[0]
        has_log = last_known in partition.replicas and not _has_lost_log(partition, last_known)
        if last_known in active and has_log:
            return last_known, False
    if election is Election.UNCLEAN:
        for replica in sorted(partition.replicas, key=partial(_has_lost_log, partition)):
            if replica in active:
                return replica, False
    return NO_LEADER, True


def _has_lost_log(partition: Partition, replica: int) -> bool:
    return partition.directory_of(replica) == LOST_DIRECTORY


def with_found_logs(image: MetadataImage, partition: Partition) -> Partition:
    """A replica that lost its log and is in sync again has a new one, where its broker puts new logs."""
    for replica in partition.isr:
        if _has_lost_log(partition, replica):
            directory = directory_for_new_logs(image.brokers[replica].directories)
            partition = partition.in_directory(replica, directory)
    return partition


def _last_known_leader(partition: Partition, leader: int, isr: tuple[int, ...]) -> tuple[int, ...]:
    """Known from when the ISR becomes empty until the partition has a leader again, or it is moved to other brokers."""
    if leader != NO_LEADER:
        return ()
    if isr:
        known = partition.last_known_elr
    elif partition.leader != NO_LEADER:
        known = (partition.leader,)
    else:
        known = partition.last_known_elr or partition.isr[:1]
    return tuple(replica for replica in known if replica in partition.replicas)


def change_record(
    topic_id: UUID, index: int, before: Partition, after: Partition
) -> PartitionChangeRecord | None:
    """The record that turns one registration into the next; None if they are equal."""
    if after == before:
        return None
    record = PartitionChangeRecord(index, topic_id)
    if after.leader_epoch != before.leader_epoch:
        record.leader = after.leader
    for name in CHANGEABLE_LISTS:
        if getattr(after, name) != getattr(before, name):
            setattr(record, name, list(getattr(after, name)))
    if after.leader_recovery_state != before.leader_recovery_state:
        record.leader_recovery_state = after.leader_recovery_state
    return record
