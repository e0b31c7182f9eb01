"""SCRAM (RFC 5802, 7677): its formulas, and the syntax of its messages.

A server keeps `StoredKey` and `ServerKey`, from which nobody can log in. Both come from the salted password, whose
PBKDF2 is slow by design: clients and tools compute it, a broker never does. Like Kafka, we take names and passwords as
they are, without SASLprep.
"""

import base64
import hashlib
import hmac
from typing import NamedTuple

from odradek.security.credentials import ScramCredential, ScramMechanism


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Slow by design: not for the event loop of a broker."""
    return hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    return ScramCredential(
        salt,
        stored_key(mechanism, client_key(mechanism, salted_password)),
        server_key(mechanism, salted_password),
        iterations,
    )


def client_key(mechanism: ScramMechanism, salted_password: bytes) -> bytes:
    return hmac.digest(salted_password, b"Client Key", mechanism.hash)


def server_key(mechanism: ScramMechanism, salted_password: bytes) -> bytes:
    return hmac.digest(salted_password, b"Server Key", mechanism.hash)


def stored_key(mechanism: ScramMechanism, key: bytes) -> bytes:
    return hashlib.new(mechanism.hash, key).digest()


def sign(mechanism: ScramMechanism, key: bytes, everything: str) -> bytes:
    """The signature of all messages so far, by the key of one side."""
    return hmac.digest(key, everything.encode(), mechanism.hash)


def combine(one: bytes, other: bytes) -> bytes:
    """A proof is a key combined with a signature; combined again, it is the key."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


# --- messages ---


class BadMessage(Exception):
    """A message that is not SCRAM's. What is wrong never includes its values."""


class ClientFirst(NamedTuple):
    header: str  # of GSS-API: channel binding and authorization id
    bare: str  # what is signed
    authorization_id: str
    user: str
    nonce: str
    extensions: dict[str, str]


class ClientFinal(NamedTuple):
    without_proof: str
    channel_binding: str
    nonce: str
    proof: bytes


def escape_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(escaped: str) -> str:
    name = escaped.replace("=2C", ",").replace("=3D", "=")
    if escape_name(name) != escaped:
        raise BadMessage("a name with a bare '='")
    return name


def parse_client_first(message: bytes) -> ClientFirst:
    text = _text(message)
    binding, comma, rest = text.partition(",")
    authorization, second_comma, bare = rest.partition(",")
    if not comma or not second_comma or binding not in ("n", "y"):
        raise BadMessage("the first message has no header without channel binding")
    if authorization and not authorization.startswith("a="):
        raise BadMessage("the first message has a bad authorization id")
    names = attributes(bare)
    if list(names)[:2] != ["n", "r"] or not names["n"] or not _is_nonce(names["r"]):
        raise BadMessage("the first message does not begin with a name and a nonce")
    extensions = {name: value for name, value in names.items() if name not in ("n", "r")}
    return ClientFirst(
        f"{binding},{authorization},",
        bare,
        unescape_name(authorization[2:]),
        unescape_name(names["n"]),
        names["r"],
        extensions,
    )


def parse_client_final(message: bytes) -> ClientFinal:
    without_proof, comma, proof = _text(message).rpartition(",p=")
    names = attributes(without_proof)
    if not comma or list(names)[:2] != ["c", "r"]:
        raise BadMessage("the final message has no channel binding, nonce and proof")
    return ClientFinal(without_proof, names["c"], names["r"], decode_base64(proof))


def attributes(message: str) -> dict[str, str]:
    """`a=…,b=…` by name, in order. A name may be a word only in extensions."""
    found: dict[str, str] = {}
    for part in message.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.isascii() or not name.isalpha() or name in found:
            raise BadMessage("a message that is not a list of attributes")
        found[name] = value
    return found


def decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise BadMessage("a value that is not base64") from None


def encode_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _is_nonce(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise BadMessage("a message that is not UTF-8") from None
