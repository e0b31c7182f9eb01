"""CreateAcls (30): new ACLs (see the module of this name in `controller.requests`).

Unlike Kafka, which closes the connection, an ACL with codes that no release has is refused with INVALID_REQUEST.
"""

from odradek.serving.authorizer import check_has_acls
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse


async def handle(services: Services, request: Request, message: CreateAclsRequest) -> CreateAclsResponse:
    check_has_acls(services.authorizer)
    response: CreateAclsResponse = await services.cluster.decide(request, message)
    return response
