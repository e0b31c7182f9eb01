"""The coordinators of a node: of groups, of transactions, and the verifier, which asks coordinators elsewhere.

Each is made when it is first needed: their code is half of all imports. Those that are there are told what happens to
the partitions of this node.
"""

from collections.abc import Callable
from typing import Protocol

from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.replication.replica import Replica
from odradek.serving.coordination import Coordinators, Groups, Transactions, Verifier
from odradek.serving.services import Services


class CoordinatorsOfNode(Coordinators, Protocol):
    """Coordinators, as the node that they belong to sees them."""

    def new_role(self, replica: Replica) -> None: ...
    def removed(self, replica: Replica) -> None: ...
    def metadata_changed(self, delta: MetadataDelta) -> None: ...
    def close(self) -> None: ...


class GroupsOfNode(Groups, CoordinatorsOfNode, Protocol):
    @property
    def group_count(self) -> int: ...


class TransactionsOfNode(Transactions, CoordinatorsOfNode, Protocol):
    pass


class NodeCoordinators:
    def __init__(
        self,
        new_groups: Callable[[Services], GroupsOfNode],
        new_transactions: Callable[[Services], TransactionsOfNode],
        get_services: Callable[[], Services],
    ) -> None:
        self._new_groups = new_groups
        self._new_transactions = new_transactions
        self._get_services = get_services
        self._groups: GroupsOfNode | None = None
        self._transactions: TransactionsOfNode | None = None
        self._verifier: Verifier | None = None

    def load(self, image: MetadataImage) -> None:
        """Those that have something to coordinate already. The logs are open."""
        if OFFSETS_TOPIC in image.topics:
            self.get_groups()
        if TRANSACTIONS_TOPIC in image.topics:
            self.get_transactions()

    def get_groups(self) -> GroupsOfNode:
        if self._groups is None:
            self._groups = self._new_groups(self._get_services())
        return self._groups

    def get_transactions(self) -> TransactionsOfNode:
        if self._transactions is None:
            self._transactions = self._new_transactions(self._get_services())
        return self._transactions

    def get_verifier(self) -> Verifier:
        if self._verifier is None:
            from odradek.services.verification import Verifier  # with the coordinators' code: not at start

            self._verifier = Verifier(self._get_services())
        return self._verifier

    @property
    def group_count(self) -> int:
        return 0 if self._groups is None else self._groups.group_count

    @property
    def _present(self) -> tuple[CoordinatorsOfNode, ...]:
        """Those that were needed so far."""
        return tuple(each for each in (self._groups, self._transactions) if each is not None)

    def new_role(self, replica: Replica) -> None:
        for each in self._present:
            each.new_role(replica)

    def removed(self, replica: Replica) -> None:
        for each in self._present:
            each.removed(replica)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        for each in self._present:
            each.metadata_changed(delta)

    def close(self) -> None:
        for each in self._present:
            each.close()
