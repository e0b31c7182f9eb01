"""Which replica a consumer should read from (KIP-392): one in its rack, as Kafka's RackAwareReplicaSelector chooses.

The leader is preferred if it is in the consumer's rack, or if nobody else is. Otherwise it is, of the replicas in that
rack, the one with the most records. Only in-sync replicas count that have the consumer's offset: one that lags could
hold the consumer back for as long as it lags.

Pure: what the leader knows of the other replicas, and the registered brokers, are arguments.
"""

from collections.abc import Mapping

from odradek.metadata.image import Broker
from odradek.replication.leader import Leader
from odradek.replication.source import Source

NO_PREFERENCE = -1  # the leader serves the consumer itself


def preferred_replica(
    rack: str, listener: str, offset: int, source: Source, brokers: Mapping[int, Broker]
) -> int:
    """Choose a replica for a consumer in this rack, on this listener, that fetches from this offset. Only a leader
    sends it away.
    """
    if not rack or not isinstance(source, Leader) or _is_in_rack(rack, listener, brokers.get(source.node_id)):
        return NO_PREFERENCE
    candidates = [
        (progress.log_end_offset, progress.last_caught_up_ms, replica)
        for replica, progress in source.progress.items()
        if replica in source.isr
        and progress.log_start_offset <= offset <= progress.log_end_offset
        and _is_in_rack(rack, listener, brokers.get(replica))
    ]
    return max(candidates)[-1] if candidates else NO_PREFERENCE


def _is_in_rack(rack: str, listener: str, broker: Broker | None) -> bool:
    """And the consumer can reach it."""
    return (
        broker is not None
        and broker.rack == rack
        and not broker.is_fenced
        and broker.endpoint(listener) is not None
    )
