"""Brokers come, go and are fenced, and partitions find new leaders by it.

A fenced broker is registered but neither leads nor is in sync. A partition whose last in-sync replica is
fenced keeps it in the ISR and has no leader: that replica alone is known to hold every committed record.

Broker epochs are offsets of the metadata log, so they rise with every registration.
"""

from collections.abc import Iterator, Sequence
from uuid import UUID

from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import NO_LEADER, Broker, MetadataImage, Partition
from odradek.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    SupportedFeature,
)

PRODUCER_ID_BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1

FENCE, UNFENCE = 1, -1

# What a new cluster starts with; 25 is Kafka's 4.0-IV3.
BOOTSTRAP_FEATURES = {"metadata.version": 25}

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
    has_session: bool = False,
) -> Records:
    """Register a process that starts. `broker_epoch` is the offset its record will have.

    A node that is its own controller registers unfenced, as it serves at once. `has_session`: a process under
    this id still sends heartbeats; a second one is refused until the first is gone.
    """
    existing = image.brokers.get(broker_id)
    is_other = existing is not None and existing.incarnation_id != incarnation_id
    if is_other and has_session:
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"Another process runs as broker {broker_id}."
        )
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


def fence_broker(image: MetadataImage, broker_id: int) -> Records:
    """Take a broker that fell silent, or stops, out of every ISR and leadership."""
    broker = _registered(image, broker_id)
    fence: Records = [BrokerRegistrationChangeRecord(broker_id, broker.epoch, FENCE)]
    return fence + leave_partitions(image, broker_id, NO_LEADER)


def leave_partitions(image: MetadataImage, broker_id: int, last_leader: int) -> Records:
    """Take a broker out of every ISR and leadership. Where it is the last of an ISR it stays in it, because it alone is
    known to hold every committed record; then `last_leader` leads: nobody, or, if it goes on at once, the broker itself
    in a new epoch."""
    records: Records = []
    for topic_id, index, partition in _partitions(image):
        if broker_id not in partition.isr:
            continue
        isr = [other for other in partition.isr if other != broker_id]
        change = PartitionChangeRecord(index, topic_id, isr=isr or None)
        if partition.leader == broker_id:
            change.leader = _next_leader(image, isr) if isr else last_leader
        if isr or partition.leader == broker_id:
            records.append(change)
    return records


def unfence_broker(image: MetadataImage, broker_id: int) -> Records:
    """Let a broker serve, and give it the partitions that had to wait for it."""
    broker = _registered(image, broker_id)
    records: Records = [BrokerRegistrationChangeRecord(broker_id, broker.epoch, UNFENCE)]
    for topic_id, index, partition in _partitions(image):
        if partition.leader == NO_LEADER and broker_id in partition.isr:
            records.append(PartitionChangeRecord(index, topic_id, leader=broker_id))
    return records


def allocate_producer_ids(image: MetadataImage, broker_id: int, broker_epoch: int) -> tuple[Records, range]:
    """A block of producer ids that this broker alone gives out."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} has no epoch {broker_epoch}.")
    start = image.next_producer_id
    if start > MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids are given out.")
    block = range(start, start + PRODUCER_ID_BLOCK_SIZE)
    return [ProducerIdsRecord(broker_id, broker_epoch, block.stop)], block


def _registered(image: MetadataImage, broker_id: int) -> Broker:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"There is no broker {broker_id}.")
    return broker


def _partitions(image: MetadataImage) -> Iterator[tuple[UUID, int, Partition]]:
    for topic in image.topics_by_id.values():
        for index, partition in topic.partitions.items():
            yield topic.id, index, partition


def _next_leader(image: MetadataImage, isr: Sequence[int]) -> int:
    return next((broker_id for broker_id in isr if image.brokers[broker_id].is_active), NO_LEADER)
