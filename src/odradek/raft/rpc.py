"""The quorum's messages on the wire: Kafka's Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot.

They have room for many partitions, but the quorum has one: partition 0 of `__cluster_metadata`. A request about any
other is refused. Requests are written in the newest version. The older versions that Kafka still serves are read too;
fields that they lack (directory ids, the voter that is asked) get values that mean "not given".

An INCONSISTENT_CLUSTER_ID goes into the top-level error code, with nothing else in the response. Every other error goes
into the partition, together with the leader and the epoch that the sender knows.

Addresses travel in the same messages, though the core does not need them: a leader that begins or ends its epoch sends
its endpoints (`endpoints_in_request`), and a response has the address of the leader that it names (`from_response`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.apis.table import named
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.model import METADATA_TOPIC, METADATA_TOPIC_ID
from odradek.raft.address import NodeAddress
from odradek.raft.messages import (
    NOT_SAID,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from odradek.raft.voters import Endpoint, ReplicaKey
from odradek.wire.codec import Message
from odradek.wire.messages import begin_quorum_epoch, end_quorum_epoch, fetch, fetch_snapshot, vote

FETCH, VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, FETCH_SNAPSHOT = (
    named(name).key for name in ("Fetch", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot")
)

PARTITION = 0
NO_NODE = NO_EPOCH = NO_OFFSET = -1
FETCH_BY_ID_SINCE = 13
REPLICA_STATE_SINCE = 15


Addresses = Mapping[int, NodeAddress]  # by node id
Leader = tuple[int, NodeAddress]  # its node id and address


class Call(NamedTuple):
    api_key: int
    version: int
    message: Message


class _Place(NamedTuple):
    """The names of the fields that identify the topic and the partition; each RPC has its own."""

    topic: str
    name: object
    partition: str


_BY_NAME = _Place("topic_name", METADATA_TOPIC, "partition_index")
_SNAPSHOT = _Place("name", METADATA_TOPIC, "partition")


def _only_partition(topics: Sequence[Any], place: _Place = _BY_NAME) -> Any:
    """Raises KafkaError unless there is one partition, and it is the quorum's."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The quorum has one partition.")
    topic, partition = topics[0], topics[0].partitions[0]
    if (getattr(topic, place.topic), getattr(partition, place.partition)) != (place.name, PARTITION):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if place == _SNAPSHOT else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, f"The quorum's only partition is {METADATA_TOPIC}-{PARTITION}.")
    return partition


# Requests that we send


def to_request(body: Request, own: Sequence[Endpoint] = ()) -> Call:
    """`own` are the endpoints of this node, which a leader sends when it begins and ends its epoch."""
    api_key, message_type, write = _REQUEST_WRITERS[type(body)]
    version: int = message_type.MAX_VERSION  # type: ignore[attr-defined]
    return Call(api_key, version, write(body, own))


def _write_vote(body: VoteRequest, own: Sequence[Endpoint]) -> Message:
    partition = vote.PartitionDataInRequest(
        PARTITION,
        replica_epoch=body.epoch,
        replica_id=body.candidate.node_id,
        replica_directory_id=body.candidate.directory_id,
        voter_directory_id=body.voter.directory_id,
        last_offset_epoch=body.last_epoch,
        last_offset=body.end_offset,
        pre_vote=body.is_pre_vote,
    )
    topics = [vote.TopicDataInRequest(METADATA_TOPIC, [partition])]
    return vote.VoteRequest(_cluster_id(body), body.voter.node_id, topics)


def _write_begin(body: BeginQuorumEpochRequest, own: Sequence[Endpoint]) -> Message:
    partition = begin_quorum_epoch.PartitionDataInRequest(
        PARTITION, body.voter.directory_id, body.leader_id, body.epoch
    )
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        _cluster_id(body),
        body.voter.node_id,
        [begin_quorum_epoch.TopicDataInRequest(METADATA_TOPIC, [partition])],
        [begin_quorum_epoch.LeaderEndpoint(*endpoint) for endpoint in own],
    )


def _write_end(body: EndQuorumEpochRequest, own: Sequence[Endpoint]) -> Message:
    candidates = [end_quorum_epoch.ReplicaInfo(*key) for key in body.preferred_successors]
    partition = end_quorum_epoch.PartitionDataInRequest(PARTITION, body.leader_id, body.epoch, candidates)
    return end_quorum_epoch.EndQuorumEpochRequest(
        _cluster_id(body),
        [end_quorum_epoch.TopicDataInRequest(METADATA_TOPIC, [partition])],
        [end_quorum_epoch.LeaderEndpoint(*endpoint) for endpoint in own],
    )


