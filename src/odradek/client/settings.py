"""The settings of a client. Plain values: they travel to other machines and are keys of a cache.

Files are named here and read where a connection is made, because a store is on the machine that uses it.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.records.compression import Codec

if TYPE_CHECKING:
    from odradek.security.tls_settings import TlsSettings

MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """`mechanism` decides which of the other fields are used."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token_url: str | None = None
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    unsecured_subject: str | None = None


@dataclass(frozen=True, slots=True)
class ClientSettings:
    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "odradek"
    tls: "TlsSettings | None" = None
    sasl: SaslSettings | None = None
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    api_timeout_s: float = 60.0  # how long an outage is waited out, once a broker has been reached
    first_contact_timeout_s: float = 5.0  # how long before that
    retry_backoff_s: float = 0.1


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """`max_bytes` bounds memory: a reader has one fetch in memory and another under way."""

    max_bytes: int = 8 * MEGABYTE
    min_bytes: int = 1
    max_wait_ms: int = 500
    read_committed: bool = False
    check_crc: bool = True


@dataclass(frozen=True, slots=True)
class ProduceSettings:
    """acks=all and idempotence are not settings: without them a sink loses and repeats rows."""

    batch_bytes: int = 512 * 1024
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    delivery_timeout_s: float = 120.0
    request_timeout_ms: int = 30_000
    transaction_timeout_ms: int = 120_000  # only where rows are written exactly once
