"""`odradek user`: the users that log in with SCRAM. It uses Kafka's protocol, so it works with any Kafka.

A password comes from a prompt, a file or the environment, never from the command line, which every user of the machine
can read.
"""

import os
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated

import click

from odradek.admin.access import Access
from odradek.cli.access import on_cluster
from odradek.cli.arguments import JsonOutput
from odradek.cli.danger import Yes, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Group, Option
from odradek.cli.output import print_columns, print_json, print_line
from odradek.security.credentials import DEFAULT_ITERATIONS, MAX_ITERATIONS, MIN_ITERATIONS

app = Group(help="Add, list and remove users that log in with a password (SCRAM).")

PASSWORD_VARIABLE = "ODRADEK_USER_PASSWORD"


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
    from odradek.admin.users import set_password

    set_password(cluster, name, mechanism.value, read_password(name, password_file), iterations)
    print_line(f"User {name} logs in with {mechanism.value}.")


@app.command("list")
@on_cluster
def list_users(cluster: Access, as_json: JsonOutput = False) -> None:
    """List the users, with the mechanisms that they log in with."""
    from odradek.admin.users import users_of

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
    from odradek.admin.users import remove_credential, users_of

    found = [view for view in users_of(cluster) if view.user == name]
    if not found:
        raise CommandError(f"there is no user {name}")
    confirm(f"Remove user {name}?", yes)
    for view in found:
        remove_credential(cluster, view)
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
