"""Users of the console, in one TOML file with hashed passwords:

    [users.alice]
    role = "admin"                      # viewer, editor or admin
    password = "scrypt$32768$8$3$…$…"   # written by `odradek console --set-password alice`
    client = "alice.properties"         # optional: the settings with which her changes reach the cluster

Failed logins are limited for each user and each address, so that nobody can guess for long.
"""

import base64
import binascii
import hashlib
import hmac
import json
import os
import tempfile
import tomllib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from odradek.admin.failures import AdminError

COST, BLOCK_SIZE, PARALLEL = 2**15, 8, 3
SALT_BYTES = 16
MEMORY_BYTES = 64 * 1024 * 1024
WINDOW_S = 300.0
FAILURES_ALLOWED = 10  # in the window, for a user name and for an address
MOST_NAMES = 10_000  # that are remembered


class Role(IntEnum):
    """A role may do everything that a lower one may."""

    VIEWER = 1
    EDITOR = 2
    ADMIN = 3

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class User:
    name: str
    role: Role
    password: str
    client: Path | None = None


NOBODY = "scrypt$32768$8$3$AAAAAAAAAAAAAAAAAAAAAA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="


def hash_password(password: str, salt: bytes | None = None) -> str:
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    digest = _scrypt(password, salt, COST, BLOCK_SIZE, PARALLEL)
    parts = (base64.b64encode(each).decode() for each in (salt, digest))
    return "$".join(("scrypt", str(COST), str(BLOCK_SIZE), str(PARALLEL), *parts))


def is_password(password: str, stored: str) -> bool:
    try:
        kind, cost, block_size, parallel, salt, digest = stored.split("$")
        expected = base64.b64decode(digest, validate=True)
        found = _scrypt(password, base64.b64decode(salt), int(cost), int(block_size), int(parallel))
    except (ValueError, binascii.Error):
        return False
    return kind == "scrypt" and hmac.compare_digest(found, expected)


def _scrypt(password: str, salt: bytes, cost: int, block_size: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=cost, r=block_size, p=parallel, maxmem=MEMORY_BYTES, dklen=32
    )


def read_users(file: Path) -> dict[str, User]:
    """Raises AdminError for a file that does not say who may do what."""
    try:
        tables = tomllib.loads(file.read_text("utf-8")).get("users", {})
    except OSError as error:
        raise AdminError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AdminError(f"{file} is not a users file: {error}") from None
    users = {}
    for name, fields in tables.items():
        role = str(fields.get("role", "")).upper()
        if role not in Role.__members__ or not str(fields.get("password", "")).startswith("scrypt$"):
            raise AdminError(
                f"{file}: user {name} needs a role (viewer, editor, admin) and a hashed password"
            )
        client = file.parent / fields["client"] if "client" in fields else None
        users[name] = User(name, Role[role], fields["password"], client)
    if not users:
        raise AdminError(
            f"{file} names no user: add one with 'odradek console --set-password NAME --users {file}'"
        )
    return users


def write_user(file: Path, name: str, password: str, role: Role) -> None:
    """Add a user, or give it a new password and role; only the owner can read the file."""
    users = read_users(file) if file.exists() else {}
    before = users.get(name)
    users[name] = User(name, role, hash_password(password), before.client if before else None)
    lines = []
    for user in users.values():
        lines += [f"[users.{_quoted(user.name)}]", f'role = "{user.role}"', f'password = "{user.password}"']
        if user.client is not None:
            lines.append(f"client = {_quoted(str(user.client))}")
        lines.append("")
    _replace(file, "\n".join(lines))


def _replace(file: Path, text: str) -> None:
    """The file has what it had, or all of the text; only its owner can read it."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8") as output:
            output.write(text)
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise


def _quoted(text: str) -> str:
    return json.dumps(text)


class Attempts:
    """Failed logins by name: too many of them within the window, and the next is not even tried.

    An attempt counts as failed from its beginning, so that many at the same time are no more than one after another.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[str, deque[float]] = {}

    def begin(self, *names: str) -> bool:
        """False if one of the names has failed too often; then nothing is tried."""
        if any(len(self._recent(name)) >= FAILURES_ALLOWED for name in names):
            return False
        for name in names:
            if len(self._failures) >= MOST_NAMES:
                self._failures.pop(next(iter(self._failures)))
            self._failures.setdefault(name, deque(maxlen=FAILURES_ALLOWED)).append(self._clock())
        return True

    def succeeded(self, user: str, address: str) -> None:
        """The user is forgiven all; the address only this attempt, as others may be guessed from there."""
        self._failures.pop(user, None)
        if attempts := self._failures.get(address):
            attempts.pop()

    def _recent(self, name: str) -> list[float]:
        limit = self._clock() - WINDOW_S
        return [each for each in self._failures.get(name, ()) if each > limit]
