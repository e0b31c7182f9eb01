"""ListPartitionReassignments (46): the partitions that are being reassigned, all of them or some.

A partition that is not being reassigned, or does not exist, is left out; so is a topic without any that is.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.controller.brokers import Records
from odradek.controller.controller import Terms
from odradek.controller.parts import Part
from odradek.controller.reassignment import is_reassigning
from odradek.metadata.image import MetadataImage, Topic
from odradek.wire.codec import Steps
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

PARTITIONS_PER_STEP = 500


def decide(
    image: MetadataImage, part: Part, terms: Terms
) -> tuple[Records, ListPartitionReassignmentsResponse]:
    request: Any = part.request
    response = ListPartitionReassignmentsResponse(error_message=None)
    for asked in request.topics:
        topic = image.topics.get(asked.name)
        ongoing = [] if topic is None else _ongoing(topic, asked.partition_indexes)
        if ongoing:
            response.topics.append(OngoingTopicReassignment(asked.name, ongoing))
    return [], response


def _ongoing(topic: Topic, indexes: Iterable[int]) -> list[OngoingPartitionReassignment]:
    return [
        OngoingPartitionReassignment(
            index,
            list(partition.replicas),
            list(partition.adding_replicas),
            list(partition.removing_replicas),
        )
        for index in indexes
        if (partition := topic.partitions.get(index)) is not None and is_reassigning(partition)
    ]


def cut(
    image: MetadataImage, request: ListPartitionReassignmentsRequest, config: BrokerConfig
) -> Steps[list[Part]]:
    """A request for all partitions becomes one for those that are being reassigned. There is one part only."""
    if request.topics is not None:
        return [Part(request)]
    found: dict[str, list[int]] = {}
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if is_reassigning(partition):
                found.setdefault(topic.name, []).append(index)
            if index % PARTITIONS_PER_STEP == 0:
                yield
    topics = [ListPartitionReassignmentsTopics(name, indexes) for name, indexes in found.items()]
    return [Part(replace(request, topics=topics))]
