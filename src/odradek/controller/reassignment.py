"""Moves a partition to other brokers: its replicas before, during and after. Pure.

A reassignment has a target, and three stages:

1. The new replicas are added to the partition: its replicas are the target, followed by those that will be removed.
   `adding_replicas` and `removing_replicas` say which is which. The new ones follow the leader like any other replica.
2. They catch up, and the leader proposes an ISR with them (AlterPartition).
3. Once all of them are in sync the reassignment completes, in the same record: the removed replicas leave the partition
   and its ISR. If the leader is one of them, another replica is elected.

A target that adds nothing completes at once, if the ISR allows it. Until then a reassignment can be replaced by another
one, or cancelled: then the added replicas leave instead.

A replica that leaves raises the leader epoch, even if the leader stays: so nothing that it fetched before counts later.

As in Kafka, the replicas to add and to remove are counted from those that the partition has now: if a reassignment that
replaced another one is cancelled, the replicas that the first one had added stay. Unlike in Kafka 4.3, a replacing
target without a new broker takes back the added replicas that it does not name: Kafka waits for them, and never
completes.
"""

from collections.abc import Sequence

from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import MetadataImage, Partition, directory_for_new_logs


def is_reassigning(partition: Partition) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def reassigned(image: MetadataImage, partition: Partition, target: Sequence[int]) -> Partition:
    """The partition with the replicas that it has while it moves to its target."""
    removing = sorted(set(partition.replicas) - set(target))
    adding = sorted(set(target) - set(partition.replicas))
    still_adding = [replica for replica in partition.adding_replicas if replica in target]
    return _placed(image, partition, (*target, *removing))._replace(
        adding_replicas=tuple(adding or still_adding), removing_replicas=tuple(removing)
    )


def reverted(image: MetadataImage, partition: Partition) -> tuple[Partition, list[int]]:
    """The partition without the replicas that were being added, and its ISR."""
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    if not replicas:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All replicas are being added.")
    isr = [replica for replica in partition.isr if replica in replicas]
    return _ended(_placed(image, partition, replicas)), isr


def completed(partition: Partition, isr: tuple[int, ...]) -> tuple[Partition, tuple[int, ...]]:
    """The partition and its ISR, after its reassignment if this ISR completes one.

    All added replicas must be in sync; if more are removed than added, all that remain must be."""
    if not is_reassigning(partition):
        return partition, isr
    adding, removing = partition.adding_replicas, partition.removing_replicas
    remaining = tuple(replica for replica in partition.replicas if replica not in removing)
    in_sync = tuple(replica for replica in isr if replica not in removing)
    required = remaining if len(adding) < len(removing) else adding
    if not in_sync or not set(required) <= set(in_sync):
        return partition, isr
    directories = tuple(partition.directory_of(replica) for replica in remaining)
    return _ended(partition._replace(replicas=remaining, directories=directories)), in_sync


def target_size(partition: Partition) -> int:
    """The number of replicas that the partition has once it is no longer reassigned."""
    return len(set(partition.replicas) - set(partition.removing_replicas))


def _placed(image: MetadataImage, partition: Partition, replicas: tuple[int, ...]) -> Partition:
    """Old replicas keep their directories."""
    directories = tuple(
        partition.directory_of(replica)
        if replica in partition.replicas
        else directory_for_new_logs(image.brokers[replica].directories)
        for replica in replicas
    )
    return partition._replace(replicas=replicas, directories=directories)


def _ended(partition: Partition) -> Partition:
    return partition._replace(adding_replicas=(), removing_replicas=())
