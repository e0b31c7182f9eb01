"""One ACL: a principal, from a host, may do an operation to the resources that match a pattern, or may not.

Codes are plain integers, because a later release may have written some that we do not know.
"""

from typing import NamedTuple

from odradek.acls.codes import Operation, Pattern, Permission, Resource
from odradek.errors import ErrorCode, KafkaError

WILDCARD = "*"  # any name, any host
EVERYBODY = "User:*"
THE_CLUSTER = "kafka-cluster"  # the only name of a resource of type CLUSTER


class Acl(NamedTuple):
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str  # its type and name: User:alice
    host: str
    operation: int
    permission: int

    @property
    def allows(self) -> bool:
        return self.permission == Permission.ALLOW

    def __str__(self) -> str:
        """ALLOW User:alice from * to READ TOPIC orders (LITERAL)"""
        permission, operation = _name_of(Permission, self.permission), _name_of(Operation, self.operation)
        resource, pattern = _name_of(Resource, self.resource_type), _name_of(Pattern, self.pattern_type)
        return (
            f"{permission} {self.principal} from {self.host} to {operation} {resource} {self.resource_name} "
            f"({pattern})"
        )


def check_new(acl: Acl) -> None:
    """Raises KafkaError for an ACL that Kafka refuses: one that means nothing, or that only a filter can mean."""
    if acl.resource_type == Resource.CLUSTER and acl.resource_name != THE_CLUSTER:
        _refuse(f"The only valid name for the CLUSTER resource is {THE_CLUSTER}")
    if not acl.resource_name:
        _refuse("Invalid empty resource name")
    if acl.resource_type not in _CREATABLE_RESOURCES:
        _refuse(f"Invalid resourceType {_name_of(Resource, acl.resource_type)}")
    if acl.pattern_type not in (Pattern.LITERAL, Pattern.PREFIXED):
        _refuse(f"Invalid patternType {_name_of(Pattern, acl.pattern_type)}")
    if acl.operation not in _CREATABLE_OPERATIONS:
        _refuse(f"Invalid operation {_name_of(Operation, acl.operation)}")
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        _refuse(f"Invalid permissionType {_name_of(Permission, acl.permission)}")
    if ":" not in acl.principal:
        _refuse(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from "
            "the principal name)"
        )


_CREATABLE_RESOURCES = frozenset(map(int, Resource)) - {Resource.UNKNOWN, Resource.ANY}
_CREATABLE_OPERATIONS = frozenset(map(int, Operation)) - {Operation.UNKNOWN, Operation.ANY}


def _name_of(codes: type[Operation] | type[Resource] | type[Pattern] | type[Permission], code: int) -> str:
    return next((each.name for each in codes if each == code), "UNKNOWN")


def _refuse(reason: str) -> None:
    raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
