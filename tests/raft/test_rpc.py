"""The quorum's messages on the wire: what goes out comes in, in Kafka's bytes, in every version that Kafka serves."""

import importlib
import io
import typing
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.model import METADATA_TOPIC, METADATA_TOPIC_ID
from odradek.raft import messages as raft
from odradek.raft.rpc import (
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH,
    FETCH_SNAPSHOT,
    VOTE,
    NodeAddress,
    endpoints_in_request,
    from_request,
    from_response,
    to_request,
    to_response,
)
from odradek.raft.voters import NO_DIRECTORY_ID, Endpoint, ReplicaKey
from odradek.wire.codec import encode, read_message
from odradek.wire.messages import begin_quorum_epoch, end_quorum_epoch, fetch, fetch_snapshot, vote
from tests.raft.cluster import Cluster, key

ids = st.integers(0, 2**31 - 1)
epochs = st.integers(0, 2**31 - 1)
offsets = st.integers(0, 2**63 - 1)
sizes = st.integers(0, 2**31 - 1)
directories = st.builds(lambda value: UUID(int=value), st.integers(0, 2**128 - 1))
keys = st.builds(ReplicaKey, ids, directories)
places = st.builds(raft.OffsetAndEpoch, offsets, epochs)
errors = st.sampled_from([code for code in ErrorCode if code is not ErrorCode.INCONSISTENT_CLUSTER_ID])
cluster_ids = st.text(max_size=30)
hosts = st.text(min_size=1, max_size=30)
endpoints = st.lists(st.builds(Endpoint, hosts, hosts, st.integers(0, 65535)), max_size=3)
addresses = st.builds(NodeAddress, hosts, st.integers(0, 65535))

REQUESTS = st.one_of(
    st.builds(raft.VoteRequest, cluster_ids, keys, keys, epochs, epochs, offsets, st.booleans()),
    st.builds(raft.BeginQuorumEpochRequest, cluster_ids, keys, ids, epochs),
    st.builds(raft.EndQuorumEpochRequest, cluster_ids, ids, epochs, st.lists(keys, max_size=4).map(tuple)),
    st.builds(raft.FetchRequest, cluster_ids, keys, epochs, offsets, epochs, offsets, sizes, sizes),
    st.builds(raft.FetchSnapshotRequest, cluster_ids, keys, epochs, places, offsets, sizes),
)
leaders = st.integers(-1, 2**31 - 1)
RESPONSES = st.one_of(
    st.tuples(st.just(VOTE), st.builds(raft.VoteResponse, errors, leaders, epochs, st.booleans())),
    st.tuples(st.just(BEGIN_QUORUM_EPOCH), st.builds(raft.BeginQuorumEpochResponse, errors, leaders, epochs)),
    st.tuples(st.just(END_QUORUM_EPOCH), st.builds(raft.EndQuorumEpochResponse, errors, leaders, epochs)),
    st.tuples(
        st.just(FETCH),
        st.builds(
            raft.FetchResponse,
            errors,
            leaders,
            epochs,
            st.integers(-1, 2**63 - 1),
            st.binary(max_size=50),
            st.none() | places,
            st.none() | places,
        ),
    ),
    st.tuples(
        st.just(FETCH_SNAPSHOT),
        st.builds(
            raft.FetchSnapshotResponse,
            errors,
            leaders,
            epochs,
            places,
            offsets,
            offsets,
            st.binary(max_size=50),
        ),
    ),
)
SCHEMAS = {
    VOTE: vote,
    BEGIN_QUORUM_EPOCH: begin_quorum_epoch,
    END_QUORUM_EPOCH: end_quorum_epoch,
    FETCH: fetch,
    FETCH_SNAPSHOT: fetch_snapshot,
}
NEWEST = {VOTE: 2, BEGIN_QUORUM_EPOCH: 1, END_QUORUM_EPOCH: 1, FETCH: 18, FETCH_SNAPSHOT: 1}


def by_way_of_kafka(message, version: int, direction: str) -> bytes:
    """The bytes of a message, after Kafka's classes have read and written it."""
    name = type(message).__module__.rpartition(".")[2]
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{direction}")
    theirs = getattr(module, type(message).__name__)
    encoded = bytes(encode(message, version))
    decoded, size = entity_reader(theirs)(encoded, 0)
    assert size == len(encoded)
    again = io.BytesIO()
    entity_writer(theirs)(typing.cast(typing.Any, again), decoded)
    return again.getvalue()