def _write_fetch(body: FetchRequest, own: Sequence[Endpoint]) -> Message:
    partition = fetch.FetchPartition(
        PARTITION,
        current_leader_epoch=body.epoch,
        fetch_offset=body.fetch_offset,
        last_fetched_epoch=body.last_fetched_epoch,
        replica_directory_id=body.replica.directory_id,
        high_watermark=body.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=_cluster_id(body),
        replica_state=fetch.ReplicaState(body.replica.node_id),
        max_wait_ms=body.max_wait_ms,
        max_bytes=body.max_bytes,
        topics=[fetch.FetchTopic(METADATA_TOPIC_ID, METADATA_TOPIC, [partition])],
    )


def _write_fetch_snapshot(body: FetchSnapshotRequest, own: Sequence[Endpoint]) -> Message:
    partition = fetch_snapshot.PartitionSnapshotInRequest(
        PARTITION,
        body.epoch,
        fetch_snapshot.SnapshotIdInRequest(*body.snapshot_id),
        body.position,
        body.replica.directory_id,
    )
    topics = [fetch_snapshot.TopicSnapshotInRequest(METADATA_TOPIC, [partition])]
    return fetch_snapshot.FetchSnapshotRequest(
        _cluster_id(body), body.replica.node_id, body.max_bytes, topics
    )


def _cluster_id(body: Request) -> str | None:
    return None if body.cluster_id == NOT_SAID else body.cluster_id


_REQUEST_WRITERS: dict[type, tuple[int, type[Message], Callable[[Any, Sequence[Endpoint]], Message]]] = {
    VoteRequest: (VOTE, vote.VoteRequest, _write_vote),
    BeginQuorumEpochRequest: (BEGIN_QUORUM_EPOCH, begin_quorum_epoch.BeginQuorumEpochRequest, _write_begin),
    EndQuorumEpochRequest: (END_QUORUM_EPOCH, end_quorum_epoch.EndQuorumEpochRequest, _write_end),
    FetchRequest: (FETCH, fetch.FetchRequest, _write_fetch),
    FetchSnapshotRequest: (FETCH_SNAPSHOT, fetch_snapshot.FetchSnapshotRequest, _write_fetch_snapshot),
}


# Requests that we receive


def from_request(api_key: int, version: int, message: Any) -> Request:
    """Raises KafkaError if it is not about the quorum's partition."""
    return _REQUEST_READERS[api_key](message, version)


def endpoints_in_request(api_key: int, message: Any) -> Leader | None:
    """The leader that sends this, and its address: BeginQuorumEpoch and EndQuorumEpoch have it from version 1 on."""
    if api_key not in (BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH) or not message.leader_endpoints:
        return None
    first = message.leader_endpoints[0]
    return _only_partition(message.topics).leader_id, NodeAddress(first.host, first.port)


def _read_vote(message: vote.VoteRequest, version: int) -> VoteRequest:
    partition = _only_partition(message.topics)
    return VoteRequest(
        message.cluster_id or NOT_SAID,
        ReplicaKey(message.voter_id, partition.voter_directory_id),
        ReplicaKey(partition.replica_id, partition.replica_directory_id),
        partition.replica_epoch,
        partition.last_offset_epoch,
        partition.last_offset,
        partition.pre_vote,
    )


def _read_begin(message: begin_quorum_epoch.BeginQuorumEpochRequest, version: int) -> BeginQuorumEpochRequest:
    partition = _only_partition(message.topics)
    return BeginQuorumEpochRequest(
        message.cluster_id or NOT_SAID,
        ReplicaKey(message.voter_id, partition.voter_directory_id),
        partition.leader_id,
        partition.leader_epoch,
    )


def _read_end(message: end_quorum_epoch.EndQuorumEpochRequest, version: int) -> EndQuorumEpochRequest:
    partition = _only_partition(message.topics)
    successors: Iterable[ReplicaKey] = map(ReplicaKey, partition.preferred_successors)
    if version >= 1:
        candidates = partition.preferred_candidates
        successors = (ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in candidates)
    return EndQuorumEpochRequest(
        message.cluster_id or NOT_SAID, partition.leader_id, partition.leader_epoch, tuple(successors)
    )


