"""AddRaftVoter (80): a controller that follows the metadata log becomes a voter of the quorum.

One voter at a time, and only one that has caught up with the log: until then the response is REQUEST_TIMED_OUT, and the
request may be sent again. A broker forwards the request to the leader of the quorum.

Left out: `ack_when_committed` false. The response always waits for the commit.
"""

from odradek.raft.reconfiguration import AddVoter
from odradek.raft.voters import Endpoint, ReplicaKey, VoterNode
from odradek.serving.cluster import Cluster
from odradek.serving.quorum import check_cluster, check_voter
from odradek.serving.request import Request
from odradek.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


async def handle(cluster: Cluster, request: Request, message: AddRaftVoterRequest) -> AddRaftVoterResponse:
    async def respond() -> AddRaftVoterResponse:
        check_cluster(cluster, message.cluster_id)
        key = ReplicaKey(message.voter_id, message.voter_directory_id)
        endpoints = tuple(Endpoint(item.name, item.host, item.port) for item in message.listeners)
        check_voter(cluster, key, endpoints)
        await cluster.quorum.change_voters(AddVoter(VoterNode(key, endpoints)), message.timeout_ms)
        return AddRaftVoterResponse(error_message=None)

    response: AddRaftVoterResponse = await cluster.at_leader(request, message, respond)
    return response
