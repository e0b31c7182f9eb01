"""Which brokers get the replicas of new partitions.

Leaders go round the active brokers from a random start, so that every broker leads about as many. Followers go round
from a broker further on, and that distance grows with every turn: otherwise one broker's neighbour would have all of
its replicas, and take over all of its load if it fails. Fenced brokers, those that have stopped among them, follow only
if there are not enough others, and so do brokers whose disks are full; brokers that are about to stop, and cordoned
ones (KIP-1066), get nothing.

A partition's replicas are on as many racks as possible: the next replica goes to a rack that has the fewest so far.
Brokers without a rack count as one rack.

How many replicas a topic gets that names no number is `default.replication.factor`, which is fixed when a controller
starts, as in Kafka. Where nobody has set it, it follows the cluster: three, or as many as there are brokers.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from random import Random
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import Broker, MetadataImage, directory_for_new_logs
from odradek.metadata.records import PartitionRecord

DEFAULT_FACTOR = "default.replication.factor"
MOST_BY_DEFAULT = 3


def default_factor(image: MetadataImage, config: BrokerConfig) -> int:
    """Replicas of a topic that names no number."""
    if DEFAULT_FACTOR in config.static:
        factor: int = config[DEFAULT_FACTOR]
        return factor
    return factor_of_cluster(image)


def factor_of_cluster(image: MetadataImage) -> int:
    """The most replicas that make sense. Brokers that are down count: they get their replicas, and copy them when they
    are back. Cordoned ones get none."""
    brokers = sum(not broker.is_cordoned for broker in image.brokers.values())
    return max(1, min(MOST_BY_DEFAULT, brokers))


def place_replicas(
    brokers: Iterable[Broker], partition_count: int, replication_factor: int, rng: Random
) -> list[list[int]]:
    """The replicas of each partition, its preferred leader first."""
    usable = sorted(filter(_is_usable, brokers), key=lambda broker: broker.id)
    serving = [broker for broker in usable if not broker.is_fenced]
    active = _racks_in_turn([broker for broker in serving if not broker.is_full] or serving)
    others = sorted(
        (broker for broker in usable if broker not in active), key=lambda broker: broker.is_fenced
    )
    _check_factor(replication_factor, len(active), len(usable))
    start, shift = rng.randrange(len(active)), rng.randrange(len(active))
    return [
        _replicas_of(position, replication_factor, active, others, shift + position // len(active))
        for position in range(start, start + partition_count)
    ]


def _is_usable(broker: Broker) -> bool:
    is_stopping = broker.in_controlled_shutdown and not broker.is_fenced
    return not is_stopping and not broker.is_cordoned


def _racks_in_turn(brokers: Sequence[Broker]) -> list[Broker]:
    """The first broker of every rack, then the second of every rack …"""
    seen: Counter[str | None] = Counter()
    rounds = []
    for broker in brokers:
        rounds.append((seen[broker.rack], broker))
        seen[broker.rack] += 1
    return [broker for _, broker in sorted(rounds, key=lambda item: (item[0], item[1].id))]


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


def _replicas_of(
    position: int, count: int, active: Sequence[Broker], rest: Sequence[Broker], shift: int
) -> list[int]:
    first = position % len(active)
    others = [*active[first + 1 :], *active[:first]]
    if others:
        turn = shift % len(others)
        others = others[turn:] + others[:turn]
    leader = active[first]
    if count == 1:
        return [leader.id]
    racks = Counter([leader.rack])
    followers = _spread(others, count - 1, racks)
    return [leader.id, *followers, *_spread(rest, count - 1 - len(followers), racks)]


def _spread(brokers: Iterable[Broker], count: int, racks: Counter[str | None]) -> list[int]:
    """Up to `count` of them, those first whose rack has the fewest replicas (`racks`), otherwise in this order."""
    left = list(brokers)
    chosen: list[int] = []
    while left and len(chosen) < count:
        broker = min(left, key=lambda item: racks[item.rack])
        left.remove(broker)
        racks[broker.rack] += 1
        chosen.append(broker.id)
    return chosen


def check_assignment(
    image: MetadataImage, replicas: list[int], replication_factor: int | None, before: Collection[int] = ()
) -> None:
    """Refuse an invalid assignment of replicas. `before`: those that the partition has already, and may keep."""
    if not replicas:
        raise _bad_assignment("A partition needs at least one replica.")
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _bad_assignment(f"Broker {broker_id} is not registered.")
        if replicas.count(broker_id) > 1:
            raise _bad_assignment(f"Broker {broker_id} is assigned more than once to one partition.")
        if image.brokers[broker_id].is_cordoned and broker_id not in before:
            raise _bad_assignment(f"All log directories of broker {broker_id} are cordoned.")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _bad_assignment(
            f"One partition has {len(replicas)} replica(s) and another {replication_factor}."
        )


def new_partition(image: MetadataImage, topic_id: UUID, index: int, replicas: list[int]) -> PartitionRecord:
    """A partition without records: the first active replica leads, all active ones are in sync, but not those without
    room, if others are."""
    active = [broker_id for broker_id in replicas if image.brokers[broker_id].is_active]
    isr = [broker_id for broker_id in active if not image.brokers[broker_id].is_full] or active
    if not isr:
        raise _bad_assignment(f"None of the brokers assigned to partition {index} is active.")
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[directory_for_new_logs(image.brokers[broker_id].directories) for broker_id in replicas],
    )


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
