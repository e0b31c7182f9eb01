"""`odradek certificates`: an authority, and certificates for the brokers and clients of a test or a small cluster.

Everything is in one directory, which only its owner can read: `ca.pem` (trusted by all), `ca.key` (whoever has it can
pose as anybody: keep it elsewhere once all certificates are made), and for each name a file with its certificate and
key, `NAME.pem`. The commands print the settings that use them.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Group, Option
from odradek.cli.output import print_line

if TYPE_CHECKING:
    from odradek.security.authority import Authority, Issued

app = Group(help="Make certificates for TLS, for a test or a small cluster.")

AUTHORITY, AUTHORITY_KEY = "ca.pem", "ca.key"
DEFAULT_DAYS = 825
MOST_DAYS = 3650

Directory = Annotated[
    Path,
    Option("--dir", metavar="DIR", parser=Path, help="Where the files are (default: certificates)."),
]
Days = Annotated[int, Option("--days", min=1, max=MOST_DAYS, help="How long the certificate is valid.")]
Name = Annotated[str, Argument(metavar="NAME", help="Who it is: the common name, and the name of the file.")]
Hosts = Annotated[
    list[str] | None,
    Option(
        "--host",
        metavar="HOST",
        help="A host name or address of the broker; repeatable (default: localhost).",
    ),
]
DEFAULT_DIRECTORY = Path("certificates")
LOCAL = ("localhost", "127.0.0.1", "::1")


@app.command()
def authority(directory: Directory = DEFAULT_DIRECTORY, days: Days = 2 * DEFAULT_DAYS) -> None:
    """Make an authority, whose certificate all brokers and clients trust."""
    new_authority(directory, days)
    print_line(
        f"Made {directory / AUTHORITY} and {directory / AUTHORITY_KEY}. Brokers and clients trust it with:"
    )
    print_line("")
    _print_trust(directory)


@app.command()
def broker(
    name: Name,
    host: Hosts = None,
    directory: Directory = DEFAULT_DIRECTORY,
    days: Days = DEFAULT_DAYS,
) -> None:
    """Make the certificate of a broker, which is valid for its hosts."""
    path = issue(directory, name, host or list(LOCAL), days)
    print_line(f"Made {path}. The broker uses it with:")
    print_line("")
    _print_identity(path)
    _print_trust(directory)


@app.command()
def client(name: Name, directory: Directory = DEFAULT_DIRECTORY, days: Days = DEFAULT_DAYS) -> None:
    """Make the certificate of a client, which logs in as User:CN=NAME."""
    path = issue(directory, name, [], days)
    print_line(f"Made {path}. The client uses it with:")
    print_line("")
    print_line("security.protocol=SSL")
    _print_identity(path)
    _print_trust(directory)


def new_authority(directory: Path, days: int = 2 * DEFAULT_DAYS) -> "Authority":
    _check_package()
    from odradek.security.authority import new_authority as make

    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = make("Odradek authority", datetime.now(UTC), days)
    write_secret(directory / AUTHORITY_KEY, made.pem.key)
    write_secret(directory / AUTHORITY, made.pem.certificate)
    return made


def issue(directory: Path, name: str, hosts: list[str], days: int = DEFAULT_DAYS) -> Path:
    """A certificate and its key in one file, as Kafka reads them."""
    if not name or any(part in name for part in ("/", "\\", "\0")) or f"{name}.pem" == AUTHORITY:
        raise BadParameter(f"{name!r} cannot be the name of a file")
    issued = load_authority(directory).issue(name, hosts, datetime.now(UTC), days)
    path = directory / f"{name}.pem"
    write_secret(path, _together(issued))
    return path


def load_authority(directory: Path) -> "Authority":
    _check_package()
    from odradek.security.authority import Issued
    from odradek.security.authority import load_authority as load

    try:
        return load(Issued((directory / AUTHORITY).read_text(), (directory / AUTHORITY_KEY).read_text()))
    except FileNotFoundError as error:
        raise CommandError(
            f"{error.filename} does not exist: run 'odradek certificates authority' first"
        ) from None
    except (OSError, ValueError) as error:
        raise CommandError(f"{directory / AUTHORITY}: {error}") from None


def _together(issued: "Issued") -> str:
    return f"{issued.key}{issued.certificate}"


def write_secret(path: Path, text: str) -> None:
    """A new file that only its owner can read; an existing one is not replaced."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandError(f"{path} exists already: it is not replaced") from None
    except OSError as error:
        raise CommandError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _print_identity(path: Path) -> None:
    print_line("ssl.keystore.type=PEM")
    print_line(f"ssl.keystore.location={path.absolute()}")


def _print_trust(directory: Path) -> None:
    print_line("ssl.truststore.type=PEM")
    print_line(f"ssl.truststore.location={(directory / AUTHORITY).absolute()}")


def _check_package() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise CommandError(
            "this needs the package cryptography; run pip install '.[security]' in a clone of Odradek"
        ) from None
