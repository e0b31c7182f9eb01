"""The ACLs of a cluster: which there are, new ones, fewer of them, and which of them decides a question.

It uses Kafka's protocol, so it works with any Kafka. A question is decided by the rules of our own brokers (`acls`), on
the ACLs that the cluster describes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from odradek.acls.acl import EVERYBODY, THE_CLUSTER, WILDCARD, Acl
from odradek.acls.codes import Operation, Pattern, Permission, Resource
from odradek.acls.filters import AclFilter
from odradek.acls.rules import Rules
from odradek.admin.access import Access
from odradek.admin.failures import AdminError, check
from odradek.admin.requests import ask_any
from odradek.admin.resources import Kind
from odradek.admin.settings import view_settings
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from odradek.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

EVERYTHING = AclFilter()
AT_ONCE = 1_000  # ACLs in one request


@dataclass(frozen=True)
class AclView:
    """An ACL; its fields are those of the JSON output."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


def view_of(acl: Acl) -> AclView:
    return AclView(
        _name(Resource, acl.resource_type),
        acl.resource_name,
        _name(Pattern, acl.pattern_type),
        acl.principal,
        acl.host,
        _name(Operation, acl.operation),
        _name(Permission, acl.permission),
    )


def _name(codes: type[Operation] | type[Resource] | type[Pattern] | type[Permission], code: int) -> str:
    """Return the name of a code, or the number if only a newer Kafka knows it."""
    return next((each.name for each in codes if each == code), str(code))


# --- see and change ---


def acls_of(cluster: Access, asked: AclFilter = EVERYTHING) -> list[Acl]:
    """Return the ACLs that match, in order."""
    request = DescribeAclsRequest(*asked)
    response = ask_any(cluster, request, DescribeAclsResponse, least_version=1)
    check(response.error_code, response.error_message, "ACLs")
    return sorted(
        Acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    )


def create_acls(cluster: Access, acls: Sequence[Acl]) -> None:
    for first in range(0, len(acls), AT_ONCE):
        part = acls[first : first + AT_ONCE]
        request = CreateAclsRequest([AclCreation(*acl) for acl in part])
        response = ask_any(cluster, request, CreateAclsResponse, least_version=1)
        for acl, result in zip(part, response.results, strict=True):
            check(result.error_code, result.error_message, str(acl))


def delete_acls(cluster: Access, acls: Sequence[Acl]) -> None:
    """Delete exactly these ACLs."""
    for first in range(0, len(acls), AT_ONCE):
        part = acls[first : first + AT_ONCE]
        request = DeleteAclsRequest([DeleteAclsFilter(*acl) for acl in part])
        response = ask_any(cluster, request, DeleteAclsResponse, least_version=1)
        for acl, result in zip(part, response.filter_results, strict=True):
            check(result.error_code, result.error_message, str(acl))
            for match in result.matching_acls:
                check(match.error_code, match.error_message, str(acl))


# --- what people want to allow ---


@dataclass(frozen=True)
class Named:
    """Resources that a command names."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    cluster: bool = False

    def patterns(self) -> list[tuple[Resource, str]]:
        return [
            *((Resource.TOPIC, name) for name in self.topics),
            *((Resource.GROUP, name) for name in self.groups),
            *((Resource.TRANSACTIONAL_ID, name) for name in self.transactional_ids),
            *([(Resource.CLUSTER, THE_CLUSTER)] if self.cluster else []),
        ]


Grant = tuple[Resource, str, Operation]


def grants_of_producer(named: Named, is_idempotent: bool) -> list[Grant]:
    """List the grants that a producer to these topics needs: the same as `kafka-acls.sh --producer` gives."""
    topics = [
        (Resource.TOPIC, name, operation)
        for name in named.topics
        for operation in (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
    ]
    ids = [
        (Resource.TRANSACTIONAL_ID, name, operation)
        for name in named.transactional_ids
        for operation in (Operation.WRITE, Operation.DESCRIBE)
    ]
    cluster = [(Resource.CLUSTER, THE_CLUSTER, Operation.IDEMPOTENT_WRITE)] if is_idempotent else []
    return [*topics, *ids, *cluster]


def grants_of_consumer(named: Named) -> list[Grant]:
    """List the grants that a consumer of these topics in these groups needs."""
    topics = [
        (Resource.TOPIC, name, operation)
        for name in named.topics
        for operation in (Operation.READ, Operation.DESCRIBE)
    ]
    return [*topics, *((Resource.GROUP, name, Operation.READ) for name in named.groups)]


def new_acls(
    grants: Iterable[Grant],
    pattern: Pattern,
    principals: Sequence[str],
    hosts: Sequence[str],
    permission: Permission,
) -> list[Acl]:
    """Make an ACL for each grant, principal and host. The cluster has one name, so its pattern is always literal."""
    return [
        Acl(
            resource,
            name,
            Pattern.LITERAL if resource is Resource.CLUSTER else pattern,
            principal,
            host,
            operation,
            permission,
        )
        for resource, name, operation in dict.fromkeys(grants)
        for principal in principals
        for host in hosts or (WILDCARD,)
    ]


# --- who decides? ---


@dataclass(frozen=True)
class Explanation:
    """Its fields are those of the JSON output."""

    is_allowed: bool
    reason: str
    acl: AclView | None  # the one that decides


def explain(
    cluster: Access, principal: str, host: str, operation: Operation, resource: Resource, name: str
) -> Explanation:
    acls = acls_of(cluster, AclFilter(resource, name, Pattern.MATCH))
    super_users, allows_unlisted = _settings_of(cluster)
    if principal in super_users:
        return Explanation(True, f"{principal} is in super.users, for whom no ACL is looked at", None)
    ruling = Rules(acls, allows_unlisted).decide(principal, host, operation, resource, name)
    if ruling.acl is not None:
        return Explanation(ruling.is_allowed, _why(ruling.acl, principal, operation), view_of(ruling.acl))
    if acls:
        reason = f"none of the {len(acls)} ACLs of this resource allows it"
    elif ruling.is_allowed:
        reason = "this resource has no ACL, and allow.everyone.if.no.acl.found is set"
    else:
        reason = "this resource has no ACL"
    return Explanation(ruling.is_allowed, reason, None)


def _why(acl: Acl, principal: str, operation: Operation) -> str:
    parts = [f"decided by: {acl}"]
    if acl.principal == EVERYBODY != principal:
        parts.append("which is about everybody")
    if acl.operation not in (operation, Operation.ALL):
        parts.append(f"which implies {operation.name}")
    if not acl.allows:
        parts.append("and a denial wins over whatever is allowed")
    return ", ".join(parts)


def _settings_of(cluster: Access) -> tuple[frozenset[str], bool]:
    """Read `super.users` and `allow.everyone.if.no.acl.found` from a broker, as far as it shows them."""
    try:
        views = view_settings(cluster, Kind.BROKER, None, ())
    except AdminError:
        return frozenset(), False
    values = {view.key: view.value or "" for view in views if view.value is not None}
    users = values.get("super.users", "")
    return (
        frozenset(user.strip() for user in users.split(";") if user.strip()),
        values.get("allow.everyone.if.no.acl.found") == "true",
    )


def as_json(explanation: Explanation) -> dict[str, object]:
    return asdict(explanation)
