"""The metadata quorum: its voters and observers, their progress, and changes of the voters.

It uses Kafka's protocol, so it works with any Kafka. The address may be a broker's or a controller's. A broker forwards
the request to the leader; a controller that does not lead refuses, and says where the leader is.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from odradek.admin.access import Access, Address, read_settings
from odradek.admin.failures import AdminError, check
from odradek.admin.requests import Response, ask
from odradek.errors import ErrorCode
from odradek.model import METADATA_TOPIC, id_from_text, id_to_text
from odradek.wire.codec import Message
from odradek.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Node,
    PartitionDataInRequest,
    ReplicaState,
    TopicDataInRequest,
)
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

CONTROLLERS = 2  # the endpoint type
META_PROPERTIES = "meta.properties"  # of a formatted directory
NOT_LEADING = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER)
CHANGE_TIMEOUT_MS = 30_000
DESCRIBE = DescribeQuorumRequest([TopicDataInRequest(METADATA_TOPIC, [PartitionDataInRequest(0)])])


@dataclass(frozen=True)
class ReplicaView:
    node: int
    role: str  # leader, follower or observer
    directory_id: str | None
    address: str | None  # of a voter, if the cluster reports it
    log_end_offset: int
    lag: int  # records behind the leader
    last_caught_up_ms: int | None  # when it last caught up, by the leader's clock


@dataclass(frozen=True)
class QuorumView:
    """The output of `describe`; its fields are those of the JSON output."""

    leader: int
    epoch: int
    high_watermark: int
    voters: list[ReplicaView]
    observers: list[ReplicaView]


def view_quorum(cluster: Access) -> QuorumView:
    response = at_leader(cluster, DESCRIBE, DescribeQuorumResponse, code_of)
    check(response.error_code, response.error_message)
    (found,) = response.topics[0].partitions
    check(found.error_code, found.error_message)
    ends = {one.replica_id: one.log_end_offset for one in found.current_voters}
    end_offset = ends.get(found.leader_id, found.high_watermark)
    addresses = {node.node_id: _address_of(node) for node in response.nodes}

    def view(replica: ReplicaState, role: str) -> ReplicaView:
        is_leader = replica.replica_id == found.leader_id
        caught_up = replica.last_caught_up_timestamp
        return ReplicaView(
            node=replica.replica_id,
            role="leader" if is_leader else role,
            directory_id=id_to_text(replica.replica_directory_id)
            if replica.replica_directory_id.int
            else None,
            address=addresses.get(replica.replica_id),
            log_end_offset=replica.log_end_offset,
            lag=max(end_offset - replica.log_end_offset, 0),
            last_caught_up_ms=caught_up if caught_up >= 0 else None,
        )

    return QuorumView(
        leader=found.leader_id,
        epoch=found.leader_epoch,
        high_watermark=found.high_watermark,
        voters=[view(one, "follower") for one in found.current_voters],
        observers=[view(one, "observer") for one in found.observers],
    )


def code_of(response: DescribeQuorumResponse) -> int:
    codes = [item.error_code for topic in response.topics for item in topic.partitions]
    return response.error_code or next((code for code in codes if code), 0)


def _address_of(node: Node) -> str | None:
    return f"{node.listeners[0].host}:{node.listeners[0].port}" if node.listeners else None


def _id_of(text: str | None) -> UUID:
    return id_from_text(text) if text else UUID(int=0)


# Changing


def add_controller(cluster: Access, request: AddRaftVoterRequest) -> None:
    """Make a voter of a controller that follows the quorum (`voter_in`)."""
    response = at_leader(cluster, request, AddRaftVoterResponse, lambda response: response.error_code)
    check(response.error_code, response.error_message)


def remove_controller(cluster: Access, node_id: int, directory_id: str | None = None) -> str | None:
    """Take a vote, and return the directory id that it had. Raises AdminError if the node has none, or has it with
    another directory id."""
    voters = [one for one in view_quorum(cluster).voters if one.node == node_id]
    if not voters:
        raise AdminError(f"node {node_id} is not a voter")
    if directory_id is not None and directory_id != voters[0].directory_id:
        raise AdminError(f"node {node_id} votes with directory id {voters[0].directory_id}")
    request = RemoveRaftVoterRequest(None, node_id, _id_of(voters[0].directory_id))
    response = at_leader(cluster, request, RemoveRaftVoterResponse, lambda response: response.error_code)
    check(response.error_code, response.error_message)
    return voters[0].directory_id


def voter_in(file: Path) -> AddRaftVoterRequest:
    """The controller that these settings are of."""
    from odradek.config.broker import load_broker_config
    from odradek.config.definition import ConfigError

    try:
        config = load_broker_config(file, {}, {})
    except ConfigError as error:
        raise AdminError(f"{file}: {error}") from None
    if not config.is_controller:
        raise AdminError(f"{file} is not for a controller: its process.roles is broker")
    identity = read_settings(config.log_dirs[0] / META_PROPERTIES)
    try:
        directory_id = id_from_text(identity["directory.id"])
    except (KeyError, ValueError):
        raise AdminError(f"{config.log_dirs[0] / META_PROPERTIES} has no directory.id") from None
    told = config.advertised_listeners(config.controller_listeners, os.uname().nodename)
    return AddRaftVoterRequest(
        identity.get("cluster.id"),
        CHANGE_TIMEOUT_MS,
        config.node_id,
        directory_id,
        [Listener(one.name, one.host, one.port) for one in told],
    )


# Finding the leader


def at_leader(
    cluster: Access, request: Message, response_type: type[Response], code_of: Callable[[Any], int]
) -> Response:
    """The response of the quorum's leader, through the first server that responds."""
    reasons = []
    for server in cluster.servers():
        try:
            response = ask(cluster, server, request, response_type)
            if code_of(response) in NOT_LEADING:
                response = ask(cluster, _leader_by(cluster, server), request, response_type)
            return response
        except AdminError as error:
            reasons.append(str(error))
    raise AdminError("; ".join(reasons))


def _leader_by(cluster: Access, controller: Address) -> Address:
    """The leader's address, according to another controller."""
    request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
    response = ask(cluster, controller, request, DescribeClusterResponse)
    check(response.error_code, response.error_message)
    for one in response.brokers:
        if one.broker_id == response.controller_id:
            return Address(one.host, one.port)
    raise AdminError(f"{controller} does not know the leader of the quorum")
