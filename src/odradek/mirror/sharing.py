"""The assignment of partitions to processes: the leader of the group decides, by what each member has now.

Everybody keeps what it has, up to its share; the rest goes to those who have least. So a partition moves only if it
must, and all members have the same number of partitions, give or take one.
"""

import json
from collections.abc import Iterable, Mapping

from odradek.model import TopicPartition

FORMAT = 1


def assigned(
    owned: Mapping[str, Iterable[TopicPartition]], partitions: Iterable[TopicPartition]
) -> dict[str, list[TopicPartition]]:
    """The partitions of each member."""
    left = set(partitions)
    members = sorted(owned, key=lambda member: (-len(set(owned[member]) & left), member))
    share, more = divmod(len(left), len(members))
    shares = {member: share + (number < more) for number, member in enumerate(members)}
    result: dict[str, list[TopicPartition]] = {}
    for member in members:
        result[member] = sorted(set(owned[member]) & left)[: shares[member]]
        left -= set(result[member])
    rest = iter(sorted(left))
    for member in members:
        missing = shares[member] - len(result[member])
        result[member] = sorted([*result[member], *(next(rest) for _ in range(missing))])
    return result


def encode(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode what a member says that it has, or what it is told to take."""
    return json.dumps({"format": FORMAT, "partitions": sorted(partitions)}, separators=(",", ":")).encode()


def decode(data: bytes) -> list[TopicPartition]:
    """Nothing, from a version that writes it in another way: then it is assigned as to one that has nothing."""
    found = json.loads(data) if data else {}
    if found.get("format") != FORMAT:
        return []
    return [TopicPartition(topic, number) for topic, number in found["partitions"]]
