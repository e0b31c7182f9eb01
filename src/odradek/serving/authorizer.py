"""The seam for ACLs.

An authorizer says whether a caller may do an operation to a resource. Without one (`authorizer.class.name`) everybody
may do everything, and then nobody is asked: `allows_all` is looked at once for each request. With ACLs it is
`serving.standard_authorizer`.

What it said about a caller is remembered with the connection, until the generation of its decisions changes. A node may
do everything: its own requests are never denied.
"""

from typing import TYPE_CHECKING, Protocol

from odradek.apis.row import May, Operation, Resource
from odradek.errors import ErrorCode, KafkaError
from odradek.model import MAX_TOPIC_NAME_LENGTH, Caller

if TYPE_CHECKING:
    from odradek.serving.request import Request

MOST_REMEMBERED = 1_000  # decisions for one connection
LONGEST_REMEMBERED = MAX_TOPIC_NAME_LENGTH  # names; anybody may ask for long ones, and nearly nobody has them
DENIED = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Authorizer(Protocol):
    @property
    def allows_all(self) -> bool:
        """True if it never says no. It does not change."""

    @property
    def generation(self) -> int:
        """Changes whenever a response may have changed."""

    def may(self, caller: Caller, operation: Operation, resource: Resource, name: str | None) -> bool:
        """True if the caller may do this to the resource of that name, or to some resource of the type (None). The
        name of the cluster is empty. Raises KafkaError if it does not know yet."""


class AllowAll:
    """Everybody may do everything: there are no ACLs."""

    allows_all = True
    generation = 0

    def may(self, caller: Caller, operation: Operation, resource: Resource, name: str | None) -> bool:
        return True


class Remembered:
    """Decisions of an authorizer about the caller of one connection."""

    __slots__ = ("_authorizer", "_decisions", "caller", "generation")

    def __init__(self, authorizer: Authorizer, caller: Caller) -> None:
        self._authorizer = authorizer
        self._decisions: dict[tuple[Operation, Resource, str | None], bool] = {}
        self.caller = caller
        self.generation = authorizer.generation

    def may(self, operation: Operation, resource: Resource, name: str | None) -> bool:
        key = operation, resource, name
        is_allowed = self._decisions.get(key)
        if is_allowed is None:
            is_allowed = self._authorizer.may(self.caller, operation, resource, name)
            if name is None or len(name) <= LONGEST_REMEMBERED:
                if len(self._decisions) >= MOST_REMEMBERED:
                    self._decisions.clear()
                self._decisions[key] = is_allowed
        return is_allowed


def check_has_acls(authorizer: Authorizer) -> None:
    """ACLs that nobody looks at would be a promise: they can neither be made nor seen."""
    if authorizer.allows_all:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def may_of(authorizer: Authorizer, request: "Request") -> May:
    """Return what the caller of this request may do now."""
    caller, session = request.caller, request.session
    if caller.is_node:
        return _everything
    known = None if session is None else session.remembered
    if known is None or known.generation != authorizer.generation or known.caller != caller:
        known = Remembered(authorizer, caller)
        if session is not None:
            session.remembered = known
    return known.may


def _everything(operation: Operation, resource: Resource, name: str | None) -> bool:
    return True