def _read_fetch(message: fetch.FetchRequest, version: int) -> FetchRequest:
    partition = _only_partition(message.topics, _Place(*_fetched_topic(version), "partition"))
    node_id = message.replica_state.replica_id if version >= REPLICA_STATE_SINCE else message.replica_id
    return FetchRequest(
        message.cluster_id or NOT_SAID,
        ReplicaKey(node_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.high_watermark,
        message.max_wait_ms,
        message.max_bytes,
    )


def _fetched_topic(version: int) -> tuple[str, object]:
    """The field that names the topic of a Fetch, and what it must be."""
    return ("topic_id", METADATA_TOPIC_ID) if version >= FETCH_BY_ID_SINCE else ("topic", METADATA_TOPIC)


def _read_fetch_snapshot(message: fetch_snapshot.FetchSnapshotRequest, version: int) -> FetchSnapshotRequest:
    partition = _only_partition(message.topics, _SNAPSHOT)
    return FetchSnapshotRequest(
        message.cluster_id or NOT_SAID,
        ReplicaKey(message.replica_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.position,
        message.max_bytes,
    )


_REQUEST_READERS: dict[int, Callable[[Any, int], Request]] = {
    VOTE: _read_vote,
    BEGIN_QUORUM_EPOCH: _read_begin,
    END_QUORUM_EPOCH: _read_end,
    FETCH: _read_fetch,
    FETCH_SNAPSHOT: _read_fetch_snapshot,
}


# Responses that we send


def to_response(api_key: int, version: int, body: Response, leader: Leader | None) -> Message:
    """`leader` is the one that the body names, if its address is known."""
    if body.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
        return _RESPONSE_TYPES[api_key](error_code=int(body.error))
    response, endpoint_type = _RESPONSE_WRITERS[type(body)](body)
    if leader is not None:
        node_id, address = leader
        assert node_id == body.leader_id, "the address is of the leader that the response names"
        response.node_endpoints.append(endpoint_type(node_id, address.host, address.port))
    message: Message = response
    return message


def _write_vote_response(body: VoteResponse) -> tuple[Any, type]:
    partition = vote.PartitionDataInResponse(
        PARTITION, int(body.error), body.leader_id, body.epoch, body.is_granted
    )
    topics = [vote.TopicDataInResponse(METADATA_TOPIC, [partition])]
    return vote.VoteResponse(topics=topics), vote.NodeEndpoint


def _write_begin_response(body: BeginQuorumEpochResponse) -> tuple[Any, type]:
    partition = begin_quorum_epoch.PartitionDataInResponse(
        PARTITION, int(body.error), body.leader_id, body.epoch
    )
    topics = [begin_quorum_epoch.TopicDataInResponse(METADATA_TOPIC, [partition])]
    return begin_quorum_epoch.BeginQuorumEpochResponse(topics=topics), begin_quorum_epoch.NodeEndpoint


def _write_end_response(body: EndQuorumEpochResponse) -> tuple[Any, type]:
    partition = end_quorum_epoch.PartitionDataInResponse(
        PARTITION, int(body.error), body.leader_id, body.epoch
    )
    topics = [end_quorum_epoch.TopicDataInResponse(METADATA_TOPIC, [partition])]
    return end_quorum_epoch.EndQuorumEpochResponse(topics=topics), end_quorum_epoch.NodeEndpoint


def _write_fetch_response(body: FetchResponse) -> tuple[Any, type]:
    assert isinstance(body.records, bytes), "the driver has read them"
    partition = fetch.PartitionData(
        PARTITION,
        int(body.error),
        body.high_watermark,
        current_leader=fetch.LeaderIdAndEpoch(body.leader_id, body.epoch),
        records=body.records,
    )
    if body.diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(body.diverging.epoch, body.diverging.offset)
    if body.snapshot_id is not None:
        partition.snapshot_id = fetch.SnapshotId(*body.snapshot_id)
    responses = [fetch.FetchableTopicResponse(METADATA_TOPIC_ID, METADATA_TOPIC, [partition])]
    return fetch.FetchResponse(responses=responses), fetch.NodeEndpoint


def _write_snapshot_response(body: FetchSnapshotResponse) -> tuple[Any, type]:
    assert isinstance(body.data, bytes), "the driver has read it"
    partition = fetch_snapshot.PartitionSnapshotInResponse(
        PARTITION,
        int(body.error),
        fetch_snapshot.SnapshotIdInResponse(*body.snapshot_id),
        fetch_snapshot.LeaderIdAndEpoch(body.leader_id, body.epoch),
        body.size,
        body.position,
        body.data,
    )
    topics = [fetch_snapshot.TopicSnapshotInResponse(METADATA_TOPIC, [partition])]
    return fetch_snapshot.FetchSnapshotResponse(topics=topics), fetch_snapshot.NodeEndpoint


_RESPONSE_TYPES: dict[int, Callable[..., Message]] = {
    VOTE: vote.VoteResponse,
    BEGIN_QUORUM_EPOCH: begin_quorum_epoch.BeginQuorumEpochResponse,
    END_QUORUM_EPOCH: end_quorum_epoch.EndQuorumEpochResponse,
    FETCH: fetch.FetchResponse,
    FETCH_SNAPSHOT: fetch_snapshot.FetchSnapshotResponse,
}
_RESPONSE_WRITERS: dict[type, Callable[[Any], tuple[Any, type]]] = {
    VoteResponse: _write_vote_response,
    BeginQuorumEpochResponse: _write_begin_response,
    EndQuorumEpochResponse: _write_end_response,
    FetchResponse: _write_fetch_response,
    FetchSnapshotResponse: _write_snapshot_response,
}


# Responses that we receive


def from_response(api_key: int, version: int, message: Any) -> tuple[Response, Addresses]:
    """Returns the response, and the addresses of the nodes that it names. Raises ProtocolError if it is not about the
    quorum's partition."""
    if message.error_code:
        return _UNANSWERED[api_key]._replace(error=_error(message.error_code)), {}
    try:
        body = _RESPONSE_READERS[api_key](message, version)
    except KafkaError as error:
        raise ProtocolError(f"a response of another partition: {error}") from None
    nodes = message.node_endpoints
    return body, {node.node_id: NodeAddress(node.host, node.port) for node in nodes}


def _error(code: int) -> ErrorCode:
    """An unknown code of a later Kafka is treated as an unknown error."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _read_vote_response(message: vote.VoteResponse, version: int) -> VoteResponse:
    partition = _only_partition(message.topics)
    return VoteResponse(
        _error(partition.error_code), partition.leader_id, partition.leader_epoch, partition.vote_granted
    )


def _read_begin_response(
    message: begin_quorum_epoch.BeginQuorumEpochResponse, version: int
) -> BeginQuorumEpochResponse:
    partition = _only_partition(message.topics)
    return BeginQuorumEpochResponse(_error(partition.error_code), partition.leader_id, partition.leader_epoch)


def _read_end_response(
    message: end_quorum_epoch.EndQuorumEpochResponse, version: int
) -> EndQuorumEpochResponse:
    partition = _only_partition(message.topics)
    return EndQuorumEpochResponse(_error(partition.error_code), partition.leader_id, partition.leader_epoch)


def _read_fetch_response(message: fetch.FetchResponse, version: int) -> FetchResponse:
    partition = _only_partition(message.responses, _Place(*_fetched_topic(version), "partition_index"))
    diverging, snapshot_id = partition.diverging_epoch, partition.snapshot_id
    return FetchResponse(
        _error(partition.error_code),
        partition.current_leader.leader_id,
        partition.current_leader.leader_epoch,
        partition.high_watermark,
        bytes(partition.records or b""),
        _place_in_log(diverging.end_offset, diverging.epoch),
        _place_in_log(snapshot_id.end_offset, snapshot_id.epoch),
    )


def _place_in_log(offset: int, epoch: int) -> OffsetAndEpoch | None:
    return None if offset == NO_OFFSET and epoch == NO_EPOCH else OffsetAndEpoch(offset, epoch)


def _read_snapshot_response(
    message: fetch_snapshot.FetchSnapshotResponse, version: int
) -> FetchSnapshotResponse:
    partition = _only_partition(message.topics, _Place("name", METADATA_TOPIC, "index"))
    return FetchSnapshotResponse(
        _error(partition.error_code),
        partition.current_leader.leader_id,
        partition.current_leader.leader_epoch,
        OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.size,
        partition.position,
        bytes(partition.unaligned_records),
    )


_RESPONSE_READERS: dict[int, Callable[[Any, int], Response]] = {
    VOTE: _read_vote_response,
    BEGIN_QUORUM_EPOCH: _read_begin_response,
    END_QUORUM_EPOCH: _read_end_response,
    FETCH: _read_fetch_response,
    FETCH_SNAPSHOT: _read_snapshot_response,
}
# The body of a response that refuses the whole request.
_UNANSWERED: dict[int, Any] = {
    VOTE: VoteResponse(ErrorCode.NONE, NO_NODE, NO_EPOCH),
    BEGIN_QUORUM_EPOCH: BeginQuorumEpochResponse(ErrorCode.NONE, NO_NODE, NO_EPOCH),
    END_QUORUM_EPOCH: EndQuorumEpochResponse(ErrorCode.NONE, NO_NODE, NO_EPOCH),
    FETCH: FetchResponse(ErrorCode.NONE, NO_NODE, NO_EPOCH),
    FETCH_SNAPSHOT: FetchSnapshotResponse(
        ErrorCode.NONE, NO_NODE, NO_EPOCH, OffsetAndEpoch(NO_OFFSET, NO_EPOCH)
    ),
}
