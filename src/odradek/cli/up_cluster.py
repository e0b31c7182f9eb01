"""The cluster that a new node joins, as one of its brokers describes it."""

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from odradek.client.connection import Connection, ConnectionLost
from odradek.client.settings import ClientSettings, SaslSettings
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import SecurityProtocol, Server, parse_server
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.model import METADATA_TOPIC
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDataInRequest,
    TopicDataInRequest,
)

if TYPE_CHECKING:
    from odradek.security.tls_settings import TlsSettings

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


class Way(NamedTuple):
    """The security of a node's connections to others."""

    tls: "TlsSettings | None" = None
    sasl: SaslSettings | None = None


OPEN = Way()


def way_to(config: BrokerConfig, listener: str, protocol: SecurityProtocol) -> Way:
    """Read from the node's own settings how it connects to others. Raises ConfigError."""
    if protocol is SecurityProtocol.PLAINTEXT:
        return OPEN
    from odradek.config.security import link_security  # imports OpenSSL

    link = link_security(config, listener, protocol)
    sasl = SaslSettings(link.mechanism, link.username, link.password) if link.mechanism else None
    return Way(link.tls, sasl)


def way_to_brokers(config: BrokerConfig) -> Way:
    return way_to(config, config.brokers_listener_name, config.inter_broker_protocol)


def way_to_controllers(config: BrokerConfig) -> Way:
    return way_to(config, config.controller_listener_names[0], config.controller_protocol)


def connect(server: Server, way: Way) -> Connection:
    """Connect to a broker or a controller."""
    return Connection(*server, ClientSettings((server,), client_id="odradek-up", tls=way.tls, sasl=way.sasl))


def describe(address: str, way: Way) -> Cluster:
    """Ask one of the cluster's brokers what the cluster is."""
    try:
        server = parse_server(address)
    except ValueError as error:
        raise BadUsage(f"--join: {error}") from None
    try:
        with closing(connect(server, way)) as connection:
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
