"""The cluster that a new node joins, as one of its brokers describes it."""

from contextlib import closing
from typing import NamedTuple

from odradek.client.connection import Connection, ConnectionLost
from odradek.client.settings import ClientSettings
from odradek.config.listeners import Server, parse_server
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.model import METADATA_TOPIC
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDataInRequest,
    TopicDataInRequest,
)

DESCRIBE_CLUSTER = DescribeClusterRequest(include_fenced_brokers=True)
DESCRIBE_QUORUM = DescribeQuorumRequest([TopicDataInRequest(METADATA_TOPIC, [PartitionDataInRequest(0)])])


class BadUsage(Exception):
    """The options make no sense; the message says why."""


class CannotJoin(Exception):
    """Why the node cannot join the cluster, in a sentence."""


class Cluster(NamedTuple):
    """The facts about it that a new node must know."""

    id: str
    node_ids: set[int]  # that are taken
    controller_listener: str
    controllers: list[str]  # host:port of each voter
    active_controller: Server | None


def connect(server: Server) -> Connection:
    """To a broker or a controller."""
    return Connection(*server, ClientSettings((server,), client_id="odradek-up"))


def describe(address: str) -> Cluster:
    """By way of one of its brokers."""
    try:
        server = parse_server(address)
    except ValueError as error:
        raise BadUsage(f"--join: {error}") from None
    try:
        with closing(connect(server)) as connection:
            cluster = connection.call(DESCRIBE_CLUSTER, DescribeClusterResponse)
            _check(address, cluster.error_code, cluster.error_message)
            quorum = connection.call(DESCRIBE_QUORUM, DescribeQuorumResponse)
            _check(address, quorum.error_code, quorum.error_message)
    except (ConnectionLost, KafkaError, ProtocolError, OSError) as error:
        raise CannotJoin(f"the cluster cannot be reached: {error}") from None
    return _cluster_in(address, cluster, quorum)


def _cluster_in(address: str, cluster: DescribeClusterResponse, quorum: DescribeQuorumResponse) -> Cluster:
    (partition,) = quorum.topics[0].partitions
    _check(address, partition.error_code, partition.error_message)
    found = {node.node_id: node.listeners[0] for node in quorum.nodes if node.listeners}
    endpoints = list(found.values())
    if not endpoints:
        raise CannotJoin(
            f"the cluster at {address} does not say where its controllers are: its voters must be in its metadata "
            "log (kraft.version 1)"
        )
    active = found.get(partition.leader_id)
    replicas = [*partition.current_voters, *partition.observers]
    return Cluster(
        cluster.cluster_id,
        {one.broker_id for one in cluster.brokers} | {one.replica_id for one in replicas},
        endpoints[0].name,
        [f"{one.host}:{one.port}" for one in endpoints],
        None if active is None else Server(active.host, active.port),
    )


def _check(address: str, code: int, message: str | None) -> None:
    if code:
        raise CannotJoin(f"the cluster at {address} cannot be described: {message or ErrorCode(code).name}")
