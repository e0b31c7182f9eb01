"""The messages between replicas: Kafka's quorum RPCs, reduced to their one partition.

Each body has the fields of the RPC of its name, in Kafka's newest version: Vote with pre-vote (KIP-996), directory ids
(KIP-853), and the follower's high watermark in Fetch (KIP-1166). The wire adds topic names and endpoints.

A `Message` is an envelope. A response repeats the `correlation_id` of its request; the receiver drops a response to a
request that it has given up, so a late or repeated one does no harm.

The core knows where records are, not what is in them. `FetchResponse.records` leaves the core as `ReadFrom`, a part of
a snapshot as `ReadSnapshot`, and the driver replaces them with the bytes when it sends the message.
"""

from typing import NamedTuple

from odradek.errors import ErrorCode
from odradek.raft.voters import ReplicaKey

NONE = ErrorCode.NONE
NOT_SAID = ""  # a request without a cluster id is accepted by any cluster


class OffsetAndEpoch(NamedTuple):
    """A position in the log: the end of an epoch, or, as the id of a snapshot, the end of the snapshot."""

    offset: int
    epoch: int


class ReadFrom(NamedTuple):
    """Records that the driver reads: whole batches from this offset on."""

    offset: int
    max_bytes: int


class ReadSnapshot(NamedTuple):
    """A part of a snapshot that the driver reads."""

    position: int
    max_bytes: int


class VoteRequest(NamedTuple):
    cluster_id: str
    voter: ReplicaKey  # the receiver: a replica with another directory id refuses it
    candidate: ReplicaKey
    epoch: int  # of the election; for a pre-vote, the epoch that the candidate is in
    last_epoch: int
    end_offset: int
    is_pre_vote: bool = False


class VoteResponse(NamedTuple):
    error: ErrorCode
    leader_id: int
    epoch: int
    is_granted: bool = False


class BeginQuorumEpochRequest(NamedTuple):
    cluster_id: str
    voter: ReplicaKey
    leader_id: int
    epoch: int


class BeginQuorumEpochResponse(NamedTuple):
    error: ErrorCode
    leader_id: int
    epoch: int


class EndQuorumEpochRequest(NamedTuple):
    cluster_id: str
    leader_id: int
    epoch: int
    preferred_successors: tuple[ReplicaKey, ...]  # the one with the longest log first


class EndQuorumEpochResponse(NamedTuple):
    error: ErrorCode
    leader_id: int
    epoch: int


class FetchRequest(NamedTuple):
    cluster_id: str
    replica: ReplicaKey
    epoch: int
    fetch_offset: int  # everything below is on the replica's disk
    last_fetched_epoch: int  # of the record before it
    high_watermark: int  # that the replica knows
    max_wait_ms: int
    max_bytes: int


class FetchResponse(NamedTuple):
    error: ErrorCode
    leader_id: int
    epoch: int
    high_watermark: int = -1
    records: bytes | ReadFrom = b""
    diverging: OffsetAndEpoch | None = None  # the logs diverge from here on: truncate
    snapshot_id: OffsetAndEpoch | None = None  # the leader's log starts later: fetch this snapshot


class FetchSnapshotRequest(NamedTuple):
    cluster_id: str
    replica: ReplicaKey
    epoch: int
    snapshot_id: OffsetAndEpoch
    position: int  # the bytes before it have arrived
    max_bytes: int


class FetchSnapshotResponse(NamedTuple):
    error: ErrorCode
    leader_id: int
    epoch: int
    snapshot_id: OffsetAndEpoch
    size: int = 0  # of the whole snapshot
    position: int = 0
    data: bytes | ReadSnapshot = b""


Request = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest | FetchSnapshotRequest
Response = (
    VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | FetchResponse | FetchSnapshotResponse
)
REQUESTS = (VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, FetchSnapshotRequest)


class Message(NamedTuple):
    sender: int
    receiver: int  # a node id, or an id below -1 for a bootstrap server whose node id is not known yet
    correlation_id: int
    body: Request | Response
