"""`odradek console`: a web console on this machine, for one cluster or several, until Ctrl-C."""

import logging
import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from odradek.admin.access import Access
from odradek.cli.access import Naming, named_cluster, on_cluster
from odradek.cli.failures import CommandError
from odradek.cli.framework import Option
from odradek.cli.logs import configure_logging
from odradek.cli.output import print_line

if TYPE_CHECKING:
    from odradek.console.settings import ConsoleSettings

MISSING_EXTRA = (
    "the console needs more packages: install them with pip install '.[console]' in a clone of Odradek"
)


class RoleName(Enum):
    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"


File = Path | None
UserToSet = Annotated[
    str | None,
    Option(
        "--set-password", metavar="USER", help="Add a user to --users, or change its password; then exit."
    ),
]


@on_cluster
def console(
    cluster: Access,
    port: Annotated[int, Option("--port", min=0, max=65535, help="The port (0: the system chooses).")] = 8090,
    host: Annotated[
        str,
        Option("--host", metavar="HOST", help="The address; beyond this machine only with TLS and a login."),
    ] = "localhost",
    allow_host: Annotated[
        list[str] | None,
        Option("--allow-host", metavar="NAME", help="Another name that browsers reach it by; repeatable."),
    ] = None,
    name: Annotated[str, Option("--name", metavar="NAME", help="What pages call the cluster.")] = "cluster",
    also: Annotated[
        list[str] | None,
        Option("--also", metavar="PROFILE", help="The cluster of this profile, too; repeatable."),
    ] = None,
    users: Annotated[
        File, Option("--users", metavar="FILE", help="Users, roles and hashed passwords.")
    ] = None,
    set_password: UserToSet = None,
    role: Annotated[RoleName, Option("--role", help="The role of that user.")] = RoleName.VIEWER,
    tls_certificate: Annotated[
        File, Option("--tls-certificate", metavar="FILE", is_file=True, help="A certificate chain in PEM.")
    ] = None,
    tls_key: Annotated[
        File, Option("--tls-key", metavar="FILE", is_file=True, help="Its key in PEM.")
    ] = None,
    read_only: Annotated[bool, Option("--read-only", help="Change nothing, whoever asks.")] = False,
    audit_log: Annotated[
        File, Option("--audit-log", metavar="FILE", help="Write a JSON line for each change there, too.")
    ] = None,
    schema_registry: Annotated[
        str | None, Option("--schema-registry", metavar="URL", help="Where Avro schemas are.")
    ] = None,
    lifeline: Annotated[bool, Option("--lifeline", hidden=True)] = False,
) -> None:
    """Run a web console: what the cluster is, what is wrong with it, and what to do."""
    check_packages()
    if set_password is not None:
        add_user(users, set_password, role)
        return
    from odradek.console.settings import ConsoleSettings

    others = {one: named_cluster(Naming(profile=one), Naming(), os.environ) for one in also or ()}
    settings = ConsoleSettings(
        clusters={name: cluster, **others},
        host=host,
        port=port,
        allowed_hosts=tuple(allow_host or ()),
        users_file=users,
        certificate=tls_certificate,
        key=tls_key,
        read_only=read_only,
        audit_file=audit_log,
        schema_registry=schema_registry,
    )
    run(settings, lifeline=lifeline)


def check_packages() -> None:
    """Raise CommandError if the packages that the console needs are not installed."""
    try:
        import odradek.console.serve  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("odradek"):
            raise
        raise CommandError(MISSING_EXTRA) from None


def run(settings: "ConsoleSettings", *, lifeline: bool) -> None:
    from odradek.console.serve import serve

    settings.check()
    configure_logging([], logging.Filter(), "text")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    if lifeline:
        end_with_parent()
    serve(settings, lambda address: print_line_now(f"The console is at {address}"))


def print_line_now(text: str) -> None:
    import sys

    print_line(text)
    sys.stdout.flush()


def end_with_parent() -> None:
    """Stop when the process that started us ends: standard input is a pipe from there."""
    import signal
    import sys
    import threading

    def wait() -> None:
        while os.read(
            sys.stdin.fileno(), 1024
        ):  # not through its buffer, whose lock would be held at our end
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def add_user(file: Path | None, name: str, role: RoleName) -> None:
    from odradek.cli.user import read_password
    from odradek.console.users import Role, write_user

    if file is None:
        raise CommandError("name the file of users with --users")
    write_user(file, name, read_password(name, None), Role[role.name])
    print_line(f"User {name} is {role.value} in {file}.")
