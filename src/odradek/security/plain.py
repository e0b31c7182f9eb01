"""PLAIN (RFC 4616): the client sends its name and password. Only for connections that are encrypted, or loopback."""

import hmac
from collections.abc import Mapping
from hashlib import sha256

from odradek.security.exchange import Proven, Refused, check_authorization_id

MECHANISM = "PLAIN"
INVALID = "Authentication failed: Invalid username or password"


def client_message(username: str, password: str) -> bytes:
    return f"\0{username}\0{password}".encode()


class PlainExchange:
    """The server's side."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        """`passwords` by user."""
        self._passwords = passwords

    def step(self, message: bytes) -> Proven:
        authorization_id, user, password = _parse(message)
        if not self._matches(user, password):
            raise Refused("unknown user or wrong password", INVALID)
        check_authorization_id(authorization_id, user)
        return Proven(user)

    def _matches(self, user: str, password: str) -> bool:
        """Takes as long for an unknown user, and for a password of another length (CVE-2021-38153)."""
        expected = self._passwords.get(user)
        is_equal = hmac.compare_digest(_digest(password), _digest(expected or ""))
        return is_equal and expected is not None


def _parse(message: bytes) -> tuple[str, str, str]:
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise Refused("a PLAIN message that is not UTF-8") from None
    if len(parts) != 3:
        raise Refused(
            f"a PLAIN message of {len(parts)} parts",
            f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}",
        )
    authorization_id, user, password = parts
    if not user:
        raise Refused("no username", "Authentication failed: username not specified")
    if not password:
        raise Refused("no password", "Authentication failed: password not specified")
    return authorization_id, user, password


def _digest(text: str) -> bytes:
    return sha256(text.encode()).digest()
