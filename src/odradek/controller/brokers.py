"""Brokers come, go and are fenced, and partitions find new leaders by it.

A fenced broker is registered but neither leads nor is in sync. One that was killed, and may have lost what it had not
synced, is no eligible leader either (see `controller.elections`).

Broker epochs are offsets of the metadata log, so they rise with every registration.
"""

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.controller.elections import Rules, change_record, next_registration, rules_of
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import NO_LEADER, Broker, MetadataImage, Partition
from odradek.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    SupportedFeature,
)

PRODUCER_ID_BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1

FENCE, UNFENCE = 1, -1

# What a new cluster starts with; 25 is Kafka's 4.0-IV3.
BOOTSTRAP_FEATURES = {"metadata.version": 25}
# What this release can do: the lowest and the highest level of each.
SUPPORTED_FEATURES = {"metadata.version": (25, 25)}

Records = list[MetadataRecord]


def bootstrap_records() -> Records:
    """The first records of a new metadata log."""
    return [FeatureLevelRecord(name, level) for name, level in BOOTSTRAP_FEATURES.items()]


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
    """Register a process that starts. `broker_epoch` is the offset its record will have.

    A node that is its own controller registers unfenced, as it serves at once.
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
    """Take a broker that fell silent, or stops, out of every ISR and leadership, or for a start out of so many."""
    broker = registered_broker(image, broker_id)
    fenced = BrokerRegistrationChangeRecord(broker_id, broker.epoch, FENCE)
    return [fenced, *_leave_isr(image, config, broker_id, most)]


def empty_isrs_of_inactive(image: MetadataImage, config: BrokerConfig, most: int) -> Records:
    """Go on, for so many partitions, where a fencing was written in part: nobody but active brokers is in sync."""
    active = {broker.id for broker in image.active_brokers()}

    def leave(partition: Partition, rules: Rules) -> Partition:
        isr = [replica for replica in partition.isr if replica in active]
        return next_registration(partition, active, *rules, isr=isr)

    return change_partitions(
        image, config, lambda partition: not active.issuperset(partition.isr), leave, most
    )


def begin_controlled_shutdown(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Records:
    """Move away what a broker leads, while it can still tell clients so."""
    broker = registered_broker(image, broker_id)
    stopping = BrokerRegistrationChangeRecord(broker_id, broker.epoch, in_controlled_shutdown=1)
    return [stopping, *_leave_isr(image, config, broker_id)]


def _leave_isr(
    image: MetadataImage, config: BrokerConfig, broker_id: int, most: int | None = None
) -> Records:
    active = {broker.id for broker in image.active_brokers()} - {broker_id}

    def leave(partition: Partition, rules: Rules) -> Partition:
        isr = [replica for replica in partition.isr if replica != broker_id]
        return next_registration(partition, active, *rules, isr=isr)

    return change_partitions(image, config, lambda partition: broker_id in partition.isr, leave, most)


def unfence_broker(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Records:
    """Let a broker serve, and give it the partitions that had to wait for it."""
    broker = registered_broker(image, broker_id)
    unfenced = BrokerRegistrationChangeRecord(broker_id, broker.epoch, UNFENCE)
    active = {broker.id for broker in image.active_brokers()} | {broker_id}
    return [unfenced, *elect_missing_leaders(image, config, active)]


def elect_missing_leaders(image: MetadataImage, config: BrokerConfig, active: Collection[int]) -> Records:
    def elect(partition: Partition, rules: Rules) -> Partition:
        return next_registration(partition, active, *rules)

    return change_partitions(image, config, lambda partition: partition.leader == NO_LEADER, elect)


def begin_incarnation(
    image: MetadataImage,
    config: BrokerConfig,
    broker_id: int,
    *,
    was_clean: bool,
    is_fenced: bool,
    has_lost_disk: bool = False,
) -> Records:
    """A broker has started anew: it leaves every ISR, so that it leads nothing in an epoch of its earlier life. If it
    was killed it leaves the ELR too: its logs may have lost what was not synced. If it has another disk it is no last
    known leader either: others have records, and it has none. One that registers without a fence may lead at once what
    nobody else can."""
    others = {broker.id for broker in image.active_brokers()} - {broker_id}
    killed = None if was_clean else broker_id

    def begin(partition: Partition, rules: Rules) -> Partition:
        isr = [replica for replica in partition.isr if replica != broker_id]
        after = next_registration(partition, others, *rules, isr=isr, killed=killed)
        if has_lost_disk and set(partition.replicas) != {broker_id}:
            known = tuple(replica for replica in after.last_known_elr if replica != broker_id)
            after = after._replace(last_known_elr=known)
        if not is_fenced and after.leader == NO_LEADER:
            after = next_registration(after, others | {broker_id}, *rules)
        return after

    return change_partitions(
        image,
        config,
        lambda partition: (
            broker_id in partition.isr
            or (not was_clean and broker_id in partition.eligible_leader_replicas)
            or (has_lost_disk and broker_id in partition.last_known_elr)
            or (not is_fenced and partition.leader == NO_LEADER)
        ),
        begin,
    )


def change_partitions(
    image: MetadataImage,
    config: BrokerConfig,
    concerns: Callable[[Partition], bool],
    change: Callable[[Partition, Rules], Partition],
    most: int | None = None,
) -> Records:
    """The records that change all partitions which this concerns, or the first of them."""
    records: Records = []
    for topic in image.topics_by_id.values():
        rules: Rules | None = None
        for index, partition in topic.partitions.items():
            if concerns(partition):
                rules = rules or rules_of(image, topic, config)
                record = change_record(topic.id, index, partition, change(partition, rules))
                if record is not None:
                    records.append(record)
                    if len(records) == most:
                        return records
    return records


def allocate_producer_ids(image: MetadataImage, broker_id: int, broker_epoch: int) -> tuple[Records, range]:
    """A block of producer ids that this broker alone gives out."""
    check_broker_epoch(image, broker_id, broker_epoch)
    start = image.next_producer_id
    if start > MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids are given out.")
    block = range(start, start + PRODUCER_ID_BLOCK_SIZE)
    return [ProducerIdsRecord(broker_id, broker_epoch, block.stop)], block


def registered_broker(image: MetadataImage, broker_id: int) -> Broker:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"There is no broker {broker_id}.")
    return broker


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> Broker:
    """A broker speaks for its own registration only."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} has no epoch {broker_epoch}.")
    return broker
