"""SCRAM, the client's side: a generator that yields messages and is sent the responses.

The server also proves that it knows the password; one that cannot is refused.
"""

import hmac
from collections.abc import Generator

from odradek.security.credentials import ScramMechanism
from odradek.security.exchange import Refused
from odradek.security.scram import (
    BadMessage,
    attributes,
    client_key,
    combine,
    decode_base64,
    encode_base64,
    escape_name,
    salt_password,
    server_key,
    sign,
    stored_key,
)

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 1_000_000  # asked for by any server
NO_BINDING = "n,,"

Conversation = Generator[bytes, bytes, None]


def converse(mechanism: ScramMechanism, username: str, password: str, nonce: str) -> Conversation:
    """Raises Refused if the server's messages are wrong. `nonce` is random, printable, without a comma."""
    client_first = f"n={escape_name(username)},r={nonce}"
    server_first = (yield f"{NO_BINDING}{client_first}".encode()).decode(errors="replace")
    try:
        salted_password, server_nonce = _take_challenge(mechanism, password, nonce, server_first)
    except (BadMessage, KeyError, ValueError) as error:
        raise Refused(f"the broker's SCRAM challenge cannot be read: {error}") from None
    without_proof = f"c={encode_base64(NO_BINDING.encode())},r={server_nonce}"
    everything = f"{client_first},{server_first},{without_proof}"
    key = client_key(mechanism, salted_password)
    proof = combine(key, sign(mechanism, stored_key(mechanism, key), everything))
    final = (yield f"{without_proof},p={encode_base64(proof)}".encode()).decode(errors="replace")
    if final.startswith("e="):
        raise Refused(f"the broker responded {final[2:]}")
    expected = encode_base64(sign(mechanism, server_key(mechanism, salted_password), everything))
    if not hmac.compare_digest(final.partition(",")[0].encode(), f"v={expected}".encode()):
        raise Refused(
            "the broker does not know the password, so it may be an impostor: check kafka.bootstrap.servers"
        )


def _take_challenge(
    mechanism: ScramMechanism, password: str, nonce: str, server_first: str
) -> tuple[bytes, str]:
    challenge = attributes(server_first)
    if not challenge["r"].startswith(nonce) or challenge["r"] == nonce:
        raise Refused("the broker's SCRAM nonce does not continue ours")
    iterations = int(challenge["i"])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise Refused(f"the broker asks for {iterations} SCRAM iterations")
    return salt_password(mechanism, password, decode_base64(challenge["s"]), iterations), challenge["r"]
