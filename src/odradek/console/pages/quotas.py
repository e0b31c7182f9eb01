"""The quotas of users, client ids and addresses, and changes of them."""

from dataclasses import dataclass

from odradek.admin.failures import BadRequest
from odradek.admin.quotas import (
    CLIENT_ID,
    IP,
    OF_ADDRESSES,
    OF_CLIENTS,
    USER,
    QuotaView,
    alter_quotas,
    name_of,
    quotas_of,
)
from odradek.console.paging import cut
from odradek.console.registry import Action, Page
from odradek.console.rendering import number, size
from odradek.console.requests import Ask, NotFound, doc
from odradek.console.users import Role

PAGE_SIZE = 100
KINDS: dict[str, tuple[str, ...]] = {  # the entities that can have quotas, by what pages call them
    "user": (USER,),
    "client-id": (CLIENT_ID,),
    "user and client-id": (USER, CLIENT_ID),
    "ip": (IP,),
}
ABOUT = {
    "producer_byte_rate": "bytes a client may produce per second, to each broker",
    "consumer_byte_rate": "bytes a client may fetch per second, from each broker",
    "request_percentage": "time that its requests may take, in percent of each broker",
    "controller_mutation_rate": "partitions it may have created and deleted per second",
    "connection_creation_rate": "connections per second that a broker accepts from an address",
}


@dataclass(frozen=True)
class QuotasQuery:
    search: str = doc("Only quotas of which the entity or the name contains this.", "")
    page: int = doc("From 1; a page has 100 quotas.", 1)


@dataclass(frozen=True)
class QuotaRow:
    """One quota of one entity; the fields are those that change it."""

    entity: str
    kind: str
    user: str
    client_id: str
    ip: str
    quota: str
    value: float
    shown: str


@dataclass(frozen=True)
class QuotaList:
    quotas: list[QuotaRow]
    count: int  # that match
    total: int
    page: int
    pages: int
    query: QuotasQuery
    kinds: list[str]
    about: dict[str, str]


def view(ask: Ask) -> QuotaList:
    rows = [row_of(one, key) for one in quotas_of(ask.access()) for key in one.quotas]
    wanted = ask.query.search.strip().lower()
    found = [one for one in rows if wanted in f"{one.entity} {one.quota}".lower()]
    shown, page, pages = cut(found, ask.query.page, PAGE_SIZE)
    return QuotaList(shown, len(found), len(rows), page, pages, ask.query, list(KINDS), ABOUT)


def row_of(one: QuotaView, key: str) -> QuotaRow:
    kind = next((name for name, types in KINDS.items() if set(types) == one.entity.keys()), "")
    user, client_id, ip = (one.entity.get(type_) or "" for type_ in (USER, CLIENT_ID, IP))
    value = one.quotas[key]
    return QuotaRow(one.name, kind, user, client_id, ip, key, value, readable(key, value))


def readable(key: str, value: float) -> str:
    """Write the value with its unit: 1.0 MB/s, 50 %, 10/s."""
    if key.endswith("_byte_rate"):
        return f"{size(int(value))}/s"
    plain = number(int(value) if value == int(value) else value)
    return f"{plain} %" if key == "request_percentage" else f"{plain}/s"


# Changes


@dataclass(frozen=True)
class EntityBody:
    kind: str = doc("Whose it is: user, client-id, user and client-id, or ip.")
    quota: str = doc(f"One of {', '.join(ABOUT)}.")
    user: str = doc("The user; empty for all that have no quota of their own.", "")
    client_id: str = doc("The client id; empty for all that have no quota of their own.", "")
    ip: str = doc("The address; empty for all that have no quota of their own.", "")


@dataclass(frozen=True)
class QuotaBody(EntityBody):
    value: str = doc("A number.", "")


def entity_of(body: EntityBody) -> dict[str, str | None]:
    if body.kind not in KINDS:
        raise BadRequest(f"kind is one of {', '.join(KINDS)}")
    allowed = OF_ADDRESSES if body.kind == IP else OF_CLIENTS
    if body.quota not in allowed:
        raise BadRequest(f"the quota of a {body.kind} is one of {', '.join(allowed)}")
    names = {USER: body.user, CLIENT_ID: body.client_id, IP: body.ip}
    return {type_: names[type_].strip() or None for type_ in KINDS[body.kind]}


def set_quota(ask: Ask) -> dict[str, str]:
    body: QuotaBody = ask.body
    entity = entity_of(body)
    try:
        value = float(body.value)
    except ValueError:
        raise BadRequest(f"{body.value!r} is not a number") from None
    if not 0 < value < 2**63:
        raise BadRequest("a quota is a number above 0")
    alter_quotas(ask.access(), entity, {body.quota: value})
    return {"said": f"Set {body.quota} of {name_of(entity)} to {readable(body.quota, value)}."}


def remove(ask: Ask) -> dict[str, str]:
    body, access = ask.body, ask.access()
    entity = entity_of(body)
    if not any(body.quota in one.quotas for one in quotas_of(access, entity, strict=True)):
        raise NotFound(f"{name_of(entity)} has no quota {body.quota} any more")
    alter_quotas(access, entity, {body.quota: None})
    return {"said": f"Removed {body.quota} of {name_of(entity)}."}


def _target(ask: Ask) -> str:
    return f"{ask.body.quota} of {ask.body.kind} {ask.body.user} {ask.body.client_id} {ask.body.ip}".strip()


PAGES = [
    Page(
        path="quotas",
        title="Quotas",
        view=view,
        template="quotas.html",
        summary="List the quotas that are set, a page of them.",
        query=QuotasQuery,
        nav="Quotas",
        live_template="quotas_live.html",
        script="quotas.js",
        role=Role.ADMIN,
        needs="quotas",
    )
]
ACTIONS = [
    Action(*("POST", "quotas", "Set a quota.", set_quota, Role.ADMIN), body=QuotaBody, target=_target),
    Action(*("DELETE", "quotas", "Remove a quota.", remove, Role.ADMIN), body=EntityBody, target=_target),
]
