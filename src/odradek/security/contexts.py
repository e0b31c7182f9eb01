"""SSL contexts for servers and clients, from settings with Kafka's names.

TLS 1.2 and 1.3 only. A server never renegotiates and hands out no session tickets: each connection proves its
certificate anew. A store that the settings name is trusted as in Java, all of its certificates and no others; only a
client without one trusts the authorities of the system.

Certificates change while a broker runs: `ContextSource.refresh` makes a new context for new connections once a file
has changed, and keeps the old one if the new files cannot be used.
"""

import ssl
from collections.abc import Callable

from odradek.security.ciphers import BadCiphers, openssl_ciphers
from odradek.security.stores import BadStore, Store, as_file, read_store
from odradek.security.tls_settings import TlsSettings

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTHENTICATION = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def client_context(tls: TlsSettings) -> ssl.SSLContext:
    """Raises BadStore."""
    if tls.trust is None:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _trust(context, tls.trust)
    context.check_hostname = tls.check_hostname
    _restrict(context, tls)
    if tls.identity is not None:
        _identify(context, tls.identity)
    return context


def server_context(tls: TlsSettings) -> ssl.SSLContext:
    """Raises BadStore."""
    if tls.identity is None:
        raise BadStore("a TLS listener needs a certificate and its key: set ssl.keystore.location")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    _restrict(context, tls)
    _identify(context, tls.identity)
    context.verify_mode = CLIENT_AUTHENTICATION[tls.client_authentication]
    if context.verify_mode is not ssl.CERT_NONE:
        if tls.trust is None:
            raise BadStore(
                f"ssl.client.auth={tls.client_authentication} needs the authorities that sign the certificates of "
                "clients: set ssl.truststore.location"
            )
        _trust(context, tls.trust)
    return context


def _restrict(context: ssl.SSLContext, tls: TlsSettings) -> None:
    context.minimum_version = VERSIONS[tls.oldest_version]
    context.maximum_version = VERSIONS[tls.newest_version]
    if tls.ciphers:
        try:
            context.set_ciphers(openssl_ciphers(tls.ciphers, tls.oldest_version, tls.newest_version))
        except (BadCiphers, ssl.SSLError) as error:
            raise BadStore(f"ssl.cipher.suites: {error}") from None


def _trust(context: ssl.SSLContext, trust: Store) -> None:
    """Trust each certificate in the store, as Java does, even if another one signed it."""
    try:
        context.load_verify_locations(cadata=read_store(trust).certificates)
    except (ssl.SSLError, ValueError) as error:
        raise BadStore(f"{_name(trust)}: no certificates to trust can be read: {error}") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _identify(context: ssl.SSLContext, identity: Store) -> None:
    pem = read_store(identity)
    try:
        with as_file(pem) as path:
            # Without a password OpenSSL would ask at the terminal.
            context.load_cert_chain(path, password=pem.password or "")
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise BadStore(f"{_name(identity)}: its certificate and key cannot be used: {reason}") from None


def _name(store: Store) -> str:
    return store.location or "the PEM text of the setting"


class ContextSource:
    """The current context, for each new connection."""

    def __init__(self, tls: TlsSettings, make: Callable[[TlsSettings], ssl.SSLContext]) -> None:
        """Raises BadStore."""
        self._tls, self._make = tls, make
        self._fingerprint = tls, tls.fingerprint()
        self.current = make(tls)

    def refresh(self) -> bool:
        """Read the files again if they have changed. Returns True if new connections will use others. Raises BadStore
        if those cannot be used; then the old ones stay in use until the files change again. Blocks."""
        tls = self._tls
        fingerprint = tls, tls.fingerprint()
        if fingerprint == self._fingerprint:
            return False
        self._fingerprint = fingerprint
        self.current = self._make(tls)
        return True

    def look_at(self, tls: TlsSettings) -> None:
        """Read the files of these settings from the next `refresh` on."""
        self._tls = tls
