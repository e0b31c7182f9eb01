"""`odradek quota`: how much users, client ids and addresses may ask of a cluster. It uses Kafka's protocol, so it works
with any Kafka.

Options name the entity as those of kafka-configs.sh do. A quota of a user may be narrowed to a client id.
"""

import re
from dataclasses import asdict
from typing import Annotated

from odradek.admin.access import Access
from odradek.cli.access import on_cluster
from odradek.cli.arguments import JsonOutput
from odradek.cli.danger import Yes, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Group, Option
from odradek.cli.output import print_columns, print_json, print_line

app = Group(help="Set, list and remove quotas of users, client ids and addresses.")

QUOTAS = {
    "producer_byte_rate": "bytes a client may produce per second, to each broker",
    "consumer_byte_rate": "bytes it may fetch per second, from each broker",
    "request_percentage": "time its requests may take, in percent of each broker's event loop",
    "controller_mutation_rate": "partitions it may have created and deleted per second",
    "connection_creation_rate": "connections per second that a broker accepts from an address",
}
UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
VALUE = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmg]i?)?", re.IGNORECASE)

User = Annotated[str | None, Option("--user", metavar="NAME", help="The user, as its principal is named.")]
UserDefault = Annotated[bool, Option("--user-default", help="All users without a quota of their own.")]
Client = Annotated[str | None, Option("--client-id", metavar="ID", help="The client id.")]
ClientDefault = Annotated[
    bool, Option("--client-default", help="All client ids without a quota of their own.")
]
Ip = Annotated[str | None, Option("--ip", metavar="ADDRESS", help="The address that clients connect from.")]
IpDefault = Annotated[bool, Option("--ip-default", help="All addresses without a quota of their own.")]
Limits = Annotated[
    list[str],
    Argument(
        metavar="QUOTA=VALUE…",
        help="Such as producer_byte_rate=1Mi. K, M and G are thousands, Ki, Mi and Gi are 1024s.",
    ),
]
Names = Annotated[list[str] | None, Argument(metavar="[QUOTA…]", help="By default, all that it has.")]


@app.command("set")
@on_cluster
def set_quota(
    cluster: Access,
    limits: Limits,
    user: User = None,
    user_default: UserDefault = False,
    client_id: Client = None,
    client_default: ClientDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
) -> None:
    """Set quotas of an entity: a user, a client id, a client id of a user, or an address.

    Users and client ids have producer_byte_rate, consumer_byte_rate, request_percentage and controller_mutation_rate;
    addresses have connection_creation_rate."""
    from odradek.admin.quotas import alter_quotas, name_of

    entity = _one_entity(_entity(user, user_default, client_id, client_default, ip, ip_default))
    values = dict(map(parse_limit, limits))
    alter_quotas(cluster, entity, {**values})
    told = ", ".join(f"{key}={shown(value)}" for key, value in values.items())
    print_line(f"Set {told} of {name_of(entity)}.")


@app.command("list")
@on_cluster
def list_quotas(
    cluster: Access,
    user: User = None,
    user_default: UserDefault = False,
    client_id: Client = None,
    client_default: ClientDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    as_json: JsonOutput = False,
) -> None:
    """List the quotas that are set, of all entities or of those that are named."""
    from odradek.admin.quotas import quotas_of

    views = quotas_of(cluster, _entity(user, user_default, client_id, client_default, ip, ip_default))
    if as_json:
        print_json([asdict(view) for view in views])
        return
    rows = [(view.name, key, shown(value)) for view in views for key, value in view.quotas.items()]
    print_columns(("ENTITY", "QUOTA", "VALUE"), rows)


@app.command()
@on_cluster
def remove(
    cluster: Access,
    quotas: Names = None,
    user: User = None,
    user_default: UserDefault = False,
    client_id: Client = None,
    client_default: ClientDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    yes: Yes = False,
) -> None:
    """Remove quotas of an entity: it has those of the next more general entity then."""
    from odradek.admin.quotas import alter_quotas, name_of, quotas_of

    entity = _one_entity(_entity(user, user_default, client_id, client_default, ip, ip_default))
    found = {key for view in quotas_of(cluster, entity, strict=True) for key in view.quotas}
    wanted = sorted(set(quotas or found))
    if missing := [key for key in wanted if key not in found]:
        raise CommandError(f"{name_of(entity)} has no quota {', '.join(missing)}")
    if not wanted:
        raise CommandError(f"{name_of(entity)} has no quotas")
    confirm(f"Remove {', '.join(wanted)} of {name_of(entity)}?", yes)
    alter_quotas(cluster, entity, dict.fromkeys(wanted))
    print_line(f"Removed {', '.join(wanted)} of {name_of(entity)}.")


def _entity(
    user: str | None,
    user_default: bool,
    client_id: str | None,
    client_default: bool,
    ip: str | None,
    ip_default: bool,
) -> dict[str, str | None]:
    """Return the names that the options give, by type; None stands for a default."""
    entity: dict[str, str | None] = {}
    for kind, option, name, is_default in (
        ("user", "user", user, user_default),
        ("client-id", "client", client_id, client_default),
        ("ip", "ip", ip, ip_default),
    ):
        if name and is_default:
            raise BadParameter(f"--{kind} and --{option}-default exclude each other")
        if name == "":
            raise BadParameter(f"the name after --{kind} is empty")
        if name or is_default:
            entity[kind] = name
    if "ip" in entity and len(entity) > 1:
        raise BadParameter("the quota of an address is not narrowed to a user or a client id")
    return entity


def _one_entity(entity: dict[str, str | None]) -> dict[str, str | None]:
    if not entity:
        raise BadParameter("name whose quota it is: --user, --client-id, --ip, or a default of these")
    return entity


def parse_limit(text: str) -> tuple[str, float]:
    """Read a limit such as `producer_byte_rate=1Mi`."""
    key, equals, value = text.partition("=")
    if key not in QUOTAS:
        raise BadParameter(f"{key!r} is not a quota: choose from {', '.join(QUOTAS)}")
    found = VALUE.fullmatch(value.strip())
    if not equals or not found:
        raise BadParameter(f"{text!r} is not of the form {key}=NUMBER, such as {key}=1000 or {key}=1Mi")
    return key, float(found[1]) * UNITS[(found[2] or "").lower()]


def shown(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else f"{value:g}"
