"""RemoveRaftVoter (81): a voter leaves the quorum, and only follows the metadata log from then on.

One voter at a time, never the last one. A removed leader resigns once the change is committed. A broker forwards the
request to the leader of the quorum.
"""

from odradek.raft.reconfiguration import RemoveVoter
from odradek.raft.voters import ReplicaKey
from odradek.serving.quorum import check_cluster, check_key
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


async def handle(
    services: Services, request: Request, message: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    async def respond() -> RemoveRaftVoterResponse:
        check_cluster(services.cluster, message.cluster_id)
        key = ReplicaKey(message.voter_id, message.voter_directory_id)
        check_key(key)
        timeout_ms = services.node.config["controller.quorum.request.timeout.ms"]
        await services.cluster.quorum.change_voters(RemoveVoter(key), timeout_ms)
        return RemoveRaftVoterResponse(error_message=None)

    response: RemoveRaftVoterResponse = await services.cluster.at_leader(request, message, respond)
    return response
