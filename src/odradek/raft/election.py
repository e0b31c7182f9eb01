"""The state that a replica must remember across restarts: its epoch, the leader of that epoch, and its vote.

It is kept in the file `quorum-state`, one line of JSON in Kafka's version 1. It is on disk before any message that
depends on it is sent; otherwise a restarted voter could vote twice in one epoch.
"""

import json
from typing import Any, NamedTuple
from uuid import UUID

from odradek.errors import DamagedData
from odradek.model import id_from_text, id_to_text
from odradek.raft.voters import NO_DIRECTORY_ID, ReplicaKey

QUORUM_STATE_FILE = "quorum-state"
QUORUM_STATE_VERSION = 1

NO_NODE = -1


class ElectionState(NamedTuple):
    """The leader of the epoch, if it is known, and the replica that this one voted for in it, if any."""

    leader_epoch: int
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: UUID = NO_DIRECTORY_ID

    @property
    def voted(self) -> ReplicaKey | None:
        return None if self.voted_id == NO_NODE else ReplicaKey(self.voted_id, self.voted_directory_id)


class QuorumStateCorrupt(DamagedData):
    """A voter that does not know how it voted must not take part: the node does not start."""


def encode_election_state(state: ElectionState) -> bytes:
    document = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": id_to_text(state.voted_directory_id),
        "data_version": QUORUM_STATE_VERSION,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_election_state(data: bytes) -> ElectionState:
    """Also reads version 0, which has no directory ids."""
    try:
        document = json.loads(data)
        version = document["data_version"]
        if version not in (0, QUORUM_STATE_VERSION):
            raise QuorumStateCorrupt(f"its version {version} is unknown")
        return ElectionState(
            _number(document["leaderEpoch"]),
            _number(document["leaderId"]),
            _number(document["votedId"]),
            id_from_text(document["votedDirectoryId"]) if version else NO_DIRECTORY_ID,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise QuorumStateCorrupt(f"it cannot be read ({error!r})") from None


def _number(value: Any) -> int:
    if type(value) is not int or value < -1:
        raise ValueError(f"{value!r} is neither an id nor an epoch")
    return value
