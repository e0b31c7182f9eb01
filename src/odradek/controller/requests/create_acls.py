"""CreateAcls (30): new ACLs, each with its own outcome. One that exists already is not written again.

A request that would write more records than Kafka's controller writes at once is refused as a whole, as there.
"""

from dataclasses import replace
from typing import Any
from uuid import UUID

from odradek.acls.acl import Acl, check_new
from odradek.apis.items import cut as cut_items
from odradek.config.broker import BrokerConfig
from odradek.controller.brokers import Records
from odradek.controller.controller import Terms
from odradek.controller.parts import MAX_RECORDS_PER_REQUEST, Part, too_large
from odradek.errors import KafkaError
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import AccessControlEntryRecord
from odradek.wire.codec import Steps
from odradek.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def cut(image: MetadataImage, request: CreateAclsRequest, config: BrokerConfig) -> Steps[list[Part]]:
    new: set[Acl] = set()
    for item in request.creations:
        acl = acl_in(item)
        if _why_not(acl) is None and acl not in image.acl_ids:
            new.add(acl)
        yield
    is_too_large = len(new) > MAX_RECORDS_PER_REQUEST
    parts = yield from cut_items(request.creations)
    return [Part(replace(request, creations=part), prepared=is_too_large) for part in parts]


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, CreateAclsResponse]:
    request: Any = part.request
    records: Records = []
    results = []
    written: set[Acl] = set()
    for item in request.creations:
        acl = acl_in(item)
        error = _why_not(acl) or (too_large() if part.prepared else None)
        if error is None and acl not in image.acl_ids and acl not in written:
            written.add(acl)
            acl_id = UUID(int=terms.rng.getrandbits(128), version=4)
            records.append(AccessControlEntryRecord(acl_id, *acl))
        results.append(
            AclCreationResult(error_message=None)
            if error is None
            else AclCreationResult(error.code, error.message)
        )
    return records, CreateAclsResponse(results=results)


def acl_in(item: AclCreation) -> Acl:
    return Acl(
        item.resource_type,
        item.resource_name,
        item.resource_pattern_type,
        item.principal,
        item.host,
        item.operation,
        item.permission_type,
    )


def _why_not(acl: Acl) -> KafkaError | None:
    try:
        check_new(acl)
    except KafkaError as error:
        return error
    return None
