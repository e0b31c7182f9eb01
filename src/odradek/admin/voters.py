"""Choose the controllers that should vote, and the changes that get there.

An odd number of voters is best: one more than that can fail no more often, and slows every change. A controller that
lost its disk follows the quorum under a new directory id, while its old self is still a voter that nobody hears from:
that one is removed first. The leader remembers the old self for a while even then, as a follower without a vote: of
several directories of one node, the one that fetched last is the node.
"""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from odradek.admin.access import Access, Address
from odradek.admin.failures import AdminError, check
from odradek.admin.quorum import CHANGE_TIMEOUT_MS, CONTROLLERS, DESCRIBE
from odradek.admin.requests import ask, ask_any
from odradek.errors import ErrorCode
from odradek.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumResponse,
    PartitionDataInResponse,
    ReplicaState,
)
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

MOST_VOTERS = 5
SILENT_MS = 10_000  # a follower of the quorum that is alive fetches several times a second
ATTEMPTS = 5
RETRY_S = 1.0
PASSING = (  # the leader changes, or another change of the voters is under way
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_CONTROLLER,
)


class Replica(NamedTuple):
    """A voter or observer of the metadata quorum."""

    node_id: int
    directory_id: UUID


class QuorumState(NamedTuple):
    voters: list[Replica]
    candidates: list[Replica]  # controllers that are alive and follow the quorum without a vote
    listener: str  # of the controllers
    addresses: dict[int, Address]  # of controllers, on that listener

    def replaced(self) -> list[Replica]:
        """List the voters whose node has come back with another disk."""
        again = {one.node_id for one in self.candidates}
        return [one for one in self.voters if one.node_id in again]

    def wanted(self, leaving: Iterable[int] = ()) -> list[Replica]:
        """The candidates that should get a vote, if these nodes leave."""
        gone = {*leaving, *(one.node_id for one in self.replaced())}
        staying = [one for one in self.voters if one.node_id not in gone]
        free = [one for one in self.candidates if one.node_id not in leaving]
        return free[: max(odd(min(len(staying) + len(free), MOST_VOTERS)) - len(staying), 0)]


def odd(count: int) -> int:
    """The largest odd number up to this one."""
    return count if count % 2 else max(count - 1, 1)


def find_quorum(cluster: Access) -> QuorumState:
    response = ask_any(cluster, DESCRIBE, DescribeQuorumResponse)
    _check(response.error_code, response.error_message)
    (found,) = response.topics[0].partitions
    _check(found.error_code, found.error_message)
    endpoints = {node.node_id: node.listeners[0] for node in response.nodes if node.listeners}
    listener = next((one.name for one in endpoints.values()), "")
    known = _controllers(cluster, [Address(one.host, one.port) for one in endpoints.values()])
    return QuorumState(
        [_replica(one) for one in found.current_voters],
        [_replica(one) for one in followers_alive(found) if one.replica_id in known],
        listener,
        known,
    )


def followers_alive(found: PartitionDataInResponse) -> list[ReplicaState]:
    """Return the controllers without a vote that follow the quorum, by node id."""
    now_ms = max((one.last_caught_up_timestamp for one in found.current_voters), default=0)
    fetched = sorted((*found.observers, *found.current_voters), key=lambda one: one.last_fetch_timestamp)
    newest = {one.replica_id: one for one in fetched}
    # The leader does not fetch; what follows under its id is its old self.
    newest |= {one.replica_id: one for one in found.current_voters if one.replica_id == found.leader_id}
    return [
        one
        for one in sorted(found.observers, key=lambda one: one.replica_id)
        if newest[one.replica_id] is one and now_ms - one.last_caught_up_timestamp < SILENT_MS
    ]


def _replica(one: ReplicaState) -> Replica:
    return Replica(one.replica_id, one.replica_directory_id)


def _controllers(cluster: Access, voters: Sequence[Address]) -> dict[int, Address]:
    """List all controllers that are registered: only their own listeners know them."""
    reasons: list[str] = []
    for address in voters:
        try:
            request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
            response = ask(
                cluster.to_controllers(), address, request, DescribeClusterResponse, least_version=1
            )
        except AdminError as error:
            reasons.append(str(error))
            continue
        if not response.error_code:
            return {one.broker_id: Address(one.host, one.port) for one in response.brokers}
    if reasons:
        cluster.warn(f"no new controller gets a vote, because the controllers cannot be asked: {reasons[0]}")
    return {}


def add_voter(cluster: Access, cluster_id: str, quorum: QuorumState, replica: Replica) -> None:
    address = quorum.addresses[replica.node_id]
    request = AddRaftVoterRequest(
        cluster_id,
        CHANGE_TIMEOUT_MS,
        *replica,
        [Listener(quorum.listener, address.host, address.port)],
    )
    _change(cluster, request, AddRaftVoterResponse, ErrorCode.DUPLICATE_VOTER)


def remove_voter(cluster: Access, cluster_id: str, replica: Replica) -> None:
    request = RemoveRaftVoterRequest(cluster_id, *replica)
    _change(cluster, request, RemoveRaftVoterResponse, ErrorCode.VOTER_NOT_FOUND)


def _change(
    cluster: Access,
    request: AddRaftVoterRequest | RemoveRaftVoterRequest,
    response_type: type[AddRaftVoterResponse] | type[RemoveRaftVoterResponse],
    is_so_already: ErrorCode,
) -> None:
    """Ask again while the quorum cannot change its voters yet."""
    for attempt in range(ATTEMPTS):
        response = ask_any(cluster, request, response_type)
        code = ErrorCode(response.error_code)
        if code in (ErrorCode.NONE, is_so_already):
            return
        if code not in PASSING or attempt == ATTEMPTS - 1:
            _check(code, response.error_message)
        time.sleep(RETRY_S)


def _check(code: int, message: str | None) -> None:
    check(code, message, "the metadata quorum")
