"""The settings of a connection with TLS. Plain values, without OpenSSL, which not every client needs."""

from dataclasses import dataclass

from odradek.security.stores import Store

VERSIONS = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    trust: Store | None = None  # None: the certificate authorities of the system
    identity: Store | None = None
    check_hostname: bool = True  # of servers, by clients
    oldest_version: str = "TLSv1.2"
    newest_version: str = "TLSv1.3"
    ciphers: tuple[str, ...] = ()  # by Java's names; empty: OpenSSL's defaults
    client_authentication: str = "none"  # of clients, by servers

    def fingerprint(self) -> object:
        """It changes when a file of a store does."""
        return tuple(store.fingerprint() for store in (self.trust, self.identity) if store is not None)
