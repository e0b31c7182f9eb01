"""Brokers register, leave and are fenced, and their partitions get new leaders.

A fenced broker is registered, but it leads nothing and is in no ISR. One that was killed, and may have lost what it had
not synced, is not an eligible leader either (see `controller.elections`).

Broker epochs are offsets of the metadata log, so they rise with every registration.

Functions that take `most` change at most that many partitions; a later call changes the others.
"""

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.controller.elections import (
    Rules,
    change_record,
    next_registration,
    rules_of,
    with_found_logs,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import (
    LOST_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    Broker,
    MetadataImage,
    Partition,
)
from odradek.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    SupportedFeature,
)

PRODUCER_ID_BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1

FENCE, UNFENCE = 1, -1
FULL, NOT_FULL = 1, -1
PARTITIONS_AT_ONCE = 500  # in one write, where possible: deciding and applying it blocks the event loop

Records = list[MetadataRecord]


def register_broker(
    image: MetadataImage,
    broker_id: int,
    *,
    broker_epoch: int,
    incarnation_id: UUID,
    endpoints: Sequence[BrokerEndpoint],
    directories: Sequence[UUID],
    features: Sequence[SupportedFeature] = (),
    rack: str | None = None,
    is_fenced: bool = True,
) -> Records:
    """Register a process that starts. `broker_epoch` is the offset that its record will have.

    The active controller's own broker registers unfenced, because it can serve at once.
    """
    record = RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=incarnation_id,
        broker_epoch=broker_epoch,
        end_points=list(endpoints),
        features=list(features),
        rack=rack,
        fenced=is_fenced,
        log_dirs=list(directories),
    )
    return [record]


def fence_broker(
    image: MetadataImage, config: BrokerConfig, broker_id: int, most: int | None = None
) -> Records:
    """Fence a broker that does not respond, or stops, and take it out of the ISRs and leaderships that it has."""
    broker = registered_broker(image, broker_id)
    fenced = BrokerRegistrationChangeRecord(broker_id, broker.epoch, FENCE)
    return [fenced, *leave_isr(image, config, broker_id, most)]


def empty_isrs_of_inactive(image: MetadataImage, config: BrokerConfig, most: int) -> Records:
    """Complete a fencing that was written in part: remove brokers that are not active from ISRs."""
    active = {broker.id for broker in image.active_brokers()}

    def leave(partition: Partition, rules: Rules) -> Partition:
        isr = [replica for replica in partition.isr if replica in active]
        return next_registration(partition, active, *rules, isr=isr)

    return change_partitions(
        image, config, lambda partition: not active.issuperset(partition.isr), leave, most
    )


def leave_full(image: MetadataImage, config: BrokerConfig, most: int) -> Records:
    """Take brokers without room out of the ISRs and leaderships that they have, where another in-sync replica has
    room."""
    full = image.full_brokers()
    able = {broker.id for broker in image.active_brokers()} - full

    def concerns(partition: Partition) -> bool:
        return not full.isdisjoint(partition.isr) and not able.isdisjoint(partition.isr)

    def leave(partition: Partition, rules: Rules) -> Partition:
        return next_registration(partition, able | full, *rules)

    return change_partitions(image, config, concerns, leave, most) if full else []


def begin_controlled_shutdown(
    image: MetadataImage, config: BrokerConfig, broker_id: int, most: int | None = None
) -> Records:
    """Move away what a broker leads, while it can still tell clients who leads instead."""
    broker = registered_broker(image, broker_id)
    stopping = BrokerRegistrationChangeRecord(broker_id, broker.epoch, in_controlled_shutdown=1)
    return [stopping, *leave_isr(image, config, broker_id, most)]


def leave_isr(image: MetadataImage, config: BrokerConfig, broker_id: int, most: int | None = None) -> Records:
    """Take a broker out of the ISRs and leaderships that it has."""
    active = {broker.id for broker in image.active_brokers()} - {broker_id}

    def leave(partition: Partition, rules: Rules) -> Partition:
        isr = [replica for replica in partition.isr if replica != broker_id]
        return next_registration(partition, active, *rules, isr=isr)

    return change_partitions(image, config, lambda partition: broker_id in partition.isr, leave, most)


