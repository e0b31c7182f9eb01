"""Elects the leader of a partition: one registration in, the next one out. Pure.

- The **in-sync replicas** (ISR) have everything committed. The leader is one of them.
- The **eligible leader replicas** (ELR, KIP-966) were in the ISR when it fell below `min.insync.replicas`. Nothing was
  committed since, so they have everything committed, too: while the ISR is empty, one of them may lead.
- The **last known members** were in the ISR or the ELR and left it because they were killed, or because their logs were
  lost. They are kept as long as the ELR is: until the ISR has `min.insync.replicas` members again. So the ISR, the ELR
  and the last known members together are at least `min.insync.replicas` replicas that had every committed record on
  disk when they died. Where the first two are empty, `controller.recovery` elects one of the last known members, once
  enough of them are back to know which has everything. The only replica of a partition has nobody to be compared with:
  it leads again at once, unless it is back without its disk.
- Any other replica is elected **uncleanly**, and the records that it does not have are lost. That happens only if the
  topic's `unclean.leader.election.enable` allows it, or an operator asks for it.

A leader that may still lead stays; otherwise the first replica that may lead is elected. Only a preferred election
tries the first replica before the current leader. Every election raises the leader epoch.

A broker whose disk is **full** leaves every ISR in which another member may lead, and leads only what no other replica
with everything committed can: there it refuses records, and serves reads. It leaves as a fenced broker does, and is
eligible where that makes the ISR too small.

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


class Basis(Enum):
    """The facts that decide the election of a leader."""

    CLEAN = 0  # it is in the ISR or the ELR; or there is no leader
    RECOVERED = 1  # it is one of the last known members
    UNCLEAN = 2  # nothing: it may lack committed records, and the last known members count no more


class Rules(NamedTuple):
    """The rules of an election, from a topic's settings and from the brokers' disks."""

    min_isr: int  # at most the number of replicas
    election: Election  # without an operator's request: ONLINE or UNCLEAN
    full: Collection[int] = ()  # brokers without room for records


def rules_of(image: MetadataImage, topic: Topic, config: BrokerConfig) -> Rules:
    overrides = image.topic_overrides(topic.name)
    # It is read from the image, not from this node's configuration: all controllers must use the same value.
    min_isr = _first(MIN_ISR, (overrides, image.default_broker_overrides), config)
    is_unclean = _first(UNCLEAN_ELECTION, (overrides,), config)
    replicas = len(topic.partitions[0].replicas) if 0 in topic.partitions else 1
    election = Election.UNCLEAN if is_unclean else Election.ONLINE
    return Rules(min(min_isr, replicas), election, image.full_brokers())


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
    full: Collection[int] = (),
    *,
    isr: Sequence[int] | None = None,
    killed: int | None = None,
    leader_recovery_state: int | None = None,
    placed: Partition | None = None,
    recovered: int | None = None,
) -> Partition:
    """The next registration of a partition, except for its partition epoch. `active`: the brokers that may lead;
    `full`: those that have no room, and should not. `isr`: the new ISR, if it changes. `killed`: a replica that may
    have lost what it had not synced. `placed`: the same registration with the replicas that it gets, if they change.
    `recovered`: the last known member that is known to have everything committed."""
    new_isr = _without_full(tuple(partition.isr if isr is None else isr), active, full)
    placed, new_isr = completed(placed or partition, new_isr)
    elr = _eligible(placed, new_isr, min_isr, killed)
    known = _last_known(placed, (*new_isr, *elr), killed)
    recovery_state = (
        partition.leader_recovery_state if leader_recovery_state is None else leader_recovery_state
    )
    leader, basis = _elect(placed, new_isr, elr, known, active, election, full, recovered)
    if basis is not Basis.CLEAN:
        new_isr, elr, recovery_state = (leader,), (), RECOVERING
    elif leader != NO_LEADER and leader not in new_isr:
        new_isr, elr = (leader,), tuple(replica for replica in elr if replica != leader)
    if len(new_isr) >= min_isr:
        elr = known = ()
    if basis is Basis.UNCLEAN:
        known = ()
    begins_epoch = leader != partition.leader or not set(partition.replicas) <= set(placed.replicas)
    return placed._replace(
        leader=leader,
        leader_epoch=partition.leader_epoch + begins_epoch,
        isr=new_isr,
        eligible_leader_replicas=elr,
        last_known_elr=tuple(replica for replica in known if replica != leader),
        leader_recovery_state=recovery_state,
    )


def _without_full(isr: tuple[int, ...], active: Collection[int], full: Collection[int]) -> tuple[int, ...]:
    """A full broker cannot store what comes next. It stays if nobody else in sync can lead."""
    if not full:
        return isr
    others = tuple(replica for replica in isr if replica not in full)
    return others if any(replica in active for replica in others) else isr


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


def _last_known(partition: Partition, others: Collection[int], killed: int | None) -> tuple[int, ...]:
    """`others` are in the new ISR and ELR."""
    had_everything = (*partition.last_known_elr, *partition.eligible_leader_replicas, *partition.isr)
    dead = (*partition.last_known_elr, *(() if killed is None else (killed,)))
    return tuple(
        replica
        for replica in dict.fromkeys(dead)
        if replica in had_everything and replica in partition.replicas and replica not in others
    )


def _elect(
    partition: Partition,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    known: tuple[int, ...],
    active: Collection[int],
    election: Election,
    full: Collection[int],
    recovered: int | None,
) -> tuple[int, Basis]:
    eligible = isr or elr
    candidates = (partition.leader, *partition.replicas)
    if election is Election.PREFERRED:
        candidates = (partition.replicas[0], *candidates)
    for replica in sorted(candidates, key=full.__contains__):
        if replica in eligible and replica in active:
            return replica, Basis.CLEAN
    if not eligible:
        only = partition.replicas[0] if len(partition.replicas) == 1 else None
        for member in known:
            if member in (recovered, only) and member in active and not has_lost_log(partition, member):
                return member, Basis.RECOVERED
    if election is Election.UNCLEAN:
        for replica in sorted(partition.replicas, key=partial(_rank, partition, known, full)):
            if replica in active:
                return replica, Basis.UNCLEAN
    return NO_LEADER, Basis.CLEAN


def _rank(
    partition: Partition, known: tuple[int, ...], full: Collection[int], replica: int
) -> tuple[bool, bool, bool]:
    """The order of replicas in an unclean election: those with a log first, of them the last known members, and of
    those the ones with room."""
    return has_lost_log(partition, replica), replica not in known, replica in full


def has_lost_log(partition: Partition, replica: int) -> bool:
    return partition.directory_of(replica) == LOST_DIRECTORY


def with_found_logs(image: MetadataImage, partition: Partition) -> Partition:
    """A replica that lost its log and is in sync again has a new one, where its broker puts new logs."""
    for replica in partition.isr:
        if has_lost_log(partition, replica):
            directory = directory_for_new_logs(image.brokers[replica].directories)
            partition = partition.in_directory(replica, directory)
    return partition


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
