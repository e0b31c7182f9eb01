"""SCRAM, the server's side.

An unknown user gets a challenge like any other (`decoys`), and its proof is checked and found wrong, so neither the
messages nor the time tells that the user does not exist. Kafka refuses such a user at once.

The nonce of the final message must be the one of the challenge. librdkafka before 2.6.1, and so the kcat of many
systems, puts its own part in front of it once more; that is accepted too, as a whole. Kafka compares only the end.
"""

import hmac
from collections.abc import Callable
from typing import NamedTuple

from odradek.security.credentials import ScramCredential, ScramMechanism
from odradek.security.exchange import Proven, Refused, check_authorization_id
from odradek.security.scram import (
    BadMessage,
    ClientFirst,
    combine,
    encode_base64,
    parse_client_final,
    parse_client_first,
    sign,
    stored_key,
)

TOKEN_LOGIN = "tokenauth"  # an extension of Kafka's: the name is that of a delegation token

# The credential of a user, and one that it has if it does not exist.
FindCredential = Callable[[str], tuple[ScramCredential | None, ScramCredential]]


class _Challenged(NamedTuple):
    first: ClientFirst
    nonce: str  # the client's, continued by ours
    server_first: str
    credential: ScramCredential
    is_known: bool


class ScramExchange:
    def __init__(self, mechanism: ScramMechanism, find: FindCredential, nonce: str) -> None:
        """`nonce` is ours: random, printable, without a comma."""
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._challenged: _Challenged | None = None

    def step(self, message: bytes) -> Proven | bytes:
        try:
            if self._challenged is None:
                return self._challenge(parse_client_first(message))
            return self._check(self._challenged, message)
        except BadMessage as error:
            raise Refused(str(error)) from None

    def _challenge(self, first: ClientFirst) -> bytes:
        check_authorization_id(first.authorization_id, first.user)
        if first.extensions.get(TOKEN_LOGIN, "").lower() == "true":
            raise Refused("it logs in with a delegation token, which is not supported")
        found, decoy = self._find(first.user)
        credential = found or decoy
        nonce = first.nonce + self._nonce
        server_first = f"r={nonce},s={encode_base64(credential.salt)},i={credential.iterations}"
        self._challenged = _Challenged(first, nonce, server_first, credential, found is not None)
        return server_first.encode()

    def _check(self, challenged: _Challenged, message: bytes) -> Proven:
        first, credential, mechanism = challenged.first, challenged.credential, self._mechanism
        final = parse_client_final(message)
        everything = f"{first.bare},{challenged.server_first},{final.without_proof}"
        is_right = self._proves(credential, final.proof, everything)
        if final.nonce not in (challenged.nonce, first.nonce + challenged.nonce):  # CVE-2024-56128
            raise Refused("the nonce of its final message is not the one of this exchange")
        if final.channel_binding != encode_base64(first.header.encode()):
            raise Refused("the header of its final message is not that of its first one")
        if not is_right or not challenged.is_known:
            raise Refused("unknown user or wrong password")
        verifier = encode_base64(sign(mechanism, credential.server_key, everything))
        return Proven(first.user, f"v={verifier}".encode())

    def _proves(self, credential: ScramCredential, proof: bytes, everything: str) -> bool:
        mechanism = self._mechanism
        if len(proof) != mechanism.key_size:
            raise Refused("a proof of the wrong size")
        key = combine(proof, sign(mechanism, credential.stored_key, everything))
        return hmac.compare_digest(stored_key(mechanism, key), credential.stored_key)
