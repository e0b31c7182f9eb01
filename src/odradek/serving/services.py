"""What request handlers work with: the parts of a broker, assembled by `broker`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.controller.features import TRANSACTION_VERSION
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.host.interface import Host, Timer
from odradek.host.metrics import Metrics
from odradek.metadata.image import MetadataImage
from odradek.model import Caller, TopicPartition, node_caller
from odradek.raft.address import NodeAddress
from odradek.raft.messages import Request as QuorumRequest
from odradek.raft.reconfiguration import VoterChange
from odradek.raft.view import QuorumView
from odradek.replication.leader import Leader
from odradek.replication.quota import ReplicationQuota
from odradek.replication.replicas import Replicas
from odradek.serving.request import Request
from odradek.serving.turns import Turns
from odradek.storage.producers.markers import TransactionEnd
from odradek.storage.producers.verification import Verification
from odradek.wire.codec import Message, Steps

Amend = Callable[[Any], Any]


def as_it_is(answer: Any) -> Any:
    return answer


class Deadlines(Protocol):
    """Timers for requests that wait."""

    def add(self, delay_ms: float, callback: Callable[[], None]) -> Timer: ...


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
        """What the leader sent could not be appended: this node's metadata is old."""

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


class Coordinators(Protocol):
    """The coordinators of one kind on this broker. They respond to the request themselves. A key is the id of a group,
    or a transactional id."""

    async def find(self, key: str) -> int:
        """The broker that coordinates it; creates the internal topic if it does not exist yet.
        Raises KafkaError if there is none now; a retry may find one."""

    def partition_for(self, key: str) -> int:
        """Of the internal topic: where the shard of this key is."""

    def handle(self, request: Request, message: Any, key: str, amend: Amend = as_it_is) -> None:
        """A request about one key; `amend` may change its response."""

    def handle_parts(
        self, request: Request, parts: list[Any], key: str, amend: Amend = as_it_is
    ) -> Steps[None]:
        """A request about one key, in parts that are handled one after the other."""

    def handle_many(self, request: Request, message: Any, amend: Amend = as_it_is) -> Steps[None]:
        """A request about many keys."""

    def handle_all(self, request: Request, message: Any, amend: Amend = as_it_is) -> Steps[None]:
        """A request about all keys."""


class Groups(Coordinators, Protocol):
    """The group coordinators."""

    def end_transaction(self, index: int, end: TransactionEnd, done: Callable[[ErrorCode], None]) -> None:
        """Write the marker of a transaction that committed offsets to this partition of the internal topic. `done` is
        called once it is committed, or refused."""


class Transactions(Coordinators, Protocol):
    """The transaction coordinators."""


class FirstBatch(NamedTuple):
    """A batch that begins a transaction in a partition."""

    leader: Leader
    producer_id: int
    producer_epoch: int
    sequence: int


class Verifier(Protocol):
    """Asks the coordinator of a transaction before the transaction begins in a partition."""

    def verify(
        self, version: int, transactional_id: str, batches: Sequence[FirstBatch]
    ) -> list[Verification | KafkaError] | Awaitable[list[Verification | KafkaError]]:
        """For the batches of one producer in a Produce of this version: what each is appended with, or why it must not
        be. At once, if the coordinator is on this broker and need not wait for anything."""

    async def verify_offsets(
        self, version: int, transactional_id: str, producer_id: int, producer_epoch: int, partition: int
    ) -> ErrorCode:
        """For a TxnOffsetCommit of this version to a group with this partition of the internal topic. Offsets that are
        appended in the same turn of the event loop belong to the transaction."""


class Disk(Protocol):
    """The disk of the data directory."""

    is_full: bool  # this broker gives its leaderships away

    @property
    def keeps_its_rest(self) -> bool:
        """Users' records are refused, because what is left of the disk is for the broker itself."""

    def refusal(self) -> KafkaError:
        """The response to a batch of a producer, while the disk is full."""

    def write_failed(self, error: KafkaError | OSError) -> None:
        """A record could not be written: the disk may be full."""


