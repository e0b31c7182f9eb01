"""The quorum as its leader knows it, for DescribeQuorum."""

from functools import partial
from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.raft.core import Raft
from odradek.raft.roles import Leader
from odradek.raft.voters import ReplicaKey, VoterNode

UNKNOWN = -1


class ReplicaView(NamedTuple):
    """Times are wall-clock times; UNKNOWN if the replica has not fetched in this epoch."""

    key: ReplicaKey
    log_end_offset: int = UNKNOWN  # everything below is on its disk
    last_fetch_timestamp_ms: int = UNKNOWN
    last_caught_up_timestamp_ms: int = UNKNOWN  # when it last had everything that the leader had


class QuorumView(NamedTuple):
    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaView, ...]
    observers: tuple[ReplicaView, ...]
    nodes: tuple[VoterNode, ...]  # the voters' endpoints


def describe(raft: Raft, high_watermark: int, now_ms: int, steady_ms: int) -> QuorumView:
    """`now_ms` is the time of day, and `steady_ms` the same moment by the clock of the core. Raises KafkaError unless
    this replica leads."""
    role = raft.role
    if not isinstance(role, Leader):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node does not lead the quorum.")
    observers = [key for key in role.progress if not raft.voters.includes(key)]
    view_of = partial(_view_of, raft, role, now_ms, now_ms - steady_ms)
    return QuorumView(
        leader_id=role.leader_id,
        epoch=role.epoch,
        high_watermark=high_watermark,
        voters=tuple(map(view_of, raft.voters.keys)),
        observers=tuple(map(view_of, sorted(observers))),
        nodes=tuple(raft.voters),
    )


def _view_of(raft: Raft, role: Leader, now_ms: int, passed_ms: int, key: ReplicaKey) -> ReplicaView:
    if key.names(raft.node):
        return ReplicaView(key, raft.log.end_offset, now_ms, now_ms)
    progress = role.progress_of(key)
    fetched, caught_up = progress.fetched_ms, progress.caught_up_ms
    return ReplicaView(
        key,
        progress.end_offset,
        UNKNOWN if fetched is None else fetched + passed_ms,
        UNKNOWN if caught_up is None else caught_up + passed_ms,
    )
