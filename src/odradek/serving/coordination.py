"""The coordinators on this node, by kind, and the way to those elsewhere."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

from odradek.apis.row import Resource
from odradek.errors import ErrorCode, KafkaError
from odradek.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.replication.leader import Leader
from odradek.serving.request import Request
from odradek.storage.producers.markers import TransactionEnd
from odradek.storage.producers.verification import Verification
from odradek.wire.codec import Message, Steps

Amend = Callable[[Any], Any]


def as_it_is(response: Any) -> Any:
    return response


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind of coordinator: this is all that a node knows of it."""

    key_type: int  # in FindCoordinator
    resource: Resource  # what a key names
    topic: str  # the internal topic that has their records
    service: str  # module and class, which is made from `Services`, and has what `Coordinators` says


GROUPS = Kind(0, Resource.GROUP, OFFSETS_TOPIC, "odradek.services.coordination.groups:Groups")
TRANSACTIONS = Kind(
    1,
    Resource.TRANSACTIONAL_ID,
    TRANSACTIONS_TOPIC,
    "odradek.services.coordination.transactions:Transactions",
)
KINDS = {kind.key_type: kind for kind in (GROUPS, TRANSACTIONS)}


class Coordinators(Protocol):
    """The coordinators of one kind on this broker. They respond to the request themselves. A key is the id of a group,
    or a transactional id."""

    async def find(self, key: str) -> int:
        """The broker that coordinates it; creates the internal topic if it does not exist yet.
        Raises KafkaError if there is none now; a retry may find one."""

    def partition_for(self, key: str) -> int:
        """The partition of the internal topic that has the shard of this key."""

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
        """Verify the batches of one producer in a Produce of this version: what each is appended with, or why it must
        not be. The result is there at once if the coordinator is on this broker and need not wait for anything.
        """

    async def verify_offsets(
        self, version: int, transactional_id: str, producer_id: int, producer_epoch: int, partition: int
    ) -> ErrorCode:
        """Verify a TxnOffsetCommit of this version to a group with this partition of the internal topic. Offsets that
        are appended in the same turn of the event loop belong to the transaction.
        """


class Peers(Protocol):
    """Other brokers, and this one."""

    def ask(
        self, broker_id: int, message: Message, version: int, timeout_seconds: float
    ) -> Message | Awaitable[Message]:
        """The response to a request, if it is there at once; else something to await. Both raise OSError where there is
        none in time, ProtocolError where it cannot be read."""


@dataclass(frozen=True, slots=True, eq=False)
class Coordination:
    """The coordinators as handlers know them."""

    get: Callable[[Kind], Coordinators]  # created when first needed
    get_verifier: Callable[[], Verifier]  # created when first needed
    new_producer_id: Callable[[], Awaitable[int]]
    peers: Peers

    @property
    def groups(self) -> Groups:
        return cast(Groups, self.get(GROUPS))

    @property
    def transactions(self) -> Coordinators:
        return self.get(TRANSACTIONS)

    @property
    def verification(self) -> Verifier:
        return self.get_verifier()