class Peers(Protocol):
    """Other brokers, and this one."""

    def ask(
        self, broker_id: int, message: Message, version: int, timeout_seconds: float
    ) -> Message | Awaitable[Message]:
        """The response to a request, if it is there at once; else something to await. Both raise OSError where there is
        none in time, ProtocolError where it cannot be read."""


NO_NODE = -1


def _nothing(leader: Leader) -> None:
    pass


@dataclass(slots=True, eq=False)
class Services:
    """The parts of a broker, as handlers see them."""

    node_id: int
    data_dir: Path
    config: BrokerConfig
    rng: Random
    metadata: Metadata
    replicas: Replicas
    # Moves log start offsets, on disk when it returns; returns errors by partition.
    delete_records: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, KafkaError]]
    deadlines: Deadlines
    new_producer_id: Callable[[], Awaitable[int]]
    turns: Turns  # for requests that take long
    get_groups: Callable[[], Groups]  # created when first needed
    get_transactions: Callable[[], Transactions]  # created when first needed
    get_verifier: Callable[[], Verifier]  # created when first needed
    peers: Peers
    host: Host
    quorum: Quorum
    disk: Disk
    # Of this process; -1 before the metadata has its registration.
    broker_epoch: Callable[[], int] = lambda: NO_NODE
    replica_fetched: Callable[[Leader], None] = _nothing  # a replica fetched from us: it may join the ISR
    leader_quota: ReplicationQuota = field(default_factory=ReplicationQuota)  # of what throttled replicas get
    metrics: Metrics = field(default_factory=Metrics)
    now_ms: Callable[[], int] = field(init=False)  # the host's
    caller: Caller = field(init=False)  # of the node's own requests
    roads: dict[str, Any] = field(default_factory=dict)  # by kind of listener; see `road.road_of`
    _controllers_told: int = 0

    def __post_init__(self) -> None:
        self.now_ms = self.host.now_ms
        self.caller = node_caller(self.node_id)

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def check_metadata(self) -> None:
        """For requests about who leads and where. A broker whose disk is so full that it cannot keep the metadata does
        not know that by now: the connection is closed, so that the client asks another broker."""
        if self.disk.is_full and self.quorum.is_stuck:
            raise ProtocolError("this broker's metadata is old, because its disk is full: ask another broker")

    @property
    def groups(self) -> Groups:
        return self.get_groups()

    @property
    def transactions(self) -> Transactions:
        return self.get_transactions()

    @property
    def verification(self) -> Verifier:
        return self.get_verifier()

    @property
    def transaction_version(self) -> int:
        """The level of the feature: 2 has an epoch of its own for every transaction (KIP-890)."""
        return self.image.features.get(TRANSACTION_VERSION, 0)

    def next_controller_id(self) -> int:
        """The broker that clients are told is the controller: any active one, because each forwards requests to it.
        They take turns; Kafka chooses at random."""
        alive = [broker.id for broker in self.image.brokers.values() if not broker.is_fenced]
        self._controllers_told += 1
        return alive[(self.node_id + self._controllers_told) % len(alive)] if alive else NO_NODE

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self.metadata.image.topics_by_id.get(topic_id)
        return topic.name if topic else None

    @property
    def leads(self) -> bool:
        """True if this node leads the quorum, as far as it knows."""
        leader = self.quorum.leader
        return leader is not None and leader[0] == self.node_id

    def is_for_controller(self, request: Request) -> bool:
        """True if it came through a controller listener: then this node responds itself, and does not forward it."""
        return request.caller.listener in self.config.controller_listener_names

    async def decide(self, request: Request, message: Message) -> Any:
        """Send a client's request to the controller."""
        if self.is_for_controller(request):
            return await self.metadata.decide_here(message, request.version, request.caller)
        return await self.metadata.decide(message, request.version, request.caller)

    async def at_leader(
        self, request: Request, message: Message, answer: Callable[[], Awaitable[Any]]
    ) -> Any:
        """For requests that only the leader of the quorum can handle: `answer` here if this node leads, otherwise
        forward it. A request on a controller listener is always handled here: its sender looks for the leader
        itself."""
        if self.is_for_controller(request) or self.leads:
            return await answer()

        async def answer_here(message: Message, version: int, caller: Caller) -> Any:
            return await answer()

        return await self.metadata.forward(message, request.version, request.caller, answer_here)
