"""What a leader knows of its quorum, for whoever asks: DescribeQuorum is made from this."""

from typing import NamedTuple

from odradek.raft.voters import ReplicaKey, VoterNode

UNKNOWN = -1


class ReplicaView(NamedTuple):
    """Times are of the clock on the wall; UNKNOWN where the replica has not fetched in this epoch."""

    key: ReplicaKey
    log_end_offset: int = UNKNOWN  # all below is on its disk
    last_fetch_timestamp_ms: int = UNKNOWN
    last_caught_up_timestamp_ms: int = UNKNOWN  # when it last had all that the leader had


class QuorumView(NamedTuple):
    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaView, ...]
    observers: tuple[ReplicaView, ...]
    nodes: tuple[VoterNode, ...]  # the voters' endpoints