def unfence_broker(
    image: MetadataImage, config: BrokerConfig, broker_id: int, most: int | None = None
) -> Records:
    """Unfence a broker, and elect leaders for the partitions that had to wait for it."""
    broker = registered_broker(image, broker_id)
    unfenced = BrokerRegistrationChangeRecord(broker_id, broker.epoch, UNFENCE)
    active = {broker.id for broker in image.active_brokers()} | {broker_id}
    return [unfenced, *elect_missing_leaders(image, config, active, most)]


def elect_missing_leaders(
    image: MetadataImage, config: BrokerConfig, active: Collection[int], most: int | None = None
) -> Records:
    def elect(partition: Partition, rules: Rules) -> Partition:
        return next_registration(partition, active, *rules)

    return change_partitions(image, config, lambda partition: partition.leader == NO_LEADER, elect, most)


def begin_incarnation(
    image: MetadataImage,
    config: BrokerConfig,
    broker_id: int,
    *,
    was_clean: bool,
    is_fenced: bool,
    directories: Sequence[UUID] = (),
) -> Records:
    """A broker has restarted: it leaves every ISR, so that it leads nothing in an epoch of its earlier process. If it
    was killed it leaves the ELR too, because its logs may have lost what was not synced. One that registers unfenced
    may at once lead partitions that no other broker can.

    All of this is one write with the registration, however many partitions there are: if the broker were registered
    before it has left the last ELR, it could be elected from there. If it was fenced before, little is left to do.

    `directories` are those that it has now, if it named them. A log that was in another one is lost: this replica is
    empty, and leads only by an unclean election, and only if no other replica can."""
    others = {broker.id for broker in image.active_brokers()} - {broker_id}

    def begin(partition: Partition, rules: Rules) -> Partition:
        has_lost = _lost_log(partition, broker_id, directories)
        if has_lost:
            partition = partition.in_directory(broker_id, LOST_DIRECTORY)
        killed = broker_id if has_lost or not was_clean else None
        isr = [replica for replica in partition.isr if replica != broker_id]
        after = next_registration(partition, others, *rules, isr=isr, killed=killed)
        if not is_fenced and after.leader == NO_LEADER:
            after = next_registration(after, others | {broker_id}, *rules)
        return after

    return change_partitions(
        image,
        config,
        lambda partition: (
            broker_id in partition.isr
            or (not was_clean and broker_id in partition.eligible_leader_replicas)
            or (not is_fenced and partition.leader == NO_LEADER)
            or _lost_log(partition, broker_id, directories)
        ),
        begin,
    )


def _lost_log(partition: Partition, broker_id: int, directories: Sequence[UUID]) -> bool:
    """True if the log of this replica was in a directory that its broker no longer has."""
    directory = partition.directory_of(broker_id)
    return bool(directories) and directory not in (UNASSIGNED_DIRECTORY, LOST_DIRECTORY, *directories)


def change_partitions(
    image: MetadataImage,
    config: BrokerConfig,
    concerns: Callable[[Partition], bool],
    change: Callable[[Partition, Rules], Partition],
    most: int | None = None,
) -> Records:
    """The records that change the partitions that this concerns."""
    records: Records = []
    for topic in image.topics_by_id.values():
        rules: Rules | None = None
        for index, partition in topic.partitions.items():
            if concerns(partition):
                rules = rules or rules_of(image, topic, config)
                after = with_found_logs(image, change(partition, rules))
                record = change_record(topic.id, index, partition, after)
                if record is not None:
                    records.append(record)
                    if len(records) == most:
                        return records
    return records


def allocate_producer_ids(image: MetadataImage, broker_id: int, broker_epoch: int) -> tuple[Records, range]:
    """Reserve a block of producer ids for this broker."""
    check_broker_epoch(image, broker_id, broker_epoch)
    start = image.next_producer_id
    if start > MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids are used up.")
    block = range(start, start + PRODUCER_ID_BLOCK_SIZE)
    return [ProducerIdsRecord(broker_id, broker_epoch, block.stop)], block


def registered_broker(image: MetadataImage, broker_id: int) -> Broker:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"There is no broker {broker_id}.")
    return broker


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> Broker:
    """Refuse requests of an earlier process of this broker."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} has no epoch {broker_epoch}.")
    return broker
