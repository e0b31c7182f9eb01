"""DescribeAcls (29): the ACLs that match a filter, by resource.

Each node responds from its own copy of the metadata. A filter with codes that no release has is refused with
INVALID_REQUEST; Kafka closes the connection.
"""

from odradek.acls.filters import check_filter
from odradek.controller.requests.delete_acls import filter_in
from odradek.serving.authorizer import check_has_acls
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

ACLS_IN_STEP = 20

Pattern = tuple[int, str, int]  # type of resource, name, type of pattern


def handle(services: Services, request: Request, message: DescribeAclsRequest) -> Steps[DescribeAclsResponse]:
    check_has_acls(services.authorizer)
    asked = filter_in(message)
    check_filter(asked)
    found: dict[Pattern, DescribeAclsResource] = {}
    for place, acl in enumerate(services.cluster.image.acls.values()):
        if asked.matches(acl):
            pattern = acl.resource_type, acl.resource_name, acl.pattern_type
            resource = found.get(pattern) or found.setdefault(pattern, DescribeAclsResource(*pattern))
            resource.acls.append(AclDescription(acl.principal, acl.host, acl.operation, acl.permission))
        if place % ACLS_IN_STEP == 0:
            yield
    return DescribeAclsResponse(error_message=None, resources=list(found.values()))
