"""Which operations a client may do to a resource, as a set of bits: computed only where a client asks for it."""

from typing import Any

from odradek.acls.codes import OPERATIONS, Operation, Resource
from odradek.serving.authorizer import Authorizer, may_of
from odradek.serving.coordination import Amend
from odradek.serving.request import Request

THE_CLUSTER = ""
ALL = {resource: sum(1 << operation for operation in each) for resource, each in OPERATIONS.items()}


def operations(authorizer: Authorizer, request: Request, resource: Resource, name: str) -> int:
    if authorizer.allows_all:
        return ALL[resource]
    may = may_of(authorizer, request)
    return sum(1 << each for each in OPERATIONS[resource] if may(each, resource, name))


def cluster_operations(authorizer: Authorizer, request: Request) -> int:
    """None, if the client may not describe the cluster."""
    if authorizer.allows_all:
        return ALL[Resource.CLUSTER]
    if not may_of(authorizer, request)(Operation.DESCRIBE, Resource.CLUSTER, THE_CLUSTER):
        return 0
    return operations(authorizer, request, Resource.CLUSTER, THE_CLUSTER)


def adding_group_operations(authorizer: Authorizer, request: Request) -> Amend:
    """Amends the description of groups of either kind."""

    def amend(response: Any) -> Any:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = operations(authorizer, request, Resource.GROUP, group.group_id)
        return response

    return amend
