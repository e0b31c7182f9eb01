"""TLS from the stores that Java clients name: PEM files, PEM text, PKCS12.

OpenSSL reads a certificate and its key from files only, so text is put into a file that only
we can read for as long as it takes to load it. PKCS12 is turned into PEM with `cryptography`. Java's own
format (JKS) is refused: `keytool -importkeystore -deststoretype PKCS12` converts it.
"""

import ssl
import tempfile
from functools import lru_cache
from pathlib import Path

from odradek.client.settings import Store, TlsSettings

TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@lru_cache(maxsize=16)
def client_context(tls: TlsSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.minimum_version = TLS_VERSIONS[tls.oldest_version]
    context.check_hostname = tls.check_hostname
    if tls.trust is not None:
        context = _trusting(tls.trust, context)
    if tls.identity is not None:
        _load_identity(context, tls.identity)
    return context


def _trusting(trust: Store, like: ssl.SSLContext) -> ssl.SSLContext:
    """A context that trusts only the store."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = like.minimum_version
    context.check_hostname = like.check_hostname
    if trust.certificates is not None:
        certificates = trust.certificates
    elif trust.kind == "PKCS12":
        certificates = _pem_of_pkcs12(trust)[0]
    else:
        certificates = _text_of(trust)
    context.load_verify_locations(cadata=certificates)
    return context


def _load_identity(context: ssl.SSLContext, identity: Store) -> None:
    if identity.kind == "PKCS12":
        certificates, key = _pem_of_pkcs12(identity)
        password = None
    else:
        certificates = identity.certificates or _text_of(identity)
        key = identity.key or ""
        password = identity.key_password or identity.password
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{key}\n{certificates}\n")
        file.flush()
        context.load_cert_chain(file.name, password=password or "")


def _text_of(store: Store) -> str:
    assert store.location is not None
    return Path(store.location).read_text()


def _pem_of_pkcs12(store: Store) -> tuple[str, str]:
    """The certificates and the key in it, the key no longer encrypted."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    assert store.location is not None
    password = store.password.encode() if store.password else None
    content = pkcs12.load_pkcs12(Path(store.location).read_bytes(), password)
    entries = [content.cert, *content.additional_certs]
    pem = "".join(entry.certificate.public_bytes(Encoding.PEM).decode() for entry in entries if entry)
    if content.key is None:
        return pem, ""
    key = content.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem, key.decode()
