"""ElectLeaders (43): an operator asks for elections, for some partitions or for all.

A preferred election makes the first replica of a partition its leader, if it is in sync. An unclean one gives a
partition without a leader one that may have lost records, whatever the topic's settings say. If the request is for all
partitions, those that need no election are not in the response.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import NO_LEADER, MetadataImage, Partition
from odradek.metadata.records import PartitionChangeRecord
from odradek.wire.codec import Steps
from odradek.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

ELECTIONS = (Election.PREFERRED, Election.UNCLEAN)


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, ElectLeadersResponse]:
    request: Any = part.request
    if request.election_type not in range(len(ELECTIONS)):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no election type {request.election_type}.")
    election = ELECTIONS[request.election_type]
    active = {broker.id for broker in image.active_brokers()}
    is_for_all = part.partition_count is not None
    records: Records = []
    response = ElectLeadersResponse()
    for asked in request.topic_partitions or ():
        result = ReplicaElectionResult(asked.topic)
        response.replica_election_results.append(result)
        for index in asked.partitions:
            try:
                record = _elect(image, asked.topic, index, election, active, terms.config)
                records.append(record)
                result.partition_result.append(PartitionResult(index, ErrorCode.NONE, None))
            except KafkaError as error:
                if not (is_for_all and error.code is ErrorCode.ELECTION_NOT_NEEDED):
                    result.partition_result.append(PartitionResult(index, error.code, error.message or None))
    return records, response


def _elect(
    image: MetadataImage, name: str, index: int, election: Election, active: set[int], config: BrokerConfig
) -> PartitionChangeRecord:
    topic = image.topics.get(name)
    before = None if topic is None else topic.partitions.get(index)
    if topic is None or before is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {index} of topic '{name}'."
        )
    if not _is_needed(before, election):
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    rules = rules_of(image, topic, config)._replace(election=election)
    after = next_registration(before, active, *rules)
    record = change_record(topic.id, index, before, with_found_logs(image, after))
    if record is None:
        raise KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if election is Election.PREFERRED
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
    return record


def _is_needed(partition: Partition, election: Election) -> bool:
    if election is Election.PREFERRED:
        return partition.leader != partition.replicas[0]
    return partition.leader == NO_LEADER


def cut(image: MetadataImage, request: ElectLeadersRequest, config: BrokerConfig) -> Steps[list[Part]]:
    """Some partitions at a time. Parts of a request for all partitions have a partition count."""
    everything = request.topic_partitions is None
    topics: Sequence[TopicPartitions] = request.topic_partitions or []
    if everything:
        topics = [TopicPartitions(topic.name, sorted(topic.partitions)) for topic in image.topics.values()]
    parts = yield from cut_partitions(topics)
    return [Part(replace(request, topic_partitions=part), 0 if everything else None) for part in parts]
