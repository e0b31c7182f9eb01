"""A scene: what brokers say about one topic, and about the groups that the poller has seen reading it. The poller looks
at all topics, and less often.

ListOffsets tells consumers the high watermark and replicas the log end, so the leader is asked as both. Whoever does
not respond is left out of the picture, and the rest is drawn. Nothing is tried twice: the next look comes soon, and a
picture has to move while brokers die.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from odradek.admin.access import Access, Address
from odradek.admin.failures import AdminError, Refused
from odradek.admin.groups import Group, describe_group_at
from odradek.admin.metadata import metadata_of
from odradek.admin.offsets import LATEST, READ_UNCOMMITTED, list_offsets_on
from odradek.admin.places import Place
from odradek.admin.requests import Node, ask
from odradek.console.picture.scene import (
    NO_COORDINATOR,
    BrokerScene,
    ConsumerScene,
    GroupScene,
    PartitionScene,
    ReplicaScene,
    Scene,
)
from odradek.console.requests import NotFound
from odradek.console.watch.groups import committed_on
from odradek.console.watch.seen import GroupSeen, Seen, TopicSeen, Topology
from odradek.console.watch.topology import topic_seen
from odradek.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

MOST_GROUPS = 4
MOST_MISSED = 20
TIMEOUT_MS = 5000


def ask_scene(
    access: Access, seen: Seen, topic: str, first: int, count: int, before: Scene | None = None
) -> Scene:
    found, alive = _topic_now(access, seen, topic)
    numbers = range(first, min(first + count, len(found.leaders)))
    watermarks, ends = _offsets(access, found, numbers, alive)
    sizes = _sizes(access, found, numbers, alive)
    partitions = tuple(
        PartitionScene(
            number,
            found.leaders[number],
            tuple(
                ReplicaScene(
                    broker,
                    broker == found.leaders[number],
                    broker in found.isr[number],
                    broker in alive,
                    sizes.get((broker, number)),
                )
                for broker in found.replicas[number]
            ),
            watermarks.get(number),
            ends.get(number),
        )
        for number in numbers
    )
    groups = list(_groups(access, topic, alive, list((seen.groups or {}).values())))
    groups += waiting_groups(before, {one.group for one in groups}, alive.keys())
    return Scene(topic, _brokers(seen.topology, found, alive.keys()), partitions, tuple(groups))


def _topic_now(access: Access, seen: Seen, name: str) -> tuple[TopicSeen, dict[int, Address]]:
    """The topic and the brokers that are alive; as they were seen last, if nobody responds now."""
    try:
        found = metadata_of(access, [name])
        return topic_seen(found.topics[name]), {one.id: one.address for one in found.brokers.values()}
    except Refused as error:
        raise NotFound(str(error)) from None
    except AdminError:
        topology = seen.topology
        if topology is None or name not in topology.topics:
            raise
    alive = [one for one in topology.status.brokers if not one.is_fenced]
    return topology.topics[name], {one.broker: Address(one.host, one.port) for one in alive}


def _brokers(topology: Topology | None, topic: TopicSeen, alive: Set[int]) -> tuple[BrokerScene, ...]:
    """Return the brokers that have replicas of the topic; one that nobody lists any more is away."""
    controller = topology.controller if topology is not None else None
    wanted = sorted({broker for replicas in topic.replicas for broker in replicas})
    return tuple(BrokerScene(one, one in alive, one == controller) for one in wanted)


def _offsets(
    access: Access, topic: TopicSeen, numbers: Sequence[int], alive: Mapping[int, Address]
) -> tuple[dict[int, int], dict[int, int]]:
    """High watermarks and log ends, by partition."""
    watermarks: dict[int, int] = {}
    ends: dict[int, int] = {}
    led: dict[int, list[int]] = {}
    for number in numbers:
        leader = topic.leaders[number]
        if leader is not None and leader in alive:
            led.setdefault(leader, []).append(number)
    for leader, some in led.items():
        try:
            places = dict.fromkeys([Place(topic.name, one) for one in some], LATEST)
            found = list_offsets_on(access, alive[leader], places, READ_UNCOMMITTED)
            watermarks |= {
                place.partition: offset for place, offset in found.items() if isinstance(offset, int)
            }
            ends |= _log_ends(access, alive[leader], leader, topic.name, some)
        except AdminError:
            continue
    return watermarks, ends


def _log_ends(
    access: Access, address: Address, leader: int, topic: str, numbers: Sequence[int]
) -> dict[int, int]:
    asked = [ListOffsetsTopic(topic, [ListOffsetsPartition(one, timestamp=LATEST) for one in numbers])]
    request = ListOffsetsRequest(leader, READ_UNCOMMITTED, asked, TIMEOUT_MS)
    response = ask(access, address, request, ListOffsetsResponse)
    return {
        one.partition_index: one.offset
        for each in response.topics
        for one in each.partitions
        if not one.error_code
    }


def _sizes(
    access: Access, topic: TopicSeen, numbers: Sequence[int], alive: Mapping[int, Address]
) -> dict[tuple[int, int], int]:
    """Bytes of each replica, by broker and partition."""
    wanted: dict[int, list[int]] = {}
    for number in numbers:
        for broker in topic.replicas[number]:
            if broker in alive:
                wanted.setdefault(broker, []).append(number)
    sizes = {}
    for broker, some in wanted.items():
        request = DescribeLogDirsRequest([DescribableLogDirTopic(topic.name, some)])
        try:
            response = ask(access, alive[broker], request, DescribeLogDirsResponse)
        except AdminError:
            continue
        for directory in response.results:
            for each in directory.topics:
                for one in each.partitions:
                    if not one.is_future_key:
                        sizes[broker, one.partition_index] = one.partition_size
    return sizes


def _groups(
    access: Access, topic: str, alive: Mapping[int, Address], groups: Sequence[GroupSeen]
) -> Iterator[GroupScene]:
    """Groups that read the topic. One that has members but no offsets yet is described to find out."""
    wanted = [one for one in groups if topic in one.topics]
    wanted += [one for one in groups if not one.topics and one.state not in ("Empty", "Dead")]
    shown = 0
    for one in wanted[: 3 * MOST_GROUPS]:
        address = alive.get(one.coordinator)
        if address is None or shown == MOST_GROUPS:
            continue
        try:
            found = describe_group_at(access, Node(one.coordinator, address), one.group)
            committed = dict(committed_on(access, address, [one.group])).get(one.group, {})
        except AdminError:
            continue
        scene = _group(topic, one.coordinator, found, committed)
        if topic in one.topics or any(consumer.partitions for consumer in scene.consumers):
            shown += 1
            yield scene


def _group(topic: str, coordinator: int, found: Group, committed: Mapping[Place, int]) -> GroupScene:
    consumers = tuple(
        ConsumerScene(
            member.member_id,
            member.instance_id or member.client_id or member.member_id,
            tuple(place.partition for place in member.partitions if place.topic == topic),
        )
        for member in sorted(found.members, key=lambda member: (member.client_id, member.member_id))
    )
    offsets = {place.partition: offset for place, offset in committed.items() if place.topic == topic}
    return GroupScene(found.group, found.state, consumers, offsets, coordinator)


def waiting_groups(before: Scene | None, found: Set[str], alive: Set[int]) -> list[GroupScene]:
    """Groups that were drawn before and whose coordinator is away: they stay until another one has taken over."""
    return [
        replace(group, state=NO_COORDINATOR, missed=group.missed + 1)
        for group in (before.groups if before is not None else ())
        if group.group not in found and group.coordinator not in alive and group.missed < MOST_MISSED
    ]
