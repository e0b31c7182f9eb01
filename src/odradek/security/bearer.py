"""OAUTHBEARER (RFC 7628, KIP-255): the client sends a token that somebody else has signed.

A server that refuses a token says so in JSON, the client acknowledges it, and only then the login fails. The client is
told no more than `invalid_token`; the reason is in our log.
"""

import re
from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from odradek.security.exchange import Proven, Refused

MECHANISM = "OAUTHBEARER"
SEPARATOR = "\x01"
ACKNOWLEDGED = SEPARATOR.encode()
INVALID_TOKEN = b'{"status":"invalid_token"}'

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR = r"[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01"
_FIRST = re.compile(rf"n,(?:a=(?P<name>{_NAME}))?,\x01(?P<pairs>(?:{_PAIR})*)\x01")
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")

Conversation = Generator[bytes, bytes, None]


class Token(NamedTuple):
    """A token that was found to be valid."""

    user: str
    expires_at_ms: int


class InvalidToken(Exception):
    """The token is refused; the message says why, and does not contain it."""


class UnknownKey(InvalidToken):
    """The token names a key that we do not have: it may be a new one."""


Validate = Callable[[str], Token]  # raises InvalidToken


class BearerExchange:
    """The server's side."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._refused: Refused | None = None

    def step(self, message: bytes) -> Proven | bytes:
        if self._refused is not None:
            raise self._refused
        authorization_id, text = _parse(message)
        try:
            token = self._validate(text)
        except InvalidToken as error:
            self._refused = Refused(str(error), INVALID_TOKEN.decode())
            return INVALID_TOKEN
        if authorization_id and authorization_id != token.user:
            raise Refused(
                "it asked to act as another user",
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name",
            )
        return Proven(token.user, b"", token.expires_at_ms)


def converse(token: str, extensions: Iterable[tuple[str, str]] = ()) -> Conversation:
    """The client's side. Raises Refused with the server's reason."""
    more = "".join(f"{SEPARATOR}{name}={value}" for name, value in extensions)
    response = yield f"n,,{SEPARATOR}auth=Bearer {token}{more}{SEPARATOR}{SEPARATOR}".encode()
    if response:
        yield ACKNOWLEDGED
        raise Refused(f"the broker refused the token: {response.decode(errors='replace')}")


def _parse(message: bytes) -> tuple[str, str]:
    """The authorization id and the token."""
    try:
        first = _FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        first = None
    if first is None:
        raise Refused("a message that is not OAUTHBEARER's")
    pairs = dict(pair.split("=", 1) for pair in first["pairs"].split(SEPARATOR) if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise Refused("an OAUTHBEARER message without a bearer token")
    name = (first["name"] or "").replace("=2C", ",").replace("=3D", "=")
    return name, bearer["token"]
