"""`odradek user`: the users that log in with SCRAM. It uses Kafka's protocol, so it works with any Kafka.

A password comes from a prompt, a file or the environment, never from the command line, which every user of the machine
can read. It is salted here: the cluster never sees it.
"""

import os
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, TypeVar

import click

from odradek.cli.access import Access, addresses_of, on_cluster
from odradek.cli.arguments import JsonOutput
from odradek.cli.danger import Yes, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Group, Option
from odradek.cli.output import print_columns, print_json, print_line
from odradek.errors import ErrorCode
from odradek.security.credentials import (
    BY_CODE,
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
)
from odradek.security.decoys import SALT_SIZE, new_salt
from odradek.security.scram import salt_password
from odradek.wire.codec import Message
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

app = Group(help="Add, list and remove users that log in with a password (SCRAM).")

PASSWORD_VARIABLE = "ODRADEK_USER_PASSWORD"

Answer = TypeVar("Answer", bound=Message)


class MechanismName(Enum):
    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


Name = Annotated[str, Argument(metavar="NAME", help="The name that the user logs in with.")]
Mechanism = Annotated[MechanismName, Option("--mechanism", help="How the user logs in.")]
PasswordFile = Annotated[
    Path | None,
    Option(
        "--password-file",
        metavar="FILE",
        is_file=True,
        help=f"Read the password from the first line of a file, not from {PASSWORD_VARIABLE} or a prompt.",
    ),
]
Iterations = Annotated[
    int,
    Option("--iterations", min=MIN_ITERATIONS, max=MAX_ITERATIONS, help="How slow guessing a password is."),
]


@dataclass(frozen=True)
class UserView:
    """A line of `list`; its fields are those of the JSON output."""

    user: str
    mechanism: str
    iterations: int


@app.command()
@on_cluster
def add(
    cluster: Access,
    name: Name,
    mechanism: Mechanism = MechanismName.SHA_512,
    password_file: PasswordFile = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
) -> None:
    """Add a user, or give it a new password."""
    scram = SCRAM_MECHANISMS[mechanism.value]
    password = read_password(name, password_file)
    salt = new_salt(os.urandom(SALT_SIZE))
    salted = salt_password(scram, password, salt, iterations)
    _alter(cluster, [ScramCredentialUpsertion(name, scram.code, iterations, salt, salted)], [])
    print_line(f"User {name} logs in with {scram.name}.")


@app.command("list")
@on_cluster
def list_users(cluster: Access, as_json: JsonOutput = False) -> None:
    """List the users, with the mechanisms that they log in with."""
    views = users_of(cluster)
    if as_json:
        print_json([asdict(view) for view in views])
        return
    rows = [(view.user, view.mechanism, view.iterations) for view in views]
    print_columns(("USER", "MECHANISM", "ITERATIONS"), rows)


@app.command()
@on_cluster
def remove(cluster: Access, name: Name, yes: Yes = False) -> None:
    """Remove a user: its next login fails, connections that it has stay open."""
    found = [view for view in users_of(cluster) if view.user == name]
    if not found:
        raise CommandError(f"there is no user {name}")
    confirm(f"Remove user {name}?", yes)
    for view in found:
        _alter(cluster, [], [ScramCredentialDeletion(name, SCRAM_MECHANISMS[view.mechanism].code)])
    print_line(f"Removed user {name}.")


def read_password(name: str, file: Path | None) -> str:
    if file is not None:
        try:
            lines = file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{file} cannot be read: {error}") from None
        password = lines[0] if lines else ""
    elif PASSWORD_VARIABLE in os.environ:
        password = os.environ[PASSWORD_VARIABLE]
    else:
        password = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    if not password:
        raise BadParameter("the password is empty")
    return password


def users_of(cluster: Access) -> list[UserView]:
    response = _ask(cluster, DescribeUserScramCredentialsRequest(None), DescribeUserScramCredentialsResponse)
    _check(response.error_code, response.error_message)
    views = [
        UserView(result.user, BY_CODE[info.mechanism].name, info.iterations)
        for result in response.results
        for info in result.credential_infos
        if info.mechanism in BY_CODE
    ]
    return sorted(views, key=lambda view: (view.user, view.mechanism))


def _alter(
    cluster: Access, upsertions: list[ScramCredentialUpsertion], deletions: list[ScramCredentialDeletion]
) -> None:
    request = AlterUserScramCredentialsRequest(deletions, upsertions)
    response = _ask(cluster, request, AlterUserScramCredentialsResponse)
    for result in response.results:
        _check(result.error_code, result.error_message)


def _ask(cluster: Access, request: Message, answer_type: type[Answer]) -> Answer:
    """The response of the first server that can be reached."""
    from odradek.cli.own_client import Address, ask

    reasons = []
    for server in addresses_of(cluster.bootstrap):
        try:
            return ask(cluster, Address(*server), request, answer_type)
        except CommandError as error:
            reasons.append(str(error))
    raise CommandError("; ".join(reasons))


def _check(code: int, message: str | None) -> None:
    if code:
        raise CommandError(message or ErrorCode(code).name.lower().replace("_", " "))
