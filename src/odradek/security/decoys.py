"""Decoys: the SCRAM credentials that unknown users seem to have.

A login begins with the salt and the iterations of the user. For an unknown user both are made up, from a secret of the
cluster, so that every broker says the same, today and after a restart. They have the form of most real credentials: how
many iterations, how long a salt, of which characters. Nobody can log in with a decoy: its keys are no hash of anything.
"""

import hmac
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from odradek.security.credentials import DEFAULT_ITERATIONS, ScramCredential, ScramMechanism

SALT_CHARACTERS = b"0123456789abcdefghijklmnopqrstuvwxyz"  # those of Java's tools, and of ours
SALT_SIZE = 26


class Form(NamedTuple):
    iterations: int = DEFAULT_ITERATIONS
    salt_size: int = SALT_SIZE
    is_text: bool = True  # the salt has nothing but SALT_CHARACTERS


def usual_form(credentials: Iterable[ScramCredential]) -> Form:
    """The form of most of them; of equally many, the one that comes first in order."""
    forms = Counter(
        Form(item.iterations, len(item.salt), not item.salt.strip(SALT_CHARACTERS)) for item in credentials
    )
    return min(forms, key=lambda form: (-forms[form], form)) if forms else Form()


def new_salt(random_bytes: bytes) -> bytes:
    """A salt in the usual form; at least SALT_SIZE random bytes are needed."""
    return _as_text(random_bytes[:SALT_SIZE])


def decoy(secret: bytes, mechanism: ScramMechanism, user: str, form: Form) -> ScramCredential:
    def derive(what: str) -> bytes:
        return hmac.digest(secret, f"{mechanism.name}\0{what}\0{user}".encode(), mechanism.hash)

    salt = b"".join(derive(f"salt {part}") for part in range(1 + form.salt_size // mechanism.key_size))
    salt = salt[: form.salt_size]
    return ScramCredential(
        _as_text(salt) if form.is_text else salt, derive("stored"), derive("server"), form.iterations
    )


def _as_text(chance: bytes) -> bytes:
    return bytes(SALT_CHARACTERS[byte % len(SALT_CHARACTERS)] for byte in chance)
