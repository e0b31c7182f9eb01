"""The stored form of a SCRAM password, and the mechanisms that it is kept for. Imports nothing: every image has
these.
"""

from typing import NamedTuple

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384  # Kafka's bounds for what is stored
DEFAULT_ITERATIONS = 4096


class ScramMechanism(NamedTuple):
    name: str
    code: int  # in requests and in metadata records
    hash: str
    key_size: int  # bytes


SHA_256 = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SHA_512 = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)
SCRAM_MECHANISMS = {mechanism.name: mechanism for mechanism in (SHA_256, SHA_512)}
BY_CODE = {mechanism.code: mechanism for mechanism in (SHA_256, SHA_512)}


class ScramCredential(NamedTuple):
    """All that a server knows about a user's password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramCredential([hidden])"
