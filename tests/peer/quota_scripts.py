"""The questions about quotas that both brokers are asked. Kafka lists entities in the order of a hash table: they are
sorted here.
"""

import math
from typing import Any

from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityDataInRequest,
    EntryDataInRequest,
    OpData,
)
from odradek.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.peer.exchange import Cluster
from tests.peer.scripts import scenario

ALTER, DESCRIBE = 49, 48
EXACT, DEFAULT, ANY = 0, 1, 2

Entity = tuple[tuple[str, str | None], ...]


def key_of(item: Any) -> tuple[str, str]:
    return item.entity_type, item.entity_name or ""


def ask(cluster: Cluster, request: Any, label: str) -> None:
    response = cluster.ask_quietly(request)
    for entry in response.entries or () if response is not None else ():
        entry.entity.sort(key=key_of)
        if hasattr(entry, "values"):
            entry.values.sort(key=lambda value: value.key)
    if response is not None and response.entries:
        response.entries.sort(key=lambda entry: list(map(key_of, entry.entity)))
    cluster.note(f"{type(request).__name__.removesuffix('Request')}: {label}", response)


def entry(entity: Entity, *ops: OpData) -> EntryDataInRequest:
    return EntryDataInRequest([EntityDataInRequest(kind, name) for kind, name in entity], list(ops))


def alter(cluster: Cluster, label: str, *entries: EntryDataInRequest, validate_only: bool = False) -> None:
    ask(cluster, AlterClientQuotasRequest(list(entries), validate_only), label)


def describe(
    cluster: Cluster, label: str, *components: tuple[str, int, str | None], strict: bool = False
) -> None:
    ask(cluster, DescribeClientQuotasRequest([ComponentData(*one) for one in components], strict), label)


@scenario(ALTER, DESCRIBE)
def quotas(cluster: Cluster, prefix: str) -> None:
    user, client = ("user", f"{prefix}-u"), ("client-id", f"{prefix}-c")
    rate = OpData("producer_byte_rate", 1e9)
    alter(cluster, "a user", entry((user,), rate, OpData("request_percentage", 150.5)))
    alter(cluster, "both", entry((user, client), OpData("consumer_byte_rate", 2e9)))
    alter(
        cluster,
        "a client of any user",
        entry((("user", None), client), OpData("controller_mutation_rate", 1e6)),
    )
    alter(cluster, "an address", entry((("ip", "10.9.9.9"),), OpData("connection_creation_rate", 1e6)))
    alter(cluster, "two of them", entry((client,), rate), entry((user,), OpData("consumer_byte_rate", 3e9)))
    alter(cluster, "validated only", entry((user,), OpData("producer_byte_rate", 5.0)), validate_only=True)
    wanted = DescribeClientQuotasRequest([ComponentData("client-id", EXACT, client[1])], True)
    cluster.until(wanted, lambda response: bool(response.entries))
    describe(cluster, "of the user", ("user", EXACT, user[1]))
    describe(cluster, "of the user alone", ("user", EXACT, user[1]), strict=True)
    describe(cluster, "of both", ("user", EXACT, user[1]), ("client-id", EXACT, client[1]), strict=True)
    describe(cluster, "of the client and any user", ("client-id", EXACT, client[1]), ("user", ANY, None))
    describe(
        cluster,
        "of the client and the default user",
        ("client-id", EXACT, client[1]),
        ("user", DEFAULT, None),
    )
    describe(cluster, "of the address", ("ip", EXACT, "10.9.9.9"))
    describe(cluster, "nothing, strictly", strict=True)
    for entity in ((user,), (user, client), (("user", None), client), (client,)):
        keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
        alter(cluster, "removed", entry(entity, *(OpData(key, 0.0, True) for key in keys)))
    alter(cluster, "removed", entry((("ip", "10.9.9.9"),), OpData("connection_creation_rate", 0.0, True)))


@scenario(ALTER)
def bad_quotas(cluster: Cluster, prefix: str) -> None:
    user, rate = ("user", f"{prefix}-u"), OpData("producer_byte_rate", 1e9)
    cases: dict[str, EntryDataInRequest] = {
        "no entity": entry((), rate),
        "unknown type": entry((("topic", "t"),), rate),
        "empty name": entry((("user", ""),), rate),
        "unknown key": entry((user,), OpData("no_such_rate", 1.0)),
        "key of addresses": entry((user,), OpData("connection_creation_rate", 1.0)),
        "key of clients": entry((("ip", "10.9.9.9"),), rate),
        "zero": entry((user,), OpData("producer_byte_rate", 0.0)),
        "negative": entry((user,), OpData("request_percentage", -1.0)),
        "a fraction": entry((user,), OpData("producer_byte_rate", 1.5)),
        "too large": entry((user,), OpData("producer_byte_rate", 1e19)),
        "infinite": entry((user,), OpData("producer_byte_rate", math.inf)),
        "not a number": entry((user,), OpData("producer_byte_rate", math.nan)),
        "connections too large": entry((("ip", None),), OpData("connection_creation_rate", 3e9)),
        "a key twice": entry((user,), rate, rate),
        "an address of a user": entry((user, ("ip", "10.9.9.9")), rate),
        "no address": entry((("ip", "no.such.host.invalid"),), OpData("connection_creation_rate", 1.0)),
        "removed though not there": entry((user,), OpData("producer_byte_rate", 0.0, True)),
    }
    for label, case in cases.items():
        alter(cluster, label, case)


@scenario(DESCRIBE)
def bad_quota_filters(cluster: Cluster, prefix: str) -> None:
    describe(cluster, "no type", ("", EXACT, "x"))
    describe(cluster, "unknown type", ("topic", EXACT, "x"))
    describe(cluster, "a type twice", ("user", EXACT, "x"), ("user", DEFAULT, None))
    describe(cluster, "exact, no name", ("user", EXACT, None))
    describe(cluster, "default with a name", ("user", DEFAULT, "x"))
    describe(cluster, "any with a name", ("user", ANY, "x"))
    describe(cluster, "unknown match", ("user", 9, None))
    describe(cluster, "address and user", ("ip", ANY, None), ("user", ANY, None))
