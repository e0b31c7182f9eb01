"""Which brokers get the replicas of new partitions.

Leaders go round the active brokers from a random start, so that every broker leads about as often. Followers
go round from a broker further on, and that distance grows with every turn: otherwise one broker's
neighbour would hold all of its replicas, and take over all of its load when it fails. Fenced brokers follow
only where there are not enough others. Racks are not looked at.
"""

from collections.abc import Iterable
from random import Random
from uuid import UUID

from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import Broker, MetadataImage
from odradek.metadata.records import PartitionRecord

UNASSIGNED_DIRECTORY = UUID(int=0)
MAX_REPLICATION_FACTOR = 1  # until followers fetch from leaders
UNLIMITED = 1 << 15


def place_replicas(
    brokers: Iterable[Broker], partition_count: int, replication_factor: int, rng: Random
) -> list[list[int]]:
    """The replicas of each partition, its preferred leader first."""
    usable = [broker for broker in brokers if not broker.in_controlled_shutdown]
    active = sorted(broker.id for broker in usable if not broker.is_fenced)
    fenced = sorted(broker.id for broker in usable if broker.is_fenced)
    _check_factor(replication_factor, len(active), len(usable))
    start, shift = rng.randrange(len(active)), rng.randrange(len(active))
    return [
        _replicas_of(position, replication_factor, active, fenced, shift + position // len(active))
        for position in range(start, start + partition_count)
    ]


def _check_factor(replication_factor: int, active: int, usable: int) -> None:
    if active == 0:
        reason = "no broker is active"
    elif replication_factor > usable:
        reason = f"there are only {usable} broker(s)"
    else:
        return
    raise KafkaError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"A partition cannot have {replication_factor} replica(s): {reason}.",
    )


def _replicas_of(position: int, count: int, active: list[int], fenced: list[int], shift: int) -> list[int]:
    first = position % len(active)
    others = active[first + 1 :] + active[:first]
    if others:
        turn = shift % len(others)
        others = others[turn:] + others[:turn]
    return [active[first], *others, *fenced][:count]


def check_assignment(image: MetadataImage, replicas: list[int], replication_factor: int | None) -> None:
    """Refuse replicas chosen by hand that cannot be."""
    if not replicas:
        raise _bad_assignment("A partition needs at least one replica.")
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _bad_assignment(f"Broker {broker_id} is not registered.")
        if replicas.count(broker_id) > 1:
            raise _bad_assignment(f"Broker {broker_id} is assigned more than once to one partition.")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _bad_assignment(
            f"One partition has {len(replicas)} replica(s) and another {replication_factor}."
        )


def check_replication(partitions: Iterable[list[int]], most: int) -> None:
    """Refuse replicas that would be promised and stay empty, however they were chosen."""
    count = max(map(len, partitions), default=0)
    if count > most:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"A partition cannot have {count} replicas: partitions are not replicated yet.",
        )


def new_partition(image: MetadataImage, topic_id: UUID, index: int, replicas: list[int]) -> PartitionRecord:
    """A partition without records: the first active replica leads, all active ones are in sync."""
    isr = [broker_id for broker_id in replicas if image.brokers[broker_id].is_active]
    if not isr:
        raise _bad_assignment(f"Of the brokers assigned to partition {index} none is active.")
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[_directory_of(image.brokers[broker_id]) for broker_id in replicas],
    )


def _directory_of(broker: Broker) -> UUID:
    """With several directories the broker itself chooses, and tells later."""
    return broker.directories[0] if len(broker.directories) == 1 else UNASSIGNED_DIRECTORY


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
