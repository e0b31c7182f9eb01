"""`--add-scram` of `odradek format`, with the syntax of Kafka's `kafka-storage format`:

    --add-scram 'SCRAM-SHA-256=[name=ada,iterations=8192,salt="…",saltedpassword="…"]'

Kafka's `password=…` is accepted with a warning, because every user of the machine can read it. Better are
`password-file=PATH`, `password-env=VARIABLE`, or none of them: then the password is asked for.
"""

import base64
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.security.credentials import (
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramMechanism,
)

if TYPE_CHECKING:
    from odradek.metadata.records import UserScramCredentialRecord

KEYS = ("name", "password", "password-file", "password-env", "salt", "saltedpassword", "iterations")
EXPOSED = (
    "the password in --add-scram can be read by every user of this machine: use password-file or password-env "
    "instead"
)

Ask = Callable[[str], str]


class BadScram(ValueError):
    """The option makes no sense; the message says why, without its secrets."""


def parse_scram(text: str, environ: Mapping[str, str], ask: Ask) -> "UserScramCredentialRecord":
    """The record of one --add-scram. `ask` asks the user for a password."""
    from odradek.metadata.records import UserScramCredentialRecord
    from odradek.security.decoys import SALT_SIZE, new_salt
    from odradek.security.scram import credential_of

    mechanism, given = _parse(text)
    salt = _decoded("salt", given["salt"]) if "salt" in given else new_salt(os.urandom(SALT_SIZE))
    iterations = _iterations(given.get("iterations", str(DEFAULT_ITERATIONS)))
    salted = _salted_password(mechanism, given, salt, iterations, environ, ask)
    credential = credential_of(mechanism, salted, salt, iterations)
    return UserScramCredentialRecord(given["name"], mechanism.code, *credential)


def exposes_a_password(text: str) -> bool:
    return "password" in _parse(text)[1]


def _parse(text: str) -> tuple[ScramMechanism, dict[str, str]]:
    name, equals, rest = text.strip().partition("=")
    mechanism = SCRAM_MECHANISMS.get(name)
    if not equals or mechanism is None:
        raise BadScram(f"it must begin with {' or '.join(SCRAM_MECHANISMS)} and '='")
    if not (rest.startswith("[") and rest.endswith("]")):
        raise BadScram(f"what follows {name}= must be in brackets: [name=…,…]")
    given: dict[str, str] = {}
    for part in rest[1:-1].split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or key not in KEYS:
            raise BadScram(f"inside the brackets are NAME=VALUE with the names {', '.join(KEYS)}")
        given[key] = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    if not given.get("name"):
        raise BadScram("it has no name")
    if "saltedpassword" in given and "salt" not in given:
        raise BadScram("saltedpassword needs the salt")
    return mechanism, given


def _salted_password(
    mechanism: ScramMechanism,
    given: Mapping[str, str],
    salt: bytes,
    iterations: int,
    environ: Mapping[str, str],
    ask: Ask,
) -> bytes:
    from odradek.security.scram import salt_password

    if "saltedpassword" in given:
        salted = _decoded("saltedpassword", given["saltedpassword"])
        if len(salted) != mechanism.key_size:
            raise BadScram(f"saltedpassword must have {mechanism.key_size} bytes")
        return salted
    password = _password(given, environ, ask)
    if not password:
        raise BadScram("the password is empty")
    return salt_password(mechanism, password, salt, iterations)


def _password(given: Mapping[str, str], environ: Mapping[str, str], ask: Ask) -> str:
    if "password" in given:
        return given["password"]
    if "password-file" in given:
        try:
            lines = Path(given["password-file"]).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadScram(f"{given['password-file']} cannot be read: {error}") from None
        return lines[0] if lines else ""
    if "password-env" in given:
        if given["password-env"] not in environ:
            raise BadScram(f"the variable {given['password-env']} is not set")
        return environ[given["password-env"]]
    return ask(f"Password of {given['name']}: ")


def _iterations(text: str) -> int:
    if not text.isdecimal() or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise BadScram(f"iterations must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return int(text)


def _decoded(key: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise BadScram(f"{key} is not base64") from None
