"""UpdateRaftVoter (82): a voter tells the leader that its endpoints, or the versions that it supports, have changed.

Sent by voters, in the epoch of the leader that they follow. The response names the leader.
"""

from odradek.errors import ErrorCode, KafkaError
from odradek.raft.reconfiguration import UpdateVoter
from odradek.raft.voters import Endpoint, ReplicaKey, VoterNode
from odradek.serving.quorum import check_cluster, check_voter
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.update_raft_voter import (
    CurrentLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

NO_NODE = -1


async def handle(
    services: Services, request: Request, message: UpdateRaftVoterRequest
) -> UpdateRaftVoterResponse:
    code = ErrorCode.NONE
    try:
        await _update(services, message)
    except KafkaError as error:
        code = error.code
    return UpdateRaftVoterResponse(error_code=code, current_leader=_leader(services))


async def _update(services: Services, message: UpdateRaftVoterRequest) -> None:
    check_cluster(services.cluster, message.cluster_id)
    _check_epoch(message.current_leader_epoch, services.cluster.quorum.epoch)
    key = ReplicaKey(message.voter_id, message.voter_directory_id)
    endpoints = tuple(Endpoint(item.name, item.host, item.port) for item in message.listeners)
    check_voter(services.cluster, key, endpoints)
    versions = message.k_raft_version_feature
    if not 0 <= versions.min_supported_version <= versions.max_supported_version:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The range of kraft.version is empty.")
    voter = VoterNode(key, endpoints, versions.min_supported_version, versions.max_supported_version)
    timeout_ms = services.node.config["controller.quorum.request.timeout.ms"]
    await services.cluster.quorum.change_voters(UpdateVoter(voter), timeout_ms)


def _check_epoch(asked: int, epoch: int) -> None:
    if asked < epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"The quorum is in epoch {epoch}.")
    if asked > epoch:
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"This node is in epoch {epoch}.")


def _leader(services: Services) -> CurrentLeader:
    leader, epoch = services.cluster.quorum.leader, services.cluster.quorum.epoch
    if leader is None:
        return CurrentLeader(NO_NODE, epoch)
    node_id, address = leader
    return CurrentLeader(node_id, epoch) if address is None else CurrentLeader(node_id, epoch, *address)
