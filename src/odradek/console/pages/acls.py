"""The ACLs of the cluster, new ones, fewer of them, and which of them decides a question.

Codes are shown and given by name, as `odradek acl` has them.
"""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TypeVar

from odradek.acls.acl import THE_CLUSTER, WILDCARD, Acl
from odradek.acls.codes import OPERATIONS, Operation, Pattern, Permission, Resource
from odradek.admin.access import Access
from odradek.admin.acls import AclView, Explanation, acls_of, create_acls, delete_acls, explain, view_of
from odradek.admin.failures import AdminError, BadRequest, Refused
from odradek.console.paging import cut
from odradek.console.registry import Action, Page
from odradek.console.requests import Ask, NotFound, doc
from odradek.console.users import Role
from odradek.errors import ErrorCode

PAGE_SIZE = 100
PATTERNS = (Pattern.LITERAL, Pattern.PREFIXED)
PERMISSIONS = (Permission.ALLOW, Permission.DENY)

Code = TypeVar("Code", bound=IntEnum)


@dataclass(frozen=True)
class AclsQuery:
    search: str = doc("Only ACLs of which a part contains this.", "")
    page: int = doc("From 1; a page has 100 ACLs.", 1)
    principal: str = doc("Ask who decides: for this principal, as in User:alice.", "")
    operation: str = doc("Ask who decides: of this operation.", "")
    resource_type: str = doc("Ask who decides: for a resource of this type.", "")
    resource_name: str = doc("Ask who decides: for the resource of this name.", "")
    host: str = doc("Ask who decides: from this address.", WILDCARD)


@dataclass(frozen=True)
class AclList:
    acls: list[AclView]
    count: int  # that match
    total: int
    page: int
    pages: int
    is_served: bool  # False: the cluster has no authorizer
    explanation: Explanation | None
    problem: str | None  # of the question
    query: AclsQuery
    operations: dict[str, list[str]]  # by type of resource
    patterns: list[str]
    permissions: list[str]


def view(ask: Ask) -> AclList:
    query, access = ask.query, ask.access()
    is_served = True
    try:
        views = [view_of(one) for one in acls_of(access)]
    except Refused as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:
            raise
        views, is_served = [], False
    wanted = query.search.strip().lower()
    found = [one for one in views if wanted in " ".join(values_of(one)).lower()]
    explanation, problem = _answer(access, query) if is_served else (None, None)
    shown, page, pages = cut(found, query.page, PAGE_SIZE)
    return AclList(
        acls=shown,
        count=len(found),
        total=len(views),
        page=page,
        pages=pages,
        is_served=is_served,
        explanation=explanation,
        problem=problem,
        query=query,
        operations={
            kind.name: [Operation.ALL.name, *(each.name for each in some)]
            for kind, some in OPERATIONS.items()
        },
        patterns=[each.name for each in PATTERNS],
        permissions=[each.name for each in PERMISSIONS],
    )


def values_of(acl: AclView) -> list[str]:
    return [str(getattr(acl, one.name)) for one in fields(acl)]


def _answer(access: Access, query: AclsQuery) -> tuple[Explanation | None, str | None]:
    """Which ACL decides, if that was asked; or why nobody can tell."""
    if not query.principal:
        return None, None
    try:
        resource = _named(Resource, "resource_type", query.resource_type)
        operation = _named(Operation, "operation", query.operation)
        name = THE_CLUSTER if resource is Resource.CLUSTER else query.resource_name
        return explain(access, query.principal, query.host, operation, resource, name), None
    except AdminError as error:
        return None, str(error)


def _named(codes: type[Code], what: str, name: str) -> Code:
    found = codes.__members__.get(name.strip().upper())
    if found is None:
        raise BadRequest(f"{what} is one of {', '.join(codes.__members__)}")
    return found


# Changes


@dataclass(frozen=True)
class AclBody:
    principal: str = doc("Whom it is about, as in User:alice; User:* is everybody.")
    operation: str = doc("READ, WRITE, … or ALL.")
    resource_type: str = doc("TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN or USER.")
    permission: str = doc("ALLOW or DENY; a denial wins.", "ALLOW")
    resource_name: str = doc("The name of the resource; * is all of them.", "")
    pattern_type: str = doc("LITERAL: this name; PREFIXED: all names that begin with it.", "LITERAL")
    host: str = doc("From which address; * is any.", WILDCARD)


def acl_of(body: AclBody) -> Acl:
    resource = _named(Resource, "resource_type", body.resource_type)
    name = THE_CLUSTER if resource is Resource.CLUSTER else body.resource_name
    if not name:
        raise BadRequest("name a resource, or * for all of them")
    if ":" not in body.principal:
        raise BadRequest(f"{body.principal!r} is not a principal like User:alice")
    return Acl(
        resource,
        name,
        _named(Pattern, "pattern_type", body.pattern_type),
        body.principal,
        body.host or WILDCARD,
        _named(Operation, "operation", body.operation),
        _named(Permission, "permission", body.permission),
    )


def add(ask: Ask) -> dict[str, str]:
    acl = acl_of(ask.body)
    if acl.operation not in (Operation.ALL, *OPERATIONS.get(Resource(acl.resource_type), ())):
        raise BadRequest(f"a {ask.body.resource_type.lower()} has no operation {ask.body.operation}")
    create_acls(ask.access(), [acl])
    return {"said": f"Added: {acl}."}


def remove(ask: Ask) -> dict[str, str]:
    """Exactly this one; an ACL that somebody else has removed is told."""
    acl, access = acl_of(ask.body), ask.access()
    if acl not in acls_of(access):
        raise NotFound("there is no such ACL any more")
    delete_acls(access, [acl])
    return {"said": f"Removed: {acl}."}


def _told(ask: Ask) -> str:
    body: AclBody = ask.body
    parts = (body.permission, body.principal, "from", body.host, "to", body.operation)
    return " ".join((*parts, body.resource_type, body.resource_name, f"({body.pattern_type})"))


PAGES = [
    Page(
        path="acls",
        title="ACLs",
        view=view,
        template="acls.html",
        summary="List ACLs, a page of them, and say which of them decides a question.",
        query=AclsQuery,
        nav="ACLs",
        live_template="acls_live.html",
        script="list.js",
        role=Role.ADMIN,
        needs="acls",
    )
]
ACTIONS = [
    Action(*("POST", "acls", "Add an ACL.", add, Role.ADMIN), body=AclBody, target=_told),
    Action(*("DELETE", "acls", "Remove an ACL.", remove, Role.ADMIN), body=AclBody, target=_told),
]
