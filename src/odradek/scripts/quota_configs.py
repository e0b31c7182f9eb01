"""The part of kafka-configs.sh that is about users, clients and ips: their quotas.

Users may also have SCRAM credentials, which are described here, and set by `odradek user`: a password on a command line
is for everybody to read.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from odradek.admin.access import Access
from odradek.admin.quotas import (
    CLIENT_ID,
    IP,
    OF_ADDRESSES,
    OF_CLIENTS,
    USER,
    QuotaView,
    alter_quotas,
    quotas_of,
)
from odradek.admin.users import users_of
from odradek.scripts.options import Exit, Given
from odradek.scripts.running import print_line

TYPES = {"users": USER, "clients": CLIENT_ID, "ips": IP}
# In the order in which Kafka's script takes them, wherever they are in the command line.
SHORT = {
    "client": "clients",
    "user": "users",
    "ip": "ips",
    "client-defaults": "clients",
    "user-defaults": "users",
    "ip-defaults": "ips",
}
TITLES = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
DEFAULT = ""

Entities = dict[str, str | None]  # the name for each type: DEFAULT, or None if there is none


def entities(given: Given) -> Entities | None:
    """Return the entities that the command line names; None if it names anything but users, clients and ips."""
    short = [flag for flag in SHORT if given.has(flag)]
    types = [*given.values("entity-type"), *(SHORT[flag] for flag in short)]
    if not types or not any(one in TYPES for one in types):
        return None
    if strange := [one for one in types if one not in TYPES]:
        raise Exit(
            1,
            f"Entity type {strange[0]} cannot be used with {', '.join(one for one in types if one in TYPES)}",
        )
    if len(set(types)) != len(types) or ("ips" in types and len(types) > 1):
        raise Exit(1, "Only [users and clients] can be specified together, each once")
    names = _names(given)
    if len(names) > len(given.values("entity-type")):
        raise Exit(1, "--entity-name or --entity-default must be specified after each --entity-type")
    found: Entities = dict(zip(given.values("entity-type"), [*names, *[None] * len(types)], strict=False))
    for flag in short:
        found[SHORT[flag]] = DEFAULT if flag.endswith("-defaults") else given.text(flag)
    if given.has("alter") and None in found.values():
        raise Exit(
            1, "An entity-name or default entity must be specified with --alter of users, clients or ips"
        )
    return found


def _names(given: Given) -> list[str]:
    """List names and defaults, in the order of the command line."""
    names = iter(given.values("entity-name"))
    return [
        next(names) if flag == "entity-name" else DEFAULT
        for flag in given.order
        if flag.startswith("entity-") and flag != "entity-type"
    ]


def describe(cluster: Access, found: Entities) -> None:
    entity = {TYPES[kind]: name or None for kind, name in found.items() if name is not None}
    kinds = [TYPES[kind] for kind, name in found.items() if name is None]
    for view in quotas_of(cluster, entity, kinds):
        values = ", ".join(f"{key}={as_java(value)}" for key, value in view.quotas.items())
        print_line(f"Quota configs for {_title(view)} are {values}")
    if list(found) == ["users"] and found["users"] != DEFAULT:
        _describe_credentials(cluster, found["users"])


def as_java(value: float) -> str:
    """A number as Java writes it: 1.0E9, 150.5."""
    if 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    number = Decimal(repr(value)).normalize()
    first, *rest = map(str, number.as_tuple().digits)
    return f"{first}.{''.join(rest) or '0'}E{number.adjusted()}"


def _title(view: QuotaView) -> str:
    return ", ".join(
        f"the default {title}" if view.entity[kind] is None else f"{title} '{view.entity[kind]}'"
        for kind, title in TITLES.items()
        if kind in view.entity
    )


def _describe_credentials(cluster: Access, name: str | None) -> None:
    by_user: dict[str, list[str]] = {}
    for view in users_of(cluster):
        if name in (None, view.user):
            by_user.setdefault(view.user, []).append(f"{view.mechanism}=iterations={view.iterations}")
    for user, told in by_user.items():
        print_line(f"SCRAM credential configs for user-principal '{user}' are {', '.join(told)}")


def alter(cluster: Access, found: Entities, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    kind = next(iter(found))
    if any(one.startswith("SCRAM-") for one in (*added, *deleted)):
        raise Exit(
            1,
            "SCRAM credentials are set and removed by 'odradek user', which does not take passwords as arguments",
        )
    known = OF_ADDRESSES if kind == "ips" else OF_CLIENTS
    what = "connection quota" if kind == "ips" else "quota"
    for verb, names in (("added", added), ("deleted", deleted)):
        if unknown := [one for one in names if one not in known]:
            raise Exit(
                1,
                f"Only {what} configs can be {verb} for '{kind}' using --bootstrap-server. "
                f"Unexpected config names: {','.join(unknown)}",
            )
    entity = {TYPES[one]: name or None for one, name in found.items()}
    if deleted:
        has = {key for view in quotas_of(cluster, entity, strict=True) for key in view.quotas}
        if invalid := [one for one in deleted if one not in has]:
            raise Exit(1, f"Invalid config(s): {','.join(invalid)}")
    alter_quotas(
        cluster, entity, {key: _number(key, value) for key, value in added.items()} | dict.fromkeys(deleted)
    )
    name = found[kind]
    if name:
        print_line(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        print_line(f"Completed updating default config for {kind} in the cluster.")


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Exit(1, f"Cannot parse quota configuration value for {key}: {text}") from None