@given(REQUESTS, endpoints)
def test_requests_come_in_as_they_went_out(body, own) -> None:
    api_key, version, message = to_request(body, own)
    assert version == NEWEST[api_key]
    data = by_way_of_kafka(message, version, "request")
    assert data == bytes(encode(message, version))
    arrived, _ = read_message(type(message), version, memoryview(data))
    assert from_request(api_key, version, arrived) == body
    is_of_leader = api_key in (BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH)
    expected = (body.leader_id, NodeAddress(*own[0][1:])) if is_of_leader and own else None
    assert endpoints_in_request(api_key, arrived) == expected


@given(RESPONSES, st.none() | addresses)
def test_responses_come_in_as_they_went_out(response, address) -> None:
    api_key, body = response
    leader = None if address is None or body.leader_id < 0 else (body.leader_id, address)
    version = NEWEST[api_key]
    message = to_response(api_key, version, body, leader)
    data = by_way_of_kafka(message, version, "response")
    assert data == bytes(encode(message, version))
    arrived, _ = read_message(type(message), version, memoryview(data))
    assert from_response(api_key, version, arrived) == (body, {} if leader is None else dict([leader]))


@pytest.mark.parametrize("api_key", NEWEST)
def test_another_cluster_is_refused_at_the_top(api_key: int) -> None:
    bodies = {
        VOTE: raft.VoteResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, 1, 7),
        BEGIN_QUORUM_EPOCH: raft.BeginQuorumEpochResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, 1, 7),
        END_QUORUM_EPOCH: raft.EndQuorumEpochResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, 1, 7),
        FETCH: raft.FetchResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, 1, 7),
        FETCH_SNAPSHOT: raft.FetchSnapshotResponse(
            ErrorCode.INCONSISTENT_CLUSTER_ID, 1, 7, raft.OffsetAndEpoch(1, 1)
        ),
    }
    message = to_response(api_key, NEWEST[api_key], bodies[api_key], (1, NodeAddress("a", 1)))
    assert message.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert not message.node_endpoints
    assert not (message.responses if api_key == FETCH else message.topics)
    body, addresses = from_response(api_key, NEWEST[api_key], message)
    assert (body.error, body.leader_id, body.epoch) == (ErrorCode.INCONSISTENT_CLUSTER_ID, -1, -1)
    assert not addresses


def test_an_error_code_from_the_future_is_an_error() -> None:
    message = to_response(VOTE, 2, raft.VoteResponse(raft.NONE, 1, 7), None)
    message.topics[0].partitions[0].error_code = 31_000
    assert from_response(VOTE, 2, message)[0].error is ErrorCode.UNKNOWN_SERVER_ERROR
    message.error_code = 31_000
    assert from_response(VOTE, 2, message)[0].error is ErrorCode.UNKNOWN_SERVER_ERROR


# --- other partitions ---


def a_request(api_key: int):
    bodies = {
        VOTE: raft.VoteRequest("c", key(1), key(2), 3, 2, 10),
        BEGIN_QUORUM_EPOCH: raft.BeginQuorumEpochRequest("c", key(1), 2, 3),
        END_QUORUM_EPOCH: raft.EndQuorumEpochRequest("c", 2, 3, (key(1),)),
        FETCH: raft.FetchRequest("c", key(1), 3, 10, 2, 5, 500, 1000),
        FETCH_SNAPSHOT: raft.FetchSnapshotRequest("c", key(1), 3, raft.OffsetAndEpoch(5, 1), 0, 1000),
    }
    return to_request(bodies[api_key])


def name_another_topic(topic) -> None:
    for field, value in (("topic_name", "x"), ("name", "x"), ("topic", "x"), ("topic_id", UUID(int=9))):
        if hasattr(topic, field):
            setattr(topic, field, value)


def name_another_partition(topic) -> None:
    field = "partition" if hasattr(topic.partitions[0], "partition") else "partition_index"
    setattr(topic.partitions[0], field, 1)


@pytest.mark.parametrize("change", [name_another_topic, name_another_partition])
@pytest.mark.parametrize("api_key", NEWEST)
def test_requests_about_other_partitions_are_refused(api_key: int, change) -> None:
    _, version, message = a_request(api_key)
    change(message.topics[0])
    with pytest.raises(KafkaError) as refused:
        from_request(api_key, version, message)
    expected = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if api_key == FETCH_SNAPSHOT else ErrorCode.INVALID_REQUEST
    )
    assert refused.value.code is expected


@pytest.mark.parametrize("api_key", NEWEST)
def test_requests_about_no_partition_or_two_are_refused(api_key: int) -> None:
    _, version, message = a_request(api_key)
    message.topics[0].partitions *= 2
    with pytest.raises(KafkaError, match="one partition"):
        from_request(api_key, version, message)
    message.topics.clear()
    with pytest.raises(KafkaError, match="one partition"):
        from_request(api_key, version, message)


