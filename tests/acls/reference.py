"""The decision about one question, as Kafka's documentation says it: no index, no order, one ACL after the other."""

import ipaddress
from collections.abc import Iterable

from odradek.acls.acl import Acl
from odradek.acls.codes import Operation, Resource

DESCRIBE_TOO = {3, 4, 6, 7}  # Read, Write, Delete, Alter


def concerns(acl: Acl, resource: int, name: str) -> bool:
    if acl.resource_type != resource:
        return False
    if acl.pattern_type == 4:
        return name[: len(acl.resource_name)] == acl.resource_name
    return acl.resource_name == "*" or acl.resource_name == name


def is_about(acl: Acl, principal: str, host: str) -> bool:
    if acl.principal != "User:*" and acl.principal != principal:
        return False
    if acl.host == "*":
        return True
    try:
        if "/" in acl.host:
            return ipaddress.ip_address(host) in ipaddress.ip_network(acl.host, strict=False)
        return ipaddress.ip_address(acl.host) == ipaddress.ip_address(host)
    except ValueError:
        return acl.host == host


def speaks_of(acl: Acl, operation: int) -> bool:
    if acl.operation == 2 or acl.operation == operation:
        return True
    if acl.permission != 3:
        return False
    return (operation == 8 and acl.operation in DESCRIBE_TOO) or (operation == 10 and acl.operation == 11)


def may(
    acls: Iterable[Acl],
    principal: str,
    host: str,
    operation: Operation,
    resource: Resource,
    name: str,
    allows_unlisted: bool = False,
) -> bool:
    name = "kafka-cluster" if resource == 4 else name
    concerned = [acl for acl in acls if concerns(acl, resource, name)]
    if not concerned:
        return allows_unlisted
    speaking = [acl for acl in concerned if is_about(acl, principal, host) and speaks_of(acl, operation)]
    if any(acl.permission == 2 for acl in speaking):
        return False
    return any(acl.permission == 3 for acl in speaking)


def may_any(acls: Iterable[Acl], principal: str, host: str, operation: Operation, resource: Resource) -> bool:
    """Judge by names: all that an ACL could mean, and one that none of them names."""
    mine = [acl for acl in acls if acl.resource_type == resource and is_about(acl, principal, host)]
    mine = [acl for acl in mine if acl.operation in (2, operation)]
    denied = [acl for acl in mine if acl.permission == 2]
    for acl in mine:
        if acl.permission == 3:
            name = acl.resource_name
            whole = acl.pattern_type == 3
            if any(d.pattern_type == 3 and d.resource_name == "*" for d in denied):
                return False
            if whole and name == "*":
                return True
            by_prefix = any(d.pattern_type == 4 and name.startswith(d.resource_name) for d in denied)
            by_name = whole and any(d.pattern_type == 3 and d.resource_name == name for d in denied)
            if not by_prefix and not by_name:
                return True
    return False
