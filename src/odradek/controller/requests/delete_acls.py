"""DeleteAcls (31): removes the ACLs that match filters, each filter with its own outcome.

The ACLs are looked for in several turns of the event loop, before the decision: one that is created meanwhile stays, as
if the request had come before. A request that would remove more than Kafka's controller removes at once is refused as a
whole, as there.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from odradek.acls.acl import Acl
from odradek.acls.codes import Operation, Pattern, Permission, Resource
from odradek.acls.filters import AclFilter, check_filter
from odradek.apis.items import cut as cut_items
from odradek.config.broker import BrokerConfig
from odradek.controller.brokers import Records
from odradek.controller.controller import Terms
from odradek.controller.parts import MAX_RECORDS_PER_REQUEST, Part, too_large
from odradek.errors import KafkaError
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import RemoveAccessControlEntryRecord
from odradek.wire.codec import Steps
from odradek.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

MAX_MATCHES = 100_000  # of all filters together: an ACL may match many
ACLS_IN_STEP = 20


class Found(NamedTuple):
    """The ACLs that one filter matches, or why it is refused."""

    acl_ids: Sequence[UUID] = ()
    refused: KafkaError | None = None


def cut(image: MetadataImage, request: DeleteAclsRequest, config: BrokerConfig) -> Steps[list[Part]]:
    found: list[Found] = []
    removed: set[UUID] = set()
    matches = 0
    for item in request.filters:
        one = yield from _find(image, filter_in(item))
        matches += len(one.acl_ids)
        removed.update(one.acl_ids)
        found.append(one)
        if len(removed) > MAX_RECORDS_PER_REQUEST or matches > MAX_MATCHES:
            return [Part(request)]
        yield
    parts = yield from cut_items(request.filters)
    places = iter(found)
    return [Part(replace(request, filters=part), prepared=[next(places) for _ in part]) for part in parts]


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, DeleteAclsResponse]:
    if part.prepared is None:
        raise too_large()
    removed: dict[UUID, None] = {}
    results = []
    for found in part.prepared:
        there = [acl_id for acl_id in found.acl_ids if acl_id in image.acls]
        removed.update(dict.fromkeys(there))
        results.append(_result(found.refused, [image.acls[acl_id] for acl_id in there]))
    records: Records = [RemoveAccessControlEntryRecord(acl_id) for acl_id in removed]
    return records, DeleteAclsResponse(filter_results=results)


def _result(refused: KafkaError | None, acls: Sequence[Acl]) -> DeleteAclsFilterResult:
    if refused is not None:
        return DeleteAclsFilterResult(refused.code, refused.message)
    return DeleteAclsFilterResult(0, None, [DeleteAclsMatchingAcl(0, None, *acl) for acl in acls])


def _find(image: MetadataImage, asked: AclFilter) -> Steps[Found]:
    try:
        check_filter(asked)
    except KafkaError as error:
        return Found(refused=error)
    if _is_exact(asked):
        only = image.acl_ids.get(Acl(*asked))  # type: ignore[arg-type]
        return Found(() if only is None else (only,))
    acl_ids = []
    for place, (acl_id, acl) in enumerate(image.acls.items()):
        if asked.matches(acl):
            acl_ids.append(acl_id)
        if place % ACLS_IN_STEP == 0:
            yield
    return Found(acl_ids)


def _is_exact(asked: AclFilter) -> bool:
    """True if it can match one ACL only."""
    return (
        asked.pattern_type in (Pattern.LITERAL, Pattern.PREFIXED)
        and asked.resource_type != Resource.ANY
        and asked.operation != Operation.ANY
        and asked.permission != Permission.ANY
        and None not in (asked.resource_name, asked.principal, asked.host)
    )


def filter_in(item: Any) -> AclFilter:
    """The filter of a DeleteAcls, or of a DescribeAcls."""
    return AclFilter(
        item.resource_type_filter,
        item.resource_name_filter,
        item.pattern_type_filter,
        item.principal_filter,
        item.host_filter,
        item.operation,
        item.permission_type,
    )
