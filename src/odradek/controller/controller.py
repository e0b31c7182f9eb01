"""The controller: one entry for every request that changes the cluster's metadata.

A request is a message of Kafka's protocol, accompanied only by its version and its caller: it can be encoded in that
version, sent to another node and decided there, with the same outcome. Besides that, a decision depends only on
the newest image and on what the controller was built with (`Terms`).

Each API has a module of its name in `controller.requests`:

- `decide(image, part, terms)` returns the metadata records to write and the response, and raises KafkaError if the
  whole request is refused;
- `cut(image, request, config)`, if present, cuts a large request into parts that are decided in order, each on the
  image that the previous one produced; their responses are joined (`apis.items`).

Modules, and the messages of their API, are imported on first use, so that a broker starts faster.

Kafka has a message for everything that is decided here. Even a broker that may have lost what it had not synced, and
must lead its partitions in new leader epochs, says so with Kafka's own BrokerRegistration: by its previous broker
epoch.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

from odradek.config.broker import BrokerConfig
from odradek.controller.mutations import Mutations, Spend, unlimited
from odradek.controller.parts import Part
from odradek.controller.sessions import Sessions
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import MetadataRecord
from odradek.model import Caller
from odradek.wire.codec import Message, Steps
from odradek.wire.messages.index import SCHEMAS


class Terms(NamedTuple):
    """The facts that a decision depends on, besides the image and the request."""

    node_id: int  # of the controller
    config: BrokerConfig  # of the controller
    rng: Random
    version: int  # of the request
    caller: Caller
    sessions: Sessions  # of brokers, known only to this controller: not in the image, and never written
    now_ms: int  # of the steady clock
    spend: Spend = (
        unlimited  # asks whether a quota lets the caller have so many partitions created or deleted
    )


class Controller:
    def __init__(
        self, node_id: int, config: BrokerConfig, rng: Random, now_ms: Callable[[], int] = lambda: 0
    ) -> None:
        """`now_ms` is a clock that never goes back."""
        self._node_id = node_id
        self.config = config
        self._rng = rng
        self._now_ms = now_ms
        self.sessions = Sessions(config["broker.session.timeout.ms"])
        self._mutations = Mutations(config)

    def reconfigure(self, config: BrokerConfig) -> None:
        self.config = config

    def cut(self, image: MetadataImage, request: Message) -> Steps[list[Part]]:
        """The parts of a request, to be decided in order."""
        module = _module_of(type(request))
        if not hasattr(module, "cut"):
            return [Part(request)]
        parts: list[Part] = yield from module.cut(image, request, self.config)
        return parts

    def decide(
        self, image: MetadataImage, part: Part, version: int, caller: Caller
    ) -> tuple[list[MetadataRecord], Any]:
        """Returns the records to write for one part of a request, and the response to give once they are committed."""
        now_ms = self._now_ms()
        terms = Terms(self._node_id, self.config, self._rng, version, caller, self.sessions, now_ms)
        purse = self._mutations.purse(image, part.request, version, caller, now_ms)
        if purse is not None:
            terms = terms._replace(spend=purse.spend)
        decided: tuple[list[MetadataRecord], Any] = _module_of(type(part.request)).decide(image, part, terms)
        if purse is not None:
            purse.tell(decided[1])
        return decided


@cache
def _module_of(request_type: Any) -> ModuleType:
    return import_module(f"odradek.controller.requests.{SCHEMAS[request_type.API_KEY].module}")
