"""The coordinators of a node, of every kind, and the verifier, which asks coordinators elsewhere.

Each is made when it is first needed: their code is half of all imports. Those that are there are told what happens to
the partitions of this node.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.replication.replica import Replica
from odradek.serving.coordination import GROUPS, KINDS, Kind, Verifier
from odradek.serving.services import Services

if TYPE_CHECKING:
    from odradek.services.coordination.shards import Shards


class NodeCoordinators:
    def __init__(self, get_services: Callable[[], Services]) -> None:
        self._get_services = get_services
        self._present: dict[Kind, Shards[Any]] = {}  # those that were needed so far
        self._verifier: Verifier | None = None

    def load(self, image: MetadataImage) -> None:
        """Load the coordinators that have something to coordinate already. The logs are open."""
        for kind in KINDS.values():
            if kind.topic in image.topics:
                self.get(kind)

    def get(self, kind: Kind) -> "Shards[Any]":
        if kind not in self._present:
            module, _, name = kind.service.partition(":")
            self._present[kind] = getattr(import_module(module), name)(self._get_services())
        return self._present[kind]

    def get_verifier(self) -> Verifier:
        if self._verifier is None:
            from odradek.services.coordination.verification import (
                Verifier,  # with the coordinators' code: not at start
            )

            self._verifier = Verifier(self._get_services())
        return self._verifier

    @property
    def group_count(self) -> int:
        return self._present[GROUPS].key_count if GROUPS in self._present else 0

    def new_role(self, replica: Replica) -> None:
        for each in tuple(self._present.values()):
            each.new_role(replica)

    def removed(self, replica: Replica) -> None:
        for each in tuple(self._present.values()):
            each.removed(replica)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        for each in tuple(self._present.values()):
            each.metadata_changed(delta)

    def close(self) -> None:
        for each in tuple(self._present.values()):
            each.close()
