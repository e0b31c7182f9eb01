"""The quotas of users, client ids and addresses, and changes of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from odradek.admin.access import Access
from odradek.admin.failures import check
from odradek.admin.requests import ask_any
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityDataInRequest,
    EntryDataInRequest,
    OpData,
)
from odradek.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

USER, CLIENT_ID, IP = "user", "client-id", "ip"
OF_CLIENTS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
OF_ADDRESSES = ("connection_creation_rate",)
EXACT, DEFAULT, ANY = 0, 1, 2

Entity = Mapping[str, str | None]  # the name for each type; None for the default


@dataclass(frozen=True)
class QuotaView:
    """The quotas of one entity; its fields are those of the JSON output."""

    entity: dict[str, str | None]
    quotas: dict[str, float]

    @property
    def name(self) -> str:
        return name_of(self.entity)


def name_of(entity: Entity) -> str:
    """Name an entity as people do: user alice, client-id default."""
    return ", ".join(
        f"{kind} {'(default)' if entity[kind] is None else entity[kind]}"
        for kind in (USER, CLIENT_ID, IP)
        if kind in entity
    )


def quotas_of(
    cluster: Access, entity: Entity | None = None, kinds: Sequence[str] = (), strict: bool = False
) -> list[QuotaView]:
    """Return the quotas of entities with all of these names and names of all these kinds; with `strict`, no others."""
    components = [ComponentData(kind, ANY, None) for kind in kinds]
    for kind, name in (entity or {}).items():
        components.append(ComponentData(kind, DEFAULT if name is None else EXACT, name))
    response = ask_any(cluster, DescribeClientQuotasRequest(components, strict), DescribeClientQuotasResponse)
    check(response.error_code, response.error_message, "quotas")
    views = [
        QuotaView(
            {item.entity_type: item.entity_name for item in entry.entity},
            {item.key: item.value for item in sorted(entry.values, key=lambda item: item.key)},
        )
        for entry in response.entries or ()
    ]
    return sorted(views, key=lambda view: view.name)


def alter_quotas(cluster: Access, entity: Entity, values: Mapping[str, float | None]) -> None:
    """Set quotas of one entity; None removes one. All of them change, or none."""
    ops = [OpData(key, value or 0.0, value is None) for key, value in values.items()]
    named = [EntityDataInRequest(kind, name) for kind, name in entity.items()]
    request = AlterClientQuotasRequest([EntryDataInRequest(named, ops)])
    response = ask_any(cluster, request, AlterClientQuotasResponse)
    for result in response.entries:
        check(result.error_code, result.error_message, f"the quotas of {name_of(entity)}")
