"""DeleteAcls (31): removes the ACLs that match filters (see the module of this name in `controller.requests`)."""

from odradek.serving.authorizer import check_has_acls
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse


async def handle(services: Services, request: Request, message: DeleteAclsRequest) -> DeleteAclsResponse:
    check_has_acls(services.authorizer)
    response: DeleteAclsResponse = await services.cluster.decide(request, message)
    return response
