"""What the handlers of requests work with: the parts of a broker, put together by `broker`."""

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
from odradek.metadata.image import MetadataImage
from odradek.model import TopicPartition
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


class Metadata(Protocol):
    """The cluster's metadata: the newest image, and the way to the next one."""

    @property
    def image(self) -> MetadataImage: ...

    async def decide(self, request: Message, context: RequestContext) -> Any:
        """Have the controller decide on its newest image. The response, once what it wrote is committed and applied;
        where the request is refused, or cannot be written, with an error code for each of its items."""


class Groups(Protocol):
    """The group coordinators of this broker. They answer the request themselves."""

    async def find(self, group_id: str) -> int:
        """The broker that coordinates a group; the internal topic is created if it is not there yet.
        Raises KafkaError where there is none now; who asks again later may find one."""

    def handle(self, request: Request, message: Any, group_id: str, amend: Amend = as_it_is) -> None:
        """A request about one group; `amend` has the last word on its answer."""

    def handle_parts(
        self, request: Request, parts: list[Any], group_id: str, amend: Amend = as_it_is
    ) -> Steps[None]:
        """A request about one group, in parts that are handled one after the other."""

    def handle_many(self, request: Request, message: Any, amend: Amend = as_it_is) -> Steps[None]:
        """A request about many groups."""

    def handle_all(self, request: Request, message: Any) -> Steps[None]:
        """A request about all groups."""


@dataclass(slots=True)
class Services:
    node_id: int
    data_dir: Path
    config: BrokerConfig
    rng: Random
    metadata: Metadata
    replicas: Replicas
    fetch_sessions: FetchSessions
    # Let logs start at these offsets, on disk when it returns; what went wrong, by partition.
    delete_records: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, KafkaError]]
    deadlines: Deadlines
    new_producer_id: Callable[[], Awaitable[int]]
    max_fetch_bytes: int
    turns: Turns  # for requests that take long
    get_groups: Callable[[], Groups]  # made when they are first needed
    host: Host
    now_ms: Callable[[], int] = field(init=False)  # the host's

    def __post_init__(self) -> None:
        self.now_ms = self.host.now_ms

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def groups(self) -> Groups:
        return self.get_groups()

    @property
    def controller_id(self) -> int:
        """Clients send what is for the controller to any broker; what they are told is a broker they can reach."""
        return self.node_id

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self.metadata.image.topics_by_id.get(topic_id)
        return topic.name if topic else None

    async def decide(self, request: Request, message: Message) -> Any:
        """Send a client's request to the controller."""
        return await self.metadata.decide(message, context_of(request, request.version))


def context_of(request: Request, version: int) -> RequestContext:
    """Of what is decided for a client, in a request of its own or, in this version, in one of ours."""
    return RequestContext(version, request.client_id or "", request.client_address, str(request.principal))
