"""The parts of a node that request handlers work with, assembled by `broker`.

There are four facets, each built once and never changed afterwards:

    cluster        the metadata, and the quorum that decides on them
    partitions     the replicas on this node, and their disk
    coordination   the coordinators of groups and transactions
    node           this process: its settings, clocks, timers and counters

A handler takes the facet that it needs, or all of them (see `registry`). Beside them stands the `authorizer`, which the
road asks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

from odradek.apis.row import ListenerKind
from odradek.apis.table import SERVED
from odradek.config.broker import BrokerConfig
from odradek.host.interface import Host, Timer
from odradek.host.metrics import Metrics
from odradek.model import Caller, node_caller
from odradek.serving.authorizer import Authorizer
from odradek.serving.cluster import Cluster
from odradek.serving.coordination import Coordination
from odradek.serving.partitions import Partitions
from odradek.serving.quotas import ClientQuotas
from odradek.serving.road import Road
from odradek.serving.session import NewSession, open_session
from odradek.serving.turns import Turns


class Deadlines(Protocol):
    """Timers for requests that wait."""

    def add(self, delay_ms: float, callback: Callable[[], None]) -> Timer: ...


@dataclass(frozen=True, slots=True, eq=False)
class ThisNode:
    """The process as handlers know it."""

    id: int
    data_dir: Path
    get_config: Callable[[], BrokerConfig]
    rng: Random
    host: Host
    turns: Turns  # for requests that take long
    deadlines: Deadlines
    metrics: Metrics
    broker_epoch: Callable[[], int]  # of this process; -1 before the metadata has its registration

    @property
    def config(self) -> BrokerConfig:
        """The settings by now: some are changed while the node runs."""
        return self.get_config()

    @property
    def caller(self) -> Caller:
        """The caller of the node's own requests."""
        return node_caller(self.id)


class Services:
    """The parts of a node, as handlers see them, and the roads to all handlers."""

    __slots__ = (
        "_roads",
        "authorizer",
        "cluster",
        "coordination",
        "new_session",
        "node",
        "partitions",
        "quotas",
    )

    def __init__(
        self,
        cluster: Cluster,
        partitions: Partitions,
        coordination: Coordination,
        node: ThisNode,
        authorizer: Authorizer,
        new_session: NewSession = open_session,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self.quotas = quotas  # that conversations keep their clients within
        self.new_session = new_session  # how connections begin
        self.cluster = cluster
        self.partitions = partitions
        self.coordination = coordination
        self.node = node
        self.authorizer = authorizer
        self._roads = {kind: Road(self, kind) for kind in ListenerKind}

    def road(self, kind: ListenerKind) -> Road:
        """The way to the handlers of requests to listeners of this kind."""
        return self._roads[kind]

    async def ask(self, message: Any, version: int, caller: Caller) -> Any:
        """Ask this node for what it serves on either kind of listener: it answers itself, or forwards the request to
        the active controller."""
        kind = next(kind for kind in ListenerKind if message.API_KEY in SERVED[kind])
        return await self._roads[kind].ask(message, version, caller).answered()
