"""The SSL contexts of clients: one for all connections with the same settings, while its files stay the same."""

import ssl
from functools import lru_cache

from odradek.security import contexts
from odradek.security.tls_settings import TlsSettings


def client_context(tls: TlsSettings) -> ssl.SSLContext:
    """Raises BadStore."""
    return _context(tls, tls.fingerprint())


@lru_cache(maxsize=16)
def _context(tls: TlsSettings, fingerprint: object) -> ssl.SSLContext:
    return contexts.client_context(tls)
