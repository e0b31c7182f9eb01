"""Kafka's StandardAuthorizer: super users may do everything, and the ACLs in the metadata decide about the others.

Until this node knows all that is committed (`load`), it does not know the ACLs: super users pass, so that nodes can
form the quorum that knows them, and everybody else is told to come back. Only the listeners of controllers
are open by then.

A change of the ACLs is in force for the next request after this node has applied it; whatever was remembered before
(`authorizer.Remembered`) is of an older generation.
"""

from collections.abc import Iterable

from odradek.acls.acl import Acl
from odradek.acls.codes import Operation, Resource
from odradek.acls.rules import Rules
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.delta import MetadataDelta
from odradek.model import Caller


class StandardAuthorizer:
    allows_all = False

    def __init__(self, super_users: Iterable[str], allows_unlisted: bool) -> None:
        """`super_users`: as Kafka writes principals, User:alice. `allows_unlisted`: what has no ACL is open to all."""
        self._super_users = frozenset(super_users)
        self._allows_unlisted = allows_unlisted
        self._rules: Rules | None = None  # until it is loaded
        self.generation = 0

    def load(self, acls: Iterable[Acl]) -> None:
        self._rules = Rules(acls, self._allows_unlisted)
        self.generation += 1

    def apply(self, delta: MetadataDelta) -> None:
        if self._rules is None or not delta.changed_acls:
            return
        self.generation += 1
        for acl_id in delta.changed_acls:
            before, after = delta.before.acls.get(acl_id), delta.after.acls.get(acl_id)
            if before is not None:
                self._rules.remove(before)
            if after is not None:
                self._rules.add(after)

    def may(self, caller: Caller, operation: Operation, resource: Resource, name: str | None) -> bool:
        principal = str(caller.principal)
        if principal in self._super_users:
            return True
        if self._rules is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "The authorizer has not loaded the ACLs yet: try again."
            )
        if name is None:
            return self._rules.decide_any(principal, caller.host, operation, resource)
        return self._rules.decide(principal, caller.host, operation, resource, name).is_allowed
