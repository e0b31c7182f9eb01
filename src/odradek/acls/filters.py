"""Which ACLs an administrator means: those that match a filter. None, and ANY, match everything.

The pattern type MATCH asks the other way round: which ACLs concern the resource of that name?
"""

from typing import NamedTuple

from odradek.acls.acl import WILDCARD, Acl
from odradek.acls.codes import Operation, Pattern, Permission, Resource
from odradek.errors import ErrorCode, KafkaError


class AclFilter(NamedTuple):
    resource_type: int = Resource.ANY
    resource_name: str | None = None
    pattern_type: int = Pattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (Resource.ANY, acl.resource_type)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (Pattern.ANY, Pattern.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type != Pattern.MATCH:
            return self.resource_name == acl.resource_name
        return matches_name(acl, self.resource_name)


def matches_name(acl: Acl, name: str) -> bool:
    """True if the ACL concerns the resource of that name."""
    if acl.pattern_type == Pattern.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, WILDCARD)


def check_filter(asked: AclFilter) -> None:
    """Raises KafkaError for a filter with codes that are not known."""
    if asked.resource_type not in _RESOURCES or asked.pattern_type not in _PATTERNS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if asked.operation not in _OPERATIONS or asked.permission not in _PERMISSIONS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")


_RESOURCES = frozenset(map(int, Resource)) - {Resource.UNKNOWN}
_PATTERNS = frozenset(map(int, Pattern)) - {Pattern.UNKNOWN}
_OPERATIONS = frozenset(map(int, Operation)) - {Operation.UNKNOWN}
_PERMISSIONS = frozenset(map(int, Permission)) - {Permission.UNKNOWN}
