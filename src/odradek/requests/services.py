"""What request handlers work with: the parts of a broker, assembled by `broker`."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.controller.context import RequestContext
from odradek.errors import KafkaError
from odradek.host.interface import Host, Timer
from odradek.host.metrics import Metrics
from odradek.metadata.image import MetadataImage
from odradek.model import TopicPartition
from odradek.raft.messages import Request as QuorumRequest
from odradek.raft.reconfiguration import VoterChange
from odradek.raft.rpc import NodeAddress
from odradek.raft.view import QuorumView
from odradek.replication.leader import Leader
from odradek.replication.replicas import Replicas
from odradek.requests.fetch_sessions import FetchSessions
from odradek.requests.request import Request
from odradek.requests.turns import Turns
from odradek.wire.codec import Message, Steps

Amend = Callable[[Any], Any]


def as_it_is(answer: Any) -> Any:
    return answer


class Deadlines(Protocol):
    """Timers for requests that wait."""

    def add(self, delay_ms: float, callback: Callable[[], None]) -> Timer: ...


AnswerHere = Callable[[Message, RequestContext], Awaitable[Any]]


class Metadata(Protocol):
    """The cluster's metadata: the newest image, and the way to the next one."""

    @property
    def image(self) -> MetadataImage: ...

    async def decide(self, request: Message, context: RequestContext) -> Any:
        """Let the controller decide on its newest image. Returns the response, once its records are committed and
        applied; if the request is refused, or cannot be written, with an error code for each of its items."""

    async def decide_here(self, request: Message, context: RequestContext) -> Any:
        """The same, but NOT_CONTROLLER if another node is the active controller."""

    async def forward(self, request: Message, context: RequestContext, answer_here: AnswerHere) -> Any:
        """The response of the active controller, on another node, to a request that is sent there in an Envelope; a
        refusal if that node cannot be reached. If this node becomes the controller, `answer_here` is called."""


class Quorum(Protocol):
    """The replica of the metadata quorum that this node runs."""

    @property
    def leader(self) -> tuple[int, NodeAddress | None] | None:
        """The leader and its address, as far as this node knows."""

    @property
    def epoch(self) -> int: ...

    def handle(self, request: Request, body: QuorumRequest) -> None:
        """Give a request of another replica to the core. The response is sent when the core gives it: a fetch may
        be parked."""

    async def change_voters(self, change: VoterChange, timeout_ms: int) -> None:
        """Returns once the change is committed. KafkaError: NOT_LEADER_OR_FOLLOWER if another node leads,
        REQUEST_TIMED_OUT, and why a change is not possible (DUPLICATE_VOTER, VOTER_NOT_FOUND, …)."""

    def describe(self) -> QuorumView:
        """KafkaError NOT_LEADER_OR_FOLLOWER if another node leads."""

    def learn_address(self, node_id: int, address: NodeAddress) -> None:
        """Where a node says that its controller listener is."""

    async def changed(self) -> None:
        """Wait for the next change of the image, or of the leader."""


class Groups(Protocol):
    """The group coordinators of this broker. They respond to the request themselves."""

    async def find(self, group_id: str) -> int:
        """The broker that coordinates a group; creates the internal topic if it does not exist yet.
        Raises KafkaError if there is none now; a retry may find one."""

    def handle(self, request: Request, message: Any, group_id: str, amend: Amend = as_it_is) -> None:
        """A request about one group; `amend` may change its response."""

    def handle_parts(
        self, request: Request, parts: list[Any], group_id: str, amend: Amend = as_it_is
    ) -> Steps[None]:
        """A request about one group, in parts that are handled one after the other."""

    def handle_many(self, request: Request, message: Any, amend: Amend = as_it_is) -> Steps[None]:
        """A request about many groups."""

    def handle_all(self, request: Request, message: Any) -> Steps[None]:
        """A request about all groups."""


NO_NODE = -1


def _nothing(leader: Leader) -> None:
    pass


@dataclass(slots=True)
class Services:
    node_id: int
    data_dir: Path
    config: BrokerConfig
    rng: Random
    metadata: Metadata
    replicas: Replicas
    fetch_sessions: FetchSessions
    # Moves log start offsets, on disk when it returns; returns errors by partition.
    delete_records: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, KafkaError]]
    deadlines: Deadlines
    new_producer_id: Callable[[], Awaitable[int]]
    max_fetch_bytes: int
    turns: Turns  # for requests that take long
    get_groups: Callable[[], Groups]  # created when first needed
    host: Host
    quorum: Quorum
    replica_fetched: Callable[[Leader], None] = _nothing  # a replica fetched from us: it may join the ISR
    metrics: Metrics = field(default_factory=Metrics)
    now_ms: Callable[[], int] = field(init=False)  # the host's
    _controllers_told: int = 0

    def __post_init__(self) -> None:
        self.now_ms = self.host.now_ms

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def groups(self) -> Groups:
        return self.get_groups()

    def next_controller_id(self) -> int:
        """What clients take for the controller: any broker, as each forwards to it. They get one after the other, where
        Kafka takes a random one."""
        alive = [broker.id for broker in self.image.brokers.values() if not broker.is_fenced]
        self._controllers_told += 1
        return alive[(self.node_id + self._controllers_told) % len(alive)] if alive else NO_NODE

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self.metadata.image.topics_by_id.get(topic_id)
        return topic.name if topic else None

    @property
    def leads(self) -> bool:
        """Whether this node leads the quorum, as far as it knows."""
        leader = self.quorum.leader
        return leader is not None and leader[0] == self.node_id

    def is_for_controller(self, request: Request) -> bool:
        """Whether it came by a listener of the controller: then this node responds itself, and does not forward it."""
        return request.listener in self.config.controller_listener_names

    async def decide(self, request: Request, message: Message) -> Any:
        """Send a client's request to the controller."""
        context = context_of(request, request.version)
        if self.is_for_controller(request):
            return await self.metadata.decide_here(message, context)
        return await self.metadata.decide(message, context)

    async def at_leader(
        self, request: Request, message: Message, answer: Callable[[], Awaitable[Any]]
    ) -> Any:
        """For requests that only the leader of the quorum can handle: here if that is us, else there. A request on the
        controller's listener is handled here in any case: its sender looks for the leader itself."""
        if self.is_for_controller(request) or self.leads:
            return await answer()

        async def answer_here(message: Message, context: RequestContext) -> Any:
            return await answer()

        return await self.metadata.forward(message, context_of(request, request.version), answer_here)


def context_of(request: Request, version: int) -> RequestContext:
    """For decisions on behalf of a client, in its own request or, in this version, in one of ours."""
    return RequestContext(version, request.client_id or "", request.client_address, str(request.principal))
