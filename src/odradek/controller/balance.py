"""Returns partitions to their preferred leaders: the first replica of each partition.

While a broker is away, other brokers lead its partitions. From time to time the leadership returns to it, for some
partitions at a time, so that every broker leads about its share.
"""

from collections.abc import Iterator
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.controller.elections import Election, change_record, next_registration, rules_of
from odradek.metadata.image import MetadataImage, Partition
from odradek.metadata.records import MetadataRecord


def imbalanced(image: MetadataImage) -> Iterator[tuple[UUID, int, Partition]]:
    """Partitions that their preferred leader could lead, but does not."""
    active = {broker.id for broker in image.active_brokers()}
    for topic in image.topics_by_id.values():
        for index, partition in topic.partitions.items():
            preferred = partition.replicas[0]
            if partition.leader != preferred and preferred in partition.isr and preferred in active:
                yield topic.id, index, partition


def balance_leaders(image: MetadataImage, config: BrokerConfig, most: int) -> list[MetadataRecord]:
    """Elect preferred leaders, for at most `most` partitions."""
    active = {broker.id for broker in image.active_brokers()}
    records: list[MetadataRecord] = []
    for topic_id, index, partition in imbalanced(image):
        rules = rules_of(image, image.topics_by_id[topic_id], config)._replace(election=Election.PREFERRED)
        after = next_registration(partition, active, *rules)
        record = change_record(topic_id, index, partition, after)
        if record is not None:
            records.append(record)
        if len(records) >= most:
            break
    return records
