"""The cluster, as this node sees it: its metadata, and the quorum that decides on them."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol
from uuid import UUID

from odradek.controller.features import TRANSACTION_VERSION
from odradek.errors import ProtocolError
from odradek.host.metrics import count_throttle
from odradek.metadata.image import MetadataImage
from odradek.model import Caller
from odradek.raft.address import NodeAddress
from odradek.raft.messages import Request as QuorumRequest
from odradek.raft.reconfiguration import VoterChange
from odradek.raft.view import QuorumView
from odradek.serving.partitions import Disk
from odradek.serving.request import Request
from odradek.wire.codec import Message

NO_NODE = -1

AnswerHere = Callable[[Message, int, Caller], Awaitable[Any]]


class Metadata(Protocol):
    """The cluster's metadata: the newest image, and the way to the next one."""

    @property
    def image(self) -> MetadataImage: ...

    async def decide(self, request: Message, version: int, caller: Caller) -> Any:
        """Let the controller decide on its newest image. Returns the response, once its records are committed and
        applied; if the request is refused, or cannot be written, with an error code for each of its items."""

    async def decide_here(self, request: Message, version: int, caller: Caller) -> Any:
        """The same, but NOT_CONTROLLER if another node is the active controller."""

    async def forward(self, request: Message, version: int, caller: Caller, answer_here: AnswerHere) -> Any:
        """The response of the active controller, on another node, to a request that is sent there in an Envelope; a
        refusal if that node cannot be reached. If this node becomes the controller, `answer_here` is called."""


class Quorum(Protocol):
    """The replica of the metadata quorum that this node runs."""

    @property
    def leader(self) -> tuple[int, NodeAddress | None] | None:
        """The leader and its address, as far as this node knows."""

    @property
    def epoch(self) -> int: ...

    @property
    def is_stuck(self) -> bool:
        """True if what the leader sent could not be appended: this node's metadata is old."""

    def handle(self, request: Request, body: QuorumRequest) -> None:
        """Give a request of another replica to the core. The response is sent when the core gives it: a fetch may
        be parked."""

    async def change_voters(self, change: VoterChange, timeout_ms: int) -> None:
        """Returns once the change is committed. KafkaError: NOT_LEADER_OR_FOLLOWER if another node leads,
        REQUEST_TIMED_OUT, and why a change is not possible (DUPLICATE_VOTER, VOTER_NOT_FOUND, …)."""

    def describe(self) -> QuorumView:
        """KafkaError NOT_LEADER_OR_FOLLOWER if another node leads."""

    def learn_address(self, node_id: int, address: NodeAddress) -> None:
        """Learn where a node says that its controller listener is."""

    async def changed(self) -> None:
        """Wait for the next change of the image, or of the leader."""


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """The cluster as handlers know it, and their way to change it."""

    node_id: int  # this node
    controller_listeners: Sequence[str]  # by name
    metadata: Metadata
    quorum: Quorum
    disk: Disk
    _controllers_told: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self.metadata.image.topics_by_id.get(topic_id)
        return topic.name if topic else None

    @property
    def transaction_version(self) -> int:
        """The level of the feature: 2 has an epoch of its own for every transaction (KIP-890)."""
        return self.image.features.get(TRANSACTION_VERSION, 0)

    def check_metadata(self) -> None:
        """Check that the metadata may be told, for requests about who leads and where. A broker whose disk is so full
        that it cannot keep the metadata does not know that by now: the connection is closed, so that the client asks
        another broker.
        """
        if self.disk.is_full and self.quorum.is_stuck:
            raise ProtocolError("this broker's metadata is old, because its disk is full: ask another broker")

    def next_controller_id(self) -> int:
        """The broker that clients are told is the controller: any active one, because each forwards requests to it.
        They take turns; Kafka chooses at random."""
        alive = [broker.id for broker in self.image.brokers.values() if not broker.is_fenced]
        told = next(self._controllers_told)
        return alive[(self.node_id + told) % len(alive)] if alive else NO_NODE

    # --- decisions ---

    @property
    def leads(self) -> bool:
        """True if this node leads the quorum, as far as it knows."""
        leader = self.quorum.leader
        return leader is not None and leader[0] == self.node_id

    def is_for_controller(self, request: Request) -> bool:
        """True if it came through a controller listener: then this node responds itself, and does not forward it."""
        return request.caller.listener in self.controller_listeners

    async def decide(self, request: Request, message: Message) -> Any:
        """Send a client's request to the controller, which may say that the client is throttled."""
        if self.is_for_controller(request):
            response = await self.metadata.decide_here(message, request.version, request.caller)
        else:
            response = await self.metadata.decide(message, request.version, request.caller)
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms:
            request.throttle_ms = max(request.throttle_ms, throttle_ms)
            count_throttle("mutation", throttle_ms / 1000)
        return response

    async def at_leader(
        self, request: Request, message: Message, respond: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Handle the request here if this node leads the quorum, otherwise forward it. A request on a controller
        listener is always handled here: its sender looks for the leader itself.
        """
        if self.is_for_controller(request) or self.leads:
            return await respond()

        async def answer_here(message: Message, version: int, caller: Caller) -> Any:
            return await respond()

        return await self.metadata.forward(message, request.version, request.caller, answer_here)
