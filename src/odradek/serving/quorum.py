"""Checks that the handlers of the quorum's requests share."""

from collections.abc import Sequence
from typing import Any

from odradek.errors import ErrorCode, KafkaError
from odradek.raft.rpc import endpoints_in_request
from odradek.raft.voters import NO_DIRECTORY_ID, Endpoint, ReplicaKey
from odradek.serving.cluster import Cluster


def check_cluster(cluster: Cluster, cluster_id: str | None) -> None:
    """A request that names no cluster is accepted."""
    own = cluster.image.cluster_id
    if cluster_id is not None and cluster_id != own:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"This is cluster {own}, the request is for {cluster_id}."
        )


def learn_leader(cluster: Cluster, api_key: int, message: Any) -> None:
    """Remember the address of the leader that sent this, unless it belongs to another cluster."""
    leader = endpoints_in_request(api_key, message)
    if leader is not None and message.cluster_id in (None, cluster.image.cluster_id):
        cluster.quorum.learn_address(*leader)


def check_key(key: ReplicaKey) -> None:
    """A voter is identified by its node id and its directory id."""
    if key.node_id < 0 or key.directory_id == NO_DIRECTORY_ID:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "A voter needs a node id that is not negative, and a directory id."
        )


def check_voter(cluster: Cluster, key: ReplicaKey, endpoints: Sequence[Endpoint]) -> None:
    """Other nodes must be able to reach it on the controllers' listener."""
    check_key(key)
    listener = cluster.controller_listeners[0]
    if listener not in [endpoint.listener for endpoint in endpoints]:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"The voter has no endpoint for the controllers' listener {listener}."
        )