@pytest.mark.parametrize("api_key", NEWEST)
def test_a_response_without_the_partition_breaks_the_protocol(api_key: int) -> None:
    message = SCHEMAS[api_key]
    name = to_request_name(api_key).replace("Request", "Response")
    with pytest.raises(ProtocolError):
        from_response(api_key, NEWEST[api_key], getattr(message, name)())


def to_request_name(api_key: int) -> str:
    return type(a_request(api_key).message).__name__


# --- older versions ---


def reread(api_key: int, version: int):
    """A request as an old replica would send it."""
    message = a_request(api_key).message
    if api_key == FETCH:
        message.replica_id = 1
    if api_key == END_QUORUM_EPOCH:
        message.topics[0].partitions[0].preferred_successors = [1, 3]
    old, _ = read_message(type(message), version, memoryview(bytes(encode(message, version))))
    return from_request(api_key, version, old), old


def test_a_vote_of_version_1_is_no_pre_vote() -> None:
    assert reread(VOTE, 1)[0] == raft.VoteRequest("c", key(1), key(2), 3, 2, 10)


def test_a_vote_of_version_0_names_no_voter_and_no_directories() -> None:
    body, _ = reread(VOTE, 0)
    assert body == raft.VoteRequest("c", ReplicaKey(-1), ReplicaKey(2), 3, 2, 10)


def test_the_ends_of_an_epoch_in_version_0() -> None:
    body, message = reread(BEGIN_QUORUM_EPOCH, 0)
    assert body == raft.BeginQuorumEpochRequest("c", ReplicaKey(-1), 2, 3)
    assert endpoints_in_request(BEGIN_QUORUM_EPOCH, message) is None
    body, message = reread(END_QUORUM_EPOCH, 0)
    assert body == raft.EndQuorumEpochRequest("c", 2, 3, (ReplicaKey(1), ReplicaKey(3)))


@pytest.mark.parametrize("version", [12, 13, 14, 15, 16])
def test_a_fetch_before_version_17_names_no_directory(version: int) -> None:
    body, message = reread(FETCH, version)
    assert body.replica == ReplicaKey(1, NO_DIRECTORY_ID)
    assert (body.epoch, body.fetch_offset, body.last_fetched_epoch) == (3, 10, 2)
    if version < 13:
        assert message.topics[0].topic == METADATA_TOPIC
    else:
        assert message.topics[0].topic_id == METADATA_TOPIC_ID


def test_a_fetch_before_version_18_does_not_wait_for_the_high_watermark() -> None:
    assert reread(FETCH, 17)[0].high_watermark == 2**63 - 1


def test_a_snapshot_is_fetched_in_version_0_without_a_directory() -> None:
    assert reread(FETCH_SNAPSHOT, 0)[0].replica == ReplicaKey(1, NO_DIRECTORY_ID)


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(VOTE, 0), (BEGIN_QUORUM_EPOCH, 0), (FETCH, 12), (FETCH, 13), (FETCH_SNAPSHOT, 0)],
)
def test_responses_of_older_versions_have_no_addresses(api_key: int, version: int) -> None:
    bodies = {
        VOTE: raft.VoteResponse(raft.NONE, 2, 7, is_granted=True),
        BEGIN_QUORUM_EPOCH: raft.BeginQuorumEpochResponse(raft.NONE, 2, 7),
        FETCH: raft.FetchResponse(raft.NONE, 2, 7, 10, b"records"),
        FETCH_SNAPSHOT: raft.FetchSnapshotResponse(raft.NONE, 2, 7, raft.OffsetAndEpoch(5, 1), 3, 0, b"abc"),
    }
    message = to_response(api_key, version, bodies[api_key], (2, NodeAddress("a", 1)))
    arrived, _ = read_message(type(message), version, memoryview(bytes(encode(message, version))))
    assert from_response(api_key, version, arrived) == (bodies[api_key], {})


# --- what an old replica does not say, the core does not ask for ---


def test_a_vote_that_names_no_voter_is_for_whoever_gets_it() -> None:
    cluster = Cluster(3)
    body = raft.VoteRequest("a-cluster", ReplicaKey(-1), key(2), 1, 0, 0)
    ready = cluster.nodes[1].raft.step(raft.Message(2, 1, 5, body), 0)
    assert ready.messages[0].body == raft.VoteResponse(raft.NONE, -1, 1, is_granted=True)


def test_a_request_that_names_no_cluster_is_for_any() -> None:
    cluster = Cluster(3)
    body = raft.BeginQuorumEpochRequest(raft.NOT_SAID, ReplicaKey(-1), 2, 4)
    ready = cluster.nodes[1].raft.step(raft.Message(2, 1, 5, body), 0)
    assert ready.messages[0].body == raft.BeginQuorumEpochResponse(raft.NONE, 2, 4)
