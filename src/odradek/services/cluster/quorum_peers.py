"""The other nodes of the metadata quorum: their addresses, and requests to them.

A node's address comes from the voter set, or else from what other nodes said. Bootstrap servers are only addresses:
until one says which node it is, it goes by an id from FIRST_BOOTSTRAP_ID down.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from odradek.host.interface import Host
from odradek.net.link import Link
from odradek.net.network import Dialer
from odradek.raft.address import NodeAddress
from odradek.raft.messages import Request, Response
from odradek.raft.voters import Endpoint, VoterSet
from odradek.services.cluster.calls import call
from odradek.wire.codec import Message

if TYPE_CHECKING:
    from odradek.raft.rpc import Addresses

FIRST_BOOTSTRAP_ID = -2


class QuorumPeers:
    def __init__(
        self,
        host: Host,
        dialer: Dialer,
        node_id: int,
        bootstrap: Sequence[NodeAddress],
        request_seconds: float,
        voters: Callable[[], VoterSet],
    ) -> None:
        """`voters` returns the current voter set."""
        self._host = host
        self._dialer = dialer
        self._client_id = f"node-{node_id}"
        self._bootstrap = dict(enumerate_down(bootstrap))
        self._request_seconds = request_seconds
        self._voters = voters
        self._addresses: dict[int, NodeAddress] = {}  # learned from other nodes
        self._links: dict[int, Link] = {}

    @property
    def bootstrap_ids(self) -> tuple[int, ...]:
        return tuple(self._bootstrap)

    def learn(self, addresses: "Addresses") -> None:
        self._addresses.update(addresses)

    def address_of(self, node_id: int) -> NodeAddress | None:
        if node_id <= FIRST_BOOTSTRAP_ID:
            return self._bootstrap.get(node_id)
        voter = self._voters().get(node_id)
        if voter is not None and voter.endpoints and voter.endpoints[0].port:
            return NodeAddress(voter.endpoints[0].host, voter.endpoints[0].port)
        return self._addresses.get(node_id)

    def name_of(self, peer: int) -> str:
        """Name the peer for log lines."""
        address = self.address_of(peer)
        where = f" at {address.host}:{address.port}" if address is not None else ""
        return f"node {peer}{where}" if peer >= 0 else f"the bootstrap server{where}"

    async def ask(
        self, peer: int, body: Request, endpoints: Sequence[Endpoint]
    ) -> "tuple[Response, Addresses]":
        """Returns the response, and the addresses of the nodes that it names. `endpoints` are those of this node.
        Raises OSError or ProtocolError."""
        from odradek.raft import rpc

        address = self.address_of(peer)
        if address is None:
            raise OSError("its address is not known")
        request = rpc.to_request(body, endpoints)
        response = await self.call(peer, address, request.message, request.version)
        return rpc.from_response(request.api_key, request.version, response)

    async def call(self, peer: int, address: NodeAddress, message: Message, version: int) -> Any:
        link = self._link_to(peer)
        return await call(link, address, message, version, self._client_id, self._request_seconds)

    def _link_to(self, peer: int) -> Link:
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = Link(self._host, self._dialer)
        return link

    def close(self) -> None:
        for link in self._links.values():
            link.close()


def enumerate_down(addresses: Sequence[NodeAddress]) -> Iterator[tuple[int, NodeAddress]]:
    return ((FIRST_BOOTSTRAP_ID - slot, address) for slot, address in enumerate(addresses))
