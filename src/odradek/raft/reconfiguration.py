"""Changes of the voter set, one voter at a time (KIP-853): whether the leader may make one, and the resulting set.

One voter more or less is safe because every majority of the old set shares a voter with every majority of the new one,
so they cannot decide differently. That holds only if the old set is settled: the leader must have committed a record of
its own epoch, and the last change must be committed. Until then a change is refused, and may be tried again.
"""

from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.raft.log_view import LogView
from odradek.raft.roles import Leader
from odradek.raft.voters import ReplicaKey, VoterNode, VoterSet

CAUGHT_UP_WITHIN_MS = 3_600_000  # Kafka's limit for a replica that becomes a voter


class AddVoter(NamedTuple):
    voter: VoterNode


class RemoveVoter(NamedTuple):
    key: ReplicaKey


class UpdateVoter(NamedTuple):
    """New endpoints or supported versions of an existing voter."""

    voter: VoterNode


VoterChange = AddVoter | RemoveVoter | UpdateVoter


def change_voters(
    change: VoterChange, leader: Leader, log: LogView, high_watermark: int, now_ms: int
) -> VoterSet:
    """Returns the voters after the change. Raises KafkaError if it is not possible, or not yet."""
    if log.voters.kraft_version < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Voters can be changed from kraft.version 1 on.")
    if high_watermark <= leader.epoch_start_offset or log.voters.last_offset >= high_watermark:
        raise _not_yet("The last change of the voters, or of the leader, is not committed yet.")
    if isinstance(change, AddVoter):
        return _add(change.voter, leader, log, high_watermark, now_ms)
    if isinstance(change, RemoveVoter):
        return _remove(change.key, log.voters.last)
    _find(change.voter.key, log.voters.last)
    return log.voters.last.with_voter(change.voter)


def _add(voter: VoterNode, leader: Leader, log: LogView, high_watermark: int, now_ms: int) -> VoterSet:
    if log.voters.last.get(voter.key.node_id) is not None:
        raise KafkaError(ErrorCode.DUPLICATE_VOTER, f"Node {voter.key.node_id} is already a voter.")
    progress = leader.progress_of(voter.key)
    if progress.caught_up_ms is None or now_ms - progress.caught_up_ms > CAUGHT_UP_WITHIN_MS:
        raise _not_yet(f"Node {voter.key.node_id} has not caught up with the leader's log.")
    if progress.end_offset < high_watermark:
        raise _not_yet(f"Node {voter.key.node_id} is behind what is committed.")
    return log.voters.last.with_voter(voter)


def _remove(key: ReplicaKey, voters: VoterSet) -> VoterSet:
    _find(key, voters)
    if len(voters) == 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The only voter cannot be removed.")
    return voters.without(key.node_id)


def _find(key: ReplicaKey, voters: VoterSet) -> None:
    known = voters.get(key.node_id)
    if known is None or known.key != key:
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"{key} is not among the voters.")


def _not_yet(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{reason} Try again.")
