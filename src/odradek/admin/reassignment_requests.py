"""Requests that move partitions, for which librdkafka has no call: AlterPartitionReassignments (45),
ListPartitionReassignments (46), and ElectLeaders (43). Any broker takes them and passes them on to the controller.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from odradek.admin.access import Access
from odradek.admin.failures import check, words
from odradek.admin.places import Place
from odradek.admin.reassignment_plan import Replicas
from odradek.admin.requests import ask_any
from odradek.errors import ErrorCode
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

PARTITIONS_AT_ONCE = 500
TIMEOUT_MS = 60_000


class Election(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True)
class Reassignment:
    """A partition that is being moved."""

    place: Place
    replicas: Replicas  # all of them, those that leave too
    adding: Replicas
    removing: Replicas

    @property
    def target(self) -> Replicas:
        return tuple(one for one in self.replicas if one not in self.removing)


def alter(cluster: Access, targets: Mapping[Place, Replicas | None]) -> dict[Place, str]:
    """Begin to move partitions; None cancels a move that is under way. Returns why, where that was refused."""
    refused: dict[Place, str] = {}
    for some in _portions(targets):
        topics = [
            ReassignableTopic(
                topic, [ReassignablePartition(one.partition, _list(targets[one])) for one in places]
            )
            for topic, places in _by_topic(some).items()
        ]
        request = AlterPartitionReassignmentsRequest(TIMEOUT_MS, topics=topics)
        response = ask_any(cluster, request, AlterPartitionReassignmentsResponse)
        check(response.error_code, response.error_message)
        refused |= {
            Place(topic.name, one.partition_index): one.error_message or words(one.error_code)
            for topic in response.responses
            for one in topic.partitions
            if one.error_code
        }
    return refused


def list_all(cluster: Access) -> dict[Place, Reassignment]:
    """The moves that are under way."""
    request = ListPartitionReassignmentsRequest(TIMEOUT_MS, None)
    response = ask_any(cluster, request, ListPartitionReassignmentsResponse)
    check(response.error_code, response.error_message)
    found = [
        Reassignment(
            Place(topic.name, one.partition_index),
            tuple(one.replicas),
            tuple(one.adding_replicas),
            tuple(one.removing_replicas),
        )
        for topic in response.topics
        for one in topic.partitions
    ]
    return {one.place: one for one in sorted(found, key=lambda one: one.place)}


def elect(cluster: Access, election: Election, places: Collection[Place] | None) -> dict[Place, ErrorCode]:
    """Elect leaders, of all partitions where none are named; then those that need no election are not in the
    result."""
    outcomes: dict[Place, ErrorCode] = {}
    for some in _portions(places) if places is not None else [None]:
        topics = (
            None
            if some is None
            else [
                TopicPartitions(topic, [one.partition for one in each])
                for topic, each in _by_topic(some).items()
            ]
        )
        request = ElectLeadersRequest(election, topics, TIMEOUT_MS)
        response = ask_any(cluster, request, ElectLeadersResponse)
        check(response.error_code)
        outcomes |= {
            Place(topic.topic, one.partition_id): ErrorCode(one.error_code)
            for topic in response.replica_election_results
            for one in topic.partition_result
        }
    return dict(sorted(outcomes.items()))


def _list(replicas: Replicas | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _by_topic(places: Iterable[Place]) -> dict[str, list[Place]]:
    topics: dict[str, list[Place]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place)
    return topics


def _portions(places: Collection[Place]) -> Iterator[list[Place]]:
    ordered = sorted(places)
    for at in range(0, len(ordered), PARTITIONS_AT_ONCE):
        yield ordered[at : at + PARTITIONS_AT_ONCE]
