"""The public keys that sign bearer tokens: a JSON Web Key Set (RFC 7517), from a file or from an HTTPS address.

An address must be in the list of allowed ones, so that a setting cannot make the broker ask anything else; it is read
without redirects, within bounds of size and time. Keys are kept as they were when the source cannot be read later, but
a broker does not start without any. Of a set, the keys that can be used are taken (RFC 7517, section 5): one of a new
kind must not keep the others out.

`read` blocks: it runs in a thread.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from time import monotonic as now_s
from typing import Any, NamedTuple

from odradek.security.bearer import InvalidToken, UnknownKey

log = logging.getLogger(__name__)

MAX_BYTES = 1 << 20
MAX_KEYS = 1_000
TIMEOUT_S = 10  # for each piece, and for all of them together
PIECE = 64 * 1024
KINDS = ("RSA", "EC", "OKP")  # no secrets: a server that checks tokens need not be able to make them
MIN_RSA_BITS = 2048


class BadKeySource(ValueError):
    """No keys can be read from the source; the message says why."""


class Key(NamedTuple):
    kind: str
    algorithm: str | None  # the only one it is for, if it says so
    key: Any  # of `cryptography`


class KeySet:
    def __init__(self, keys: Mapping[str | None, Key]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def knows(self, key_id: str | None) -> bool:
        return key_id in self._keys

    def find(self, key_id: object, kind: str, algorithm: str) -> Any:
        """The key that a token names; a token without a name may only mean the only key. Raises InvalidToken."""
        if key_id is None and len(self._keys) == 1:
            found: Key | None = next(iter(self._keys.values()))
        else:
            found = self._keys.get(key_id) if isinstance(key_id, str) else None
        if found is None:
            raise UnknownKey("the token is signed with a key that is not known")
        if found.kind != kind or found.algorithm not in (None, algorithm):
            raise InvalidToken("the token's algorithm does not fit its key")
        return found.key


def parse_key_set(text: str | bytes) -> KeySet:
    """Keys that are not for signatures are left out, and so are those that we cannot use. Raises BadKeySource if there
    is no other."""
    try:
        listed = json.loads(text)["keys"]
        assert isinstance(listed, list)
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError):
        raise BadKeySource("it is not a JSON Web Key Set") from None
    keys: dict[str | None, Key] = {}
    unusable = ""
    for item in listed[:MAX_KEYS]:
        if not isinstance(item, dict) or item.get("kty") not in KINDS or item.get("use", "sig") != "sig":
            continue
        key_id = item.get("kid")
        try:
            keys[key_id if isinstance(key_id, str) else None] = _parse_key(item)
        except BadKeySource as error:
            unusable = str(error)
    if not keys:
        raise BadKeySource(unusable or "it has no public key for signatures")
    if unusable:
        log.warning("a set of keys for bearer tokens is used without some of its keys: %s", unusable)
    return KeySet(keys)


def _parse_key(item: Mapping[str, Any]) -> Key:
    import jwt  # of PyJWT, only where tokens are used
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        parsed = jwt.PyJWK.from_dict(dict(item)).key
    except (
        *(jwt.PyJWTError, UnsupportedAlgorithm),
        *(ValueError, TypeError, KeyError, AttributeError),
    ) as error:
        raise BadKeySource(f"one of its keys cannot be read: {type(error).__name__}") from None
    if hasattr(parsed, "public_key"):
        parsed = parsed.public_key()  # somebody published the private one; we need no more than this
    if item["kty"] == "RSA" and parsed.key_size < MIN_RSA_BITS:
        raise BadKeySource(f"it has an RSA key of {parsed.key_size} bits, less than {MIN_RSA_BITS}")
    algorithm = item.get("alg")
    return Key(item["kty"], algorithm if isinstance(algorithm, str) else None, parsed)


class KeySource(NamedTuple):
    """The place of the keys."""

    url: str  # file: or https:

    def read(self) -> KeySet:
        """Blocks. Raises BadKeySource."""
        from http.client import HTTPException

        try:
            if self.url.startswith("file:"):
                return parse_key_set(_file_of(self.url).read_bytes()[: MAX_BYTES + 1])
            return parse_key_set(_fetch(self.url))
        except (OSError, HTTPException) as error:
            raise BadKeySource(f"{self.url} cannot be read: {error or type(error).__name__}") from None
        except BadKeySource as error:
            raise BadKeySource(f"{self.url}: {error}") from None


def parse_source(url: str, allowed: tuple[str, ...]) -> KeySource:
    """Raises BadKeySource, with what to do about it."""
    if url.startswith("file:"):
        return KeySource(url)
    if not url.startswith("https://"):
        raise BadKeySource("must begin with https:// or file:")
    if url not in allowed:
        raise BadKeySource(
            "is not in org.apache.kafka.sasl.oauthbearer.allowed.urls, which lists the addresses that may be read"
        )
    return KeySource(url)


def _file_of(url: str) -> Path:
    from urllib.parse import unquote, urlsplit

    return Path(unquote(urlsplit(url).path))


def _fetch(url: str) -> bytes:
    import urllib.request  # slow to import, and rarely needed

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None  # which makes it an error

    ends = now_s() + TIMEOUT_S
    opener = urllib.request.build_opener(NoRedirect)
    data = bytearray()
    with opener.open(url, timeout=TIMEOUT_S) as response:
        while piece := response.read1(PIECE):
            data += piece
            if len(data) > MAX_BYTES:
                raise BadKeySource(f"more than {MAX_BYTES} bytes")
            if now_s() > ends:
                raise TimeoutError(f"it takes longer than {TIMEOUT_S} s")
        if response.length:
            raise BadKeySource("its end is missing")
    return bytes(data)
