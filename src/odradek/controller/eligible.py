"""Eligible leader replicas, and last known members, when `min.insync.replicas` changes.

They have everything committed, because nothing is committed while the ISR is below the minimum. With a lower minimum
the leader may commit again, without them: so they lose their eligibility in the same write as the new setting. A
partition without in-sync replicas has no leader that could commit anything, and keeps them.
"""

from collections.abc import Iterable, Iterator

from odradek.controller.elections import MIN_ISR, change_record
from odradek.metadata.image import MetadataImage, ResourceType, Topic
from odradek.metadata.records import ConfigRecord, MetadataRecord


def forget_eligible(image: MetadataImage, changes: Iterable[MetadataRecord]) -> Iterator[MetadataRecord]:
    """The records that must be written together with these changes of settings."""
    names = [
        record.resource_name if record.resource_type == ResourceType.TOPIC else None
        for record in changes
        if isinstance(record, ConfigRecord) and record.name == MIN_ISR
    ]
    for topic in _topics(image, names):
        for index, partition in topic.partitions.items():
            if partition.isr:
                forgotten = partition._replace(eligible_leader_replicas=(), last_known_elr=())
                record = change_record(topic.id, index, partition, forgotten)
                if record is not None:
                    yield record


def _topics(image: MetadataImage, names: list[str | None]) -> Iterable[Topic]:
    """None stands for all topics: a broker's setting, or the default of all brokers, has changed."""
    if None in names:
        return image.topics.values()
    return [topic for name in names if (topic := image.topics.get(name or ""))]
