"""AlterPartition (56): the leader of a partition proposes a new ISR.

Only the leader may do so, in its leader epoch, and only for the current registration, which the partition epoch
identifies. A replica joins only if it is active and still registered with the broker epoch of its fetches (KIP-903,
version 3): one that restarted meanwhile may have lost what it had. A broker whose disk is full does not join either.

A partition whose leader was elected uncleanly has no other in-sync replica until the leader reports RECOVERED.

An ISR with all replicas that are being added completes a reassignment (`controller.reassignment`). If another broker
leads after that, the leader that asked is told so (NEW_LEADER_ELECTED): this error comes with a change.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from odradek.controller.brokers import Records, check_broker_epoch
from odradek.controller.controller import Terms
from odradek.controller.elections import (
    RECOVERED,
    RECOVERING,
    Rules,
    change_record,
    next_registration,
    rules_of,
    with_found_logs,
)
from odradek.controller.parts import Part
from odradek.errors import ErrorCode
from odradek.metadata.image import MetadataImage, Partition
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionDataInRequest,
    PartitionDataInResponse,
    TopicDataInResponse,
)

ANY_EPOCH = -1


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, AlterPartitionResponse]:
    request: Any = part.request
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    active = {broker.id for broker in image.active_brokers()}
    records: Records = []
    response = AlterPartitionResponse()
    for item in request.topics:
        altered = TopicDataInResponse(item.topic_id)
        response.topics.append(altered)
        topic = image.topics_by_id.get(item.topic_id)
        rules = None if topic is None else rules_of(image, topic, terms.config)
        for wanted in item.partitions:
            partition = None if topic is None else topic.partitions.get(wanted.partition_index)
            if rules is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                error = _why_not(image, request, wanted, partition)
            if error or partition is None or rules is None:
                altered.partitions.append(PartitionDataInResponse(wanted.partition_index, error))
            else:
                altered.partitions.append(
                    _alter(image, item.topic_id, wanted, partition, rules, active, records)
                )
    return records, response


def _alter(
    image: MetadataImage,
    topic_id: UUID,
    wanted: PartitionDataInRequest,
    before: Partition,
    rules: Rules,
    active: set[int],
    records: Records,
) -> PartitionDataInResponse:
    isr = [member.broker_id for member in _members(wanted)]
    after = next_registration(
        before, active, *rules, isr=isr, leader_recovery_state=wanted.leader_recovery_state
    )
    after = with_found_logs(image, after)
    record = change_record(topic_id, wanted.partition_index, before, after)
    if record is not None:
        records.append(record)
        if after.leader != before.leader:
            return PartitionDataInResponse(wanted.partition_index, ErrorCode.NEW_LEADER_ELECTED)
        after = after._replace(partition_epoch=before.partition_epoch + 1)
    return PartitionDataInResponse(
        wanted.partition_index,
        ErrorCode.NONE,
        after.leader,
        after.leader_epoch,
        list(after.isr),
        after.leader_recovery_state,
        after.partition_epoch,
    )


def _members(wanted: PartitionDataInRequest) -> Sequence[BrokerState]:
    return wanted.new_isr_with_epochs or [BrokerState(broker_id, ANY_EPOCH) for broker_id in wanted.new_isr]


def _why_not(
    image: MetadataImage,
    request: AlterPartitionRequest,
    wanted: PartitionDataInRequest,
    partition: Partition | None,
) -> ErrorCode:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # only a newer controller can have written that
    if wanted.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if wanted.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = _members(wanted)
    if not _is_possible(partition, [member.broker_id for member in members], wanted.leader_recovery_state):
        return ErrorCode.INVALID_REQUEST
    if not all(_may_join(image, member, partition) for member in members):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_possible(partition: Partition, isr: Sequence[int], recovery_state: int) -> bool:
    if recovery_state not in (RECOVERED, RECOVERING):
        return False
    if len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        return False
    if recovery_state == RECOVERING:
        return len(isr) == 1 and partition.leader_recovery_state == RECOVERING
    return True


def _may_join(image: MetadataImage, member: BrokerState, partition: Partition) -> bool:
    broker = image.brokers.get(member.broker_id)
    if broker is None or not broker.is_active or (broker.is_full and broker.id not in partition.isr):
        return False
    return member.broker_epoch in (ANY_EPOCH, broker.epoch)
