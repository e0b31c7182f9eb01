"""Offsets: where logs start and end, and those that a group has committed."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from odradek.admin.access import REQUEST_TIMEOUT_S, Access, Address
from odradek.admin.failures import AdminError, BadRequest, Refused, check, words
from odradek.admin.metadata import address_of, existing_partitions, look_up
from odradek.admin.places import Place, by_topic
from odradek.admin.requests import PASSING, ask, ask_coordinator, retried
from odradek.errors import ErrorCode
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

# Instead of a time, in ListOffsets.
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
)
SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
NO_RECORD_SO_LATE = -1
MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
NO_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE)
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
TOPIC_AND_PARTITIONS = re.compile(r"([^:]+)(?::(\d+(?:,\d+)*))?")


@dataclass(frozen=True)
class Committed:
    offset: int
    leader_epoch: int | None
    metadata: str


# Logs


def end_offsets(cluster: Access, places: Iterable[Place]) -> dict[Place, int]:
    return find_offsets(cluster, dict.fromkeys(places, LATEST))


def start_offsets(cluster: Access, places: Iterable[Place]) -> dict[Place, int]:
    return find_offsets(cluster, dict.fromkeys(places, EARLIEST))


def find_offsets(cluster: Access, wanted: Mapping[Place, int]) -> dict[Place, int]:
    """Find offsets by time, or EARLIEST, LATEST …; -1 if no record is that late. Deleted partitions are left out."""
    found: dict[Place, int] = {}
    for place, outcome in list_offsets(cluster, wanted).items():
        if isinstance(outcome, int):
            found[place] = outcome
        elif outcome.code not in MISSING:
            raise outcome
    return found


def list_offsets(
    cluster: Access, wanted: Mapping[Place, int], isolation: int = READ_UNCOMMITTED
) -> dict[Place, int | Refused]:
    """The offset of each partition, or why its leader does not say; passing reasons are waited out for a while."""
    outcomes: dict[Place, int | Refused] = {}

    def attempt() -> None:
        left = {place: wanted[place] for place in wanted if not isinstance(outcomes.get(place), int)}
        outcomes.update(_list_offsets(cluster, left, isolation))
        for outcome in outcomes.values():
            if isinstance(outcome, Refused) and outcome.code in PASSING:
                raise outcome

    if wanted:
        try:
            retried(attempt)
        except Refused:
            pass  # the outcomes have it
    return {place: outcomes[place] for place in wanted}


def _list_offsets(cluster: Access, wanted: Mapping[Place, int], isolation: int) -> dict[Place, int | Refused]:
    outcomes: dict[Place, int | Refused] = {}
    leaders: dict[Address, list[Place]] = {}
    found, missing = look_up(cluster, by_topic(wanted))
    for place in wanted:
        if place.topic in missing:
            outcomes[place] = missing[place.topic]
            continue
        partition = found.topics[place.topic].partitions.get(place.partition)
        if partition is None:
            outcomes[place] = Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, str(place))
            continue
        try:
            leaders.setdefault(address_of(found, partition.leader, str(place)), []).append(place)
        except Refused as error:
            outcomes[place] = error
    for address, places in leaders.items():
        outcomes |= list_offsets_on(cluster, address, {place: wanted[place] for place in places}, isolation)
    return outcomes


def _by_topic(places: Iterable[Place]) -> dict[str, list[Place]]:
    return {topic: [Place(topic, one) for one in each] for topic, each in by_topic(places).items()}


def list_offsets_on(
    cluster: Access, address: Address, wanted: Mapping[Place, int], isolation: int
) -> dict[Place, int | Refused]:
    """The same of partitions that one broker leads."""
    topics = [
        ListOffsetsTopic(
            topic, [ListOffsetsPartition(one.partition, timestamp=wanted[one]) for one in places]
        )
        for topic, places in _by_topic(wanted).items()
    ]
    least_version = max(SINCE_VERSION.get(time_ms, 0) for time_ms in wanted.values())
    request = ListOffsetsRequest(-1, isolation, topics, int(REQUEST_TIMEOUT_S * 1000))
    response = ask(cluster, address, request, ListOffsetsResponse, least_version)
    return {
        Place(topic.name, one.partition_index): Refused(ErrorCode(one.error_code), None, topic.name)
        if one.error_code
        else one.offset
        for topic in response.topics
        for one in topic.partitions
    }


def named_places(cluster: Access, texts: Sequence[str]) -> list[Place]:
    """The partitions meant by `topic` or `topic:0,1,2`; AdminError for one that does not exist."""
    places: set[Place] = set()
    for text in texts:
        parts = TOPIC_AND_PARTITIONS.fullmatch(text)
        if parts is None:
            raise BadRequest(f"{text!r} is not of the form topic or topic:0,1,2")
        there = existing_partitions(cluster, parts[1])
        wanted = [int(number) for number in parts[2].split(",")] if parts[2] else there
        if missing := set(wanted).difference(there):
            raise AdminError(f"{parts[1]} has no partition {min(missing)}")
        places.update(Place(parts[1], partition) for partition in wanted)
    return sorted(places)


# Groups


def committed_offsets(cluster: Access, group: str) -> dict[Place, int]:
    """Read all offsets that a group has committed; a group that does not exist has none."""
    return {place: found.offset for place, found in committed(cluster, group).items()}


def committed(cluster: Access, group: str) -> dict[Place, Committed]:
    request = OffsetFetchRequest([OffsetFetchRequestGroup(group, topics=None)], group, None)

    def code_of(response: OffsetFetchResponse) -> int:
        return response.groups[0].error_code if response.groups else response.error_code

    response = ask_coordinator(cluster, group, request, OffsetFetchResponse, code_of)
    if code_of(response) in NO_GROUP and code_of(response):
        return {}
    check(code_of(response), None, group)
    topics = response.groups[0].topics if response.groups else response.topics
    found = {}
    for topic in topics:
        for one in topic.partitions:
            check(one.error_code, None, f"{topic.name}-{one.partition_index}")
            if one.committed_offset >= 0:
                epoch = one.committed_leader_epoch if one.committed_leader_epoch >= 0 else None
                found[Place(topic.name, one.partition_index)] = Committed(
                    one.committed_offset, epoch, one.metadata or ""
                )
    return found


def commit_offsets(cluster: Access, group: str, offsets: Mapping[Place, int]) -> None:
    """Commit without being a member, which is allowed only while the group has no members."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[OffsetCommitRequestPartition(one.partition, offsets[one]) for one in places],
        )
        for topic, places in _by_topic(offsets).items()
    ]

    def code_of(response: OffsetCommitResponse) -> int:
        codes = (one.error_code for topic in response.topics for one in topic.partitions)
        return next((code for code in codes if code in PASSING), 0)

    response = ask_coordinator(
        cluster, group, OffsetCommitRequest(group, topics=topics), OffsetCommitResponse, code_of
    )
    for topic in response.topics:
        for one in topic.partitions:
            if one.error_code == ErrorCode.UNKNOWN_MEMBER_ID:  # a classic group that has members says it so
                check(ErrorCode.NON_EMPTY_GROUP, None, group)
            check(one.error_code, None, f"{topic.name}-{one.partition_index}")


def delete_offsets(cluster: Access, group: str, places: Sequence[Place]) -> dict[Place, str | None]:
    """Delete committed offsets of a group; for each partition None, or why it failed."""
    topics = [
        OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(one) for one in partitions])
        for name, partitions in by_topic(places).items()
    ]
    response = ask_coordinator(
        cluster,
        group,
        OffsetDeleteRequest(group, topics),
        OffsetDeleteResponse,
        lambda response: response.error_code,
    )
    if response.error_code:
        raise Refused(ErrorCode(response.error_code), words(response.error_code), group)
    return {
        Place(topic.name, found.partition_index): words(found.error_code) if found.error_code else None
        for topic in response.topics
        for found in topic.partitions
    }
