"""The ACLs that commands in our documentation grant, so that tests grant these and no others."""

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from odradek.acls.acl import Acl
from odradek.acls.codes import Operation, Pattern, Permission, Resource
from odradek.client.cluster import Cluster
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse

DOCS = Path(__file__).parent.parent / "docs"
COMMANDS = ("kafka-acls ", "odradek acl add ")
KINDS = {"topic": Resource.TOPIC, "transactional_id": Resource.TRANSACTIONAL_ID, "group": Resource.GROUP}


class Documented(NamedTuple):
    bootstrap: str
    acl: Acl


def documented(page: str, user: str) -> list[Documented]:
    """Return what the commands on the page grant, to this user instead of the one that they name."""
    lines = (DOCS / page).read_text().replace("\\\n", " ").splitlines()
    commands = [line for line in lines if line.startswith(COMMANDS)]
    return [one for command in commands for one in _granted(command, user)]


def _granted(command: str, user: str) -> Iterator[Documented]:
    given, _ = _parser().parse_known_args(shlex.split(command))
    pattern = Pattern[given.resource_pattern_type]
    for kind, resource in KINDS.items():
        for name in getattr(given, kind):
            for operation in given.operation:
                one = acl(resource, name, Operation[_constant(operation)], pattern, user)
                yield Documented(given.bootstrap_server, one)


def _constant(operation: str) -> str:
    """`DescribeConfigs` as DESCRIBE_CONFIGS."""
    return "".join(f"_{one}" if one.isupper() else one for one in operation).strip("_").upper()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--bootstrap-server")
    for name in ("topic", "transactional-id", "group", "operation"):
        parser.add_argument(f"--{name}", action="append", default=[])
    parser.add_argument("--resource-pattern-type", type=str.upper, default="LITERAL")
    return parser


def acl(
    kind: Resource,
    name: str,
    operation: Operation,
    pattern: Pattern = Pattern.LITERAL,
    user: str = "User:ada",
) -> Acl:
    return Acl(kind, name, pattern, user, "*", operation, Permission.ALLOW)


def allow(admin: Cluster, *acls: Acl) -> None:
    request = CreateAclsRequest([AclCreation(*one) for one in acls])
    response = admin.ask("create ACLs", request, CreateAclsResponse)
    assert not any(one.error_code for one in response.results), response


def take_all_away(admin: Cluster, user: str) -> None:
    request = DeleteAclsRequest([DeleteAclsFilter(1, None, 1, user, None, 1, 1)])
    admin.ask("delete ACLs", request, DeleteAclsResponse)
