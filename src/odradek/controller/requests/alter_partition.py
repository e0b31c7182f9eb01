"""AlterPartition (56): the leader of a partition proposes another ISR.

Only the leader may, in its epoch, and only on top of what is in force (`partition_epoch`): a proposal that was made
to an older registration is refused, and the metadata tells its sender why. A replica joins only if it is registered
in the epoch that its fetches carried, not fenced, and not about to stop (KIP-841, KIP-903): a broker that was
restarted since may have lost what it had. The response to each partition is what is in force then.
"""

from typing import Any
from uuid import UUID

from odradek.controller.brokers import Records
from odradek.controller.controller import Terms
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import MetadataImage, Partition, Topic
from odradek.metadata.records import PartitionChangeRecord
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionDataInRequest,
    PartitionDataInResponse,
    TopicDataInResponse,
)

ISR_EPOCHS_SINCE = 3
RECOVERED = 0
NO_EPOCH = -1


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, AlterPartitionResponse]:
    request: Any = part.request
    _check_broker(image, request)
    records: Records = []
    response = AlterPartitionResponse()
    version = terms.context.api_version
    for asked in request.topics:
        answer = TopicDataInResponse(asked.topic_id)
        for wanted in asked.partitions:
            topic = image.topics_by_id.get(asked.topic_id)
            try:
                changes, outcome = _alter(image, topic, wanted, request.broker_id, version)
                records += changes
            except KafkaError as error:
                outcome = PartitionDataInResponse(wanted.partition_index, error.code)
            answer.partitions.append(outcome)
        response.topics.append(answer)
    return records, response


def _check_broker(image: MetadataImage, request: AlterPartitionRequest) -> None:
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"Broker {request.broker_id} has no epoch {request.broker_epoch}."
        )


def _alter(
    image: MetadataImage, topic: Topic | None, wanted: PartitionDataInRequest, sender: int, version: int
) -> tuple[Records, PartitionDataInResponse]:
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    _check_leader(partition, wanted, sender)
    isr = _isr(wanted, version)
    _check_isr(image, partition, isr, sender)
    if wanted.leader_recovery_state not in (RECOVERED, partition.leader_recovery_state):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A partition that has recovered stays so.")
    changed = tuple(isr) != partition.isr or wanted.leader_recovery_state != partition.leader_recovery_state
    records: Records = [_record(topic.id, wanted, partition, list(isr))] if changed else []
    return records, PartitionDataInResponse(
        partition_index=wanted.partition_index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(isr),
        leader_recovery_state=wanted.leader_recovery_state,
        partition_epoch=partition.partition_epoch + len(records),
    )


def _check_leader(partition: Partition, wanted: PartitionDataInRequest, sender: int) -> None:
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "The sender knows more than this node.")
    if wanted.leader_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if sender != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {sender} does not lead this partition.")
    if wanted.partition_epoch < partition.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)


def _isr(wanted: PartitionDataInRequest, version: int) -> dict[int, int]:
    """The proposed ISR: brokers, and their epochs as far as they are known."""
    if version >= ISR_EPOCHS_SINCE:
        return {state.broker_id: state.broker_epoch for state in wanted.new_isr_with_epochs}
    return dict.fromkeys(wanted.new_isr, NO_EPOCH)


def _check_isr(image: MetadataImage, partition: Partition, isr: dict[int, int], sender: int) -> None:
    if sender not in isr or not isr.keys() <= set(partition.replicas):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "An ISR has the leader in it, and replicas alone.")
    for broker_id, epoch in isr.items():
        if broker_id in partition.isr and broker_id != sender:
            continue
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.is_active or epoch not in (NO_EPOCH, broker.epoch):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"Broker {broker_id} cannot be in sync now.")


def _record(
    topic_id: UUID, wanted: PartitionDataInRequest, partition: Partition, isr: list[int]
) -> PartitionChangeRecord:
    record = PartitionChangeRecord(wanted.partition_index, topic_id, isr=isr)
    if wanted.leader_recovery_state != partition.leader_recovery_state:
        record.leader_recovery_state = wanted.leader_recovery_state
    return record
