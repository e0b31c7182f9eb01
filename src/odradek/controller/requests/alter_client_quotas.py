"""AlterClientQuotas (49): sets and removes the quotas of users, client ids and addresses.

Each entity is altered as a whole or not at all. What does not change anything writes no record. Kafka also takes the
name of a host for an address; here it is refused: to look it up would block the controller, and tomorrow it may mean
another address.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.controller.brokers import Records
from odradek.controller.controller import Terms
from odradek.controller.parts import Part, cut_by
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import MetadataImage, QuotaKey
from odradek.metadata.records import ClientQuotaRecord, QuotaEntity
from odradek.quotas.keys import (
    CLIENT_ID,
    ENTITY_TYPES,
    IP,
    MAX_NAME_LENGTH,
    OF_ADDRESSES,
    OF_CLIENTS,
    USER,
)
from odradek.wire.codec import Steps
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityDataInResponse,
    EntryDataInRequest,
    EntryDataInResponse,
    OpData,
)
from odradek.wording import one_line

ENTITIES_AT_ONCE = 50  # in one turn of the event loop
FRACTION = 1e-6  # more than this makes a number not whole
MAX_SHOWN = 100


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, AlterClientQuotasResponse]:
    request: Any = part.request
    records: Records = []
    results: dict[QuotaKey, EntryDataInResponse] = {}
    for entry in request.entries:
        entity = _entity_of(entry)
        try:
            if entity in results:
                raise _invalid(f"Ignoring duplicate entity {_shown(entry)}")
            records += _records(image, entry, entity)
            error = None
        except KafkaError as refusal:
            error = refusal
        results[entity] = _result(entry, error)
    return ([] if request.validate_only else records), AlterClientQuotasResponse(
        entries=list(results.values())
    )


def cut(image: MetadataImage, request: AlterClientQuotasRequest, config: BrokerConfig) -> Steps[list[Part]]:
    parts = yield from cut_by(request.entries, _entity_of, ENTITIES_AT_ONCE)
    return [Part(replace(request, entries=part)) for part in parts]


def _entity_of(entry: EntryDataInRequest) -> QuotaKey:
    """The last of several names of one type counts, as in Kafka."""
    return tuple(sorted({item.entity_type: item.entity_name for item in entry.entity}.items()))


def _records(image: MetadataImage, entry: EntryDataInRequest, entity: QuotaKey) -> Records:
    ops: dict[str, OpData] = {}
    for op in entry.ops:
        if op.key in ops:
            raise _invalid(
                f"Duplicate quota key {_name(op.key)} not updating quota for this entity {_shown(entry)}"
            )
        ops[op.key] = op
    keys = _keys_of(entity)
    current = image.quotas.get(entity, {})
    records: Records = []
    for key, op in ops.items():
        if op.remove:
            if key in current:
                records.append(ClientQuotaRecord(_written(entity), key, remove=True))
            continue
        _check_value(keys, key, op.value)
        if current.get(key) != op.value:
            records.append(ClientQuotaRecord(_written(entity), key, op.value))
    return records


def _written(entity: QuotaKey) -> list[QuotaEntity]:
    return [QuotaEntity(kind, name) for kind, name in entity]


def _keys_of(entity: QuotaKey) -> Mapping[str, int | None]:
    """The quotas that an entity may have. KafkaError if there can be no such entity."""
    names = dict(entity)
    if not names:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {_name(kind)}")
        if name is not None and not name:
            raise _invalid(f"Empty {kind} not supported")
        if name is not None and len(name) > MAX_NAME_LENGTH:
            raise _invalid(f"The name of a {kind} may not be longer than {MAX_NAME_LENGTH} characters")
    if IP not in names:
        return OF_CLIENTS
    if USER in names or CLIENT_ID in names:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    address = names[IP]
    if address is not None and not _is_address(address):
        raise _invalid(f"{_name(address)} is not a valid IP or resolvable host.")
    return OF_ADDRESSES


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(keys: Mapping[str, int | None], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {_name(key)}")
    if not value > 0.0:  # nor is NaN, which Kafka lets pass
        raise _invalid(f"Quota {key} must be greater than 0")
    most = keys[key]
    if most is None:
        return
    if value > most:
        raise _invalid(f"Proposed value for {key} is too large for {'an INT' if most < 2**32 else 'a LONG'}.")
    if math.fmod(value, 1.0) > FRACTION:
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _name(text: str) -> str:
    return one_line(text, MAX_SHOWN)


def _shown(entry: EntryDataInRequest) -> str:
    names = ", ".join(
        f"{_name(kind)}={'null' if name is None else _name(name)}" for kind, name in _entity_of(entry)
    )
    return f"ClientQuotaEntity(entries={{{names}}})"


def _result(entry: EntryDataInRequest, error: KafkaError | None) -> EntryDataInResponse:
    entity = [EntityDataInResponse(kind, name) for kind, name in _entity_of(entry)]
    if error is None:
        return EntryDataInResponse(ErrorCode.NONE, None, entity)
    return EntryDataInResponse(error.code, error.message, entity)
