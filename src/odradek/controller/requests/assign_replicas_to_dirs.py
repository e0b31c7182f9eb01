"""AssignReplicasToDirs (73): a broker says in which of its directories the logs of replicas are (KIP-858).

A broker here has one directory, so there is one thing to say: the log of a replica is lost (`LOST_DIRECTORY`), because
it is damaged. The replica leaves the ISR and the ELR in the same write, and another one leads if it led. It may then
throw its log away and copy the partition again; when it is back in the ISR, its log is found again.

A new leader epoch begins, even if the leader stays: what the replica fetched with the damaged log must not bring it
back into the ISR.

That is refused (ELIGIBLE_LEADERS_NOT_AVAILABLE) while no other replica can lead cleanly: a damaged log is better than
none, or one that lacks records.
"""

from typing import Any
from uuid import UUID

from odradek.controller.brokers import Records, check_broker_epoch
from odradek.controller.controller import Terms
from odradek.controller.elections import Election, change_record, next_registration, rules_of
from odradek.controller.parts import Part
from odradek.errors import ErrorCode
from odradek.metadata.image import LOST_DIRECTORY, NO_LEADER, Broker, MetadataImage, Partition, Topic
from odradek.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsResponse,
    DirectoryDataInResponse,
    PartitionDataInResponse,
    TopicDataInResponse,
)


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, AssignReplicasToDirsResponse]:
    request: Any = part.request
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: Records = []
    response = AssignReplicasToDirsResponse()
    for directory in request.directories:
        directory_response = DirectoryDataInResponse(directory.id_)
        response.directories.append(directory_response)
        for topic in directory.topics:
            topic_response = TopicDataInResponse(topic.topic_id)
            directory_response.topics.append(topic_response)
            for item in topic.partitions:
                code = _assign(image, terms, broker, directory.id_, topic.topic_id, item, records)
                topic_response.partitions.append(PartitionDataInResponse(item.partition_index, code))
    return records, response


def _assign(
    image: MetadataImage,
    terms: Terms,
    broker: Broker,
    directory: UUID,
    topic_id: UUID,
    item: Any,
    records: Records,
) -> ErrorCode:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    before = topic.partitions.get(item.partition_index)
    if before is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.id not in before.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if directory == before.directory_of(broker.id):
        return ErrorCode.NONE
    if directory != LOST_DIRECTORY:
        return ErrorCode.INVALID_REQUEST
    after = _without_log(image, terms, topic, before, broker.id)
    if after.leader == NO_LEADER:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    record = change_record(topic_id, item.partition_index, before, after)
    if record is not None:
        records.append(record)
    return ErrorCode.NONE


def _without_log(
    image: MetadataImage, terms: Terms, topic: Topic, partition: Partition, broker_id: int
) -> Partition:
    """The registration once this replica has left the ISR and the ELR, and its log counts as lost."""
    others = {broker.id for broker in image.active_brokers()} - {broker_id}
    min_isr = rules_of(image, topic, terms.config).min_isr
    isr = [replica for replica in partition.isr if replica != broker_id]
    lost = partition.in_directory(broker_id, LOST_DIRECTORY)
    after = next_registration(lost, others, min_isr, Election.ONLINE, isr=isr, killed=broker_id)
    return after._replace(leader_epoch=partition.leader_epoch + 1)
