"""DescribeClientQuotas (48): the quotas that are set, of all entities or of those that a filter names.

A filter has at most one component for each type of entity: an exact name, the default, or any. An entity matches if it
has all of them; with `strict`, it must have no other. Each broker responds from its own copy of the metadata.
"""

from collections.abc import Sequence
from enum import IntEnum

from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import QuotaKey
from odradek.quotas.keys import CLIENT_ID, ENTITY_TYPES, IP, USER
from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.codec import Steps
from odradek.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from odradek.wording import one_line

ENTITIES_IN_STEP = 100
MAX_SHOWN = 100


class Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


def handle(
    cluster: Cluster, request: Request, message: DescribeClientQuotasRequest
) -> Steps[DescribeClientQuotasResponse]:
    _check(message.components)
    entries = []
    for place, (entity, values) in enumerate(cluster.image.quotas.items()):
        if _matches(message, entity):
            found = [ValueData(key, value) for key, value in sorted(values.items())]
            entries.append(EntryData([EntityData(kind, name) for kind, name in entity], found))
        if place % ENTITIES_IN_STEP == 0:
            yield
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _matches(message: DescribeClientQuotasRequest, entity: QuotaKey) -> bool:
    names = dict(entity)
    if message.strict and (not message.components or len(names) != len(message.components)):
        return False
    return all(
        one.entity_type in names and (one.match_type == Match.ANY or names[one.entity_type] == one.match)
        for one in message.components
    )


def _check(components: Sequence[ComponentData]) -> None:
    seen: set[str] = set()
    for one in components:
        if not one.entity_type:
            raise _invalid("Invalid empty entity type.")
        if one.entity_type in seen:
            raise _invalid(f"Entity type {one.entity_type} cannot appear more than once in the filter.")
        if one.entity_type not in ENTITY_TYPES:
            kind = one_line(one.entity_type, MAX_SHOWN)
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        seen.add(one.entity_type)
        _check_match(one)
    if IP in seen and (USER in seen or CLIENT_ID in seen):
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )


def _check_match(one: ComponentData) -> None:
    if one.match_type not in range(len(Match)):
        raise _invalid(f"Unknown match type {one.match_type}")
    if one.match_type == Match.EXACT:
        if one.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    elif one.match is not None:
        name = "DEFAULT" if one.match_type == Match.DEFAULT else "SPECIFIED"
        raise _invalid(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
