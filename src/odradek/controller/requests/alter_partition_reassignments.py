"""AlterPartitionReassignments (45): an operator moves partitions to other brokers, or cancels such a move.

Each partition has an error code of its own. Null instead of a list of replicas cancels the reassignment of a partition
(see `controller.reassignment`). That is refused if none of the original replicas is in sync, because the partition
would need a leader that may have lost records. Only a topic that allows unclean elections gets one.

`allow_replication_factor_change=false` (version 1) refuses a target with more or fewer replicas than the partition will
have anyway.
"""

from dataclasses import replace
from typing import Any
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.controller.brokers import Records
from odradek.controller.controller import Terms
from odradek.controller.elections import (
    Election,
    change_record,
    next_registration,
    rules_of,
    with_found_logs,
)
from odradek.controller.parts import Part, cut_partitions
from odradek.controller.placement import check_assignment
from odradek.controller.reassignment import is_reassigning, reassigned, reverted, target_size
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import MetadataImage, Partition, Topic
from odradek.wire.codec import Steps
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

# The newest registrations of partitions that the request has changed: it may name one more than once.
Changed = dict[tuple[UUID, int], Partition]


def decide(
    image: MetadataImage, part: Part, terms: Terms
) -> tuple[Records, AlterPartitionReassignmentsResponse]:
    request: Any = part.request
    records: Records = []
    changed: Changed = {}
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    for asked in request.topics:
        result = ReassignableTopicResponse(asked.name)
        response.responses.append(result)
        for wanted in asked.partitions:
            code, reason = ErrorCode.NONE, None
            try:
                topic, before = _find(image, asked.name, wanted.partition_index, changed)
                if wanted.replicas is None:
                    after = _cancel(image, topic, before, terms.config)
                else:
                    check_assignment(image, wanted.replicas, None, before.replicas)
                    if not request.allow_replication_factor_change:
                        _check_factor(before, wanted.replicas)
                    after = _begin(image, topic, before, wanted.replicas, terms.config)
                record = change_record(topic.id, wanted.partition_index, before, after)
                if record is not None:
                    records.append(record)
                    changed[topic.id, wanted.partition_index] = after
            except KafkaError as error:
                code, reason = error.code, error.message or None
            result.partitions.append(ReassignablePartitionResponse(wanted.partition_index, code, reason))
    return records, response


def _find(image: MetadataImage, name: str, index: int, changed: Changed) -> tuple[Topic, Partition]:
    topic = image.topics.get(name)
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {index} of topic '{name}'."
        )
    return topic, changed.get((topic.id, index), partition)


def _check_factor(before: Partition, target: list[int]) -> None:
    factor = target_size(before)
    if len(target) != factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor would change from {factor} to {len(target)}, and the request forbids that.",
        )


def _begin(
    image: MetadataImage, topic: Topic, before: Partition, target: list[int], config: BrokerConfig
) -> Partition:
    rules = rules_of(image, topic, config)._replace(election=Election.ONLINE)
    placed = reassigned(image, before, target)
    after = next_registration(before, _active(image), *rules, placed=placed)
    return with_found_logs(image, after)


def _cancel(image: MetadataImage, topic: Topic, before: Partition, config: BrokerConfig) -> Partition:
    if not is_reassigning(before):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "The partition is not being reassigned.")
    rules = rules_of(image, topic, config)
    placed, isr = reverted(image, before)
    if not isr and rules.election is not Election.UNCLEAN:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "None of the original replicas is in sync: cancelling would need an unclean election.",
        )
    after = next_registration(before, _active(image), *rules, isr=isr, placed=placed)
    return with_found_logs(image, after)


def _active(image: MetadataImage) -> set[int]:
    return {broker.id for broker in image.active_brokers()}


def cut(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, config: BrokerConfig
) -> Steps[list[Part]]:
    """Some partitions at a time."""
    parts = yield from cut_partitions(request.topics)
    return [Part(replace(request, topics=part)) for part in parts]
