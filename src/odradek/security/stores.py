"""Keys and certificates as settings name them: PEM files, PEM text, PKCS12 files. All of them become PEM.

OpenSSL takes a certificate and its key only from files. Text, and what was in a PKCS12 file, is put into memory that
has a descriptor but no name on any disk. Java's own format, JKS, is refused with the command that converts it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

KINDS = ("PEM", "PKCS12")
PKCS12_SUFFIXES = (".p12", ".pfx")
JKS_MAGIC = bytes.fromhex("feedfeed")


class BadStore(ValueError):
    """A store that cannot be used. The message names the file, never a secret."""


@dataclass(frozen=True, slots=True)
class Store:
    """Certificates, and perhaps a key: a PEM or PKCS12 file, or PEM text."""

    kind: str = "PEM"
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    def fingerprint(self) -> tuple[int, ...] | None:
        """It changes when the file does; None without a file, or while there is none."""
        if self.location is None:
            return None
        try:
            status = os.stat(self.location)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


class Pem(NamedTuple):
    certificates: str
    key: str = ""
    password: str | None = None  # of the key

    def __repr__(self) -> str:
        return "Pem([hidden])"


def jks_refusal(location: str | None) -> str:
    return (
        f"JKS stores cannot be read; convert it with 'keytool -importkeystore -srckeystore {location or 'FILE'} "
        "-destkeystore store.p12 -deststoretype PKCS12' and set the type to PKCS12"
    )


def store_kind(kind: str | None, location: str | None, has_text: bool) -> str:
    """The kind that is meant; without a type, text is PEM, and Java looks into files. Raises BadStore."""
    if kind is None:
        is_pkcs12 = location is not None and location.lower().endswith(PKCS12_SUFFIXES)
        kind = "PKCS12" if is_pkcs12 else "PEM" if has_text or _begins_as_pem(location) else "JKS"
    elif kind.upper() == "JKS" and location is not None and location.lower().endswith(PKCS12_SUFFIXES):
        kind = "PKCS12"  # as Java finds out by looking
    if kind.upper() == "JKS":
        raise BadStore(jks_refusal(location))
    if kind.upper() not in KINDS:
        raise BadStore(f"stores of type {kind} cannot be read, only PEM and PKCS12")
    return kind.upper()


def _begins_as_pem(location: str | None) -> bool:
    if location is None:
        return False
    try:
        return b"-----BEGIN " in Path(location).read_bytes()
    except OSError:
        return False


def read_store(store: Store) -> Pem:
    """Blocks. Raises BadStore."""
    if store.kind == "PKCS12":
        return _read_pkcs12(store)
    if store.certificates is not None:
        return Pem(store.certificates, store.key or "", store.key_password)
    text = _read_file(store)
    if text.startswith(JKS_MAGIC):
        raise BadStore(jks_refusal(store.location))
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise BadStore(f"{store.location} is not PEM") from None
    return Pem(decoded, store.key or "", store.key_password or store.password)


def _read_file(store: Store) -> bytes:
    assert store.location is not None
    try:
        return Path(store.location).read_bytes()
    except OSError as error:
        raise BadStore(f"{store.location} cannot be read: {error.strerror}") from None


def _read_pkcs12(store: Store) -> Pem:
    """The certificates and the key in it, the key no longer encrypted: it stays in memory."""
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError:
        raise BadStore(
            f"{store.location}: PKCS12 needs the package cryptography; "
            "run pip install '.[security]' in a clone of Odradek"
        ) from None
    data = _read_file(store)
    if data.startswith(JKS_MAGIC):
        raise BadStore(jks_refusal(store.location))
    try:
        content = pkcs12.load_pkcs12(data, store.password.encode() if store.password else None)
    except ValueError:
        raise BadStore(f"{store.location} is not PKCS12, or the password is wrong") from None
    entries = [content.cert, *content.additional_certs]
    pem = "".join(entry.certificate.public_bytes(Encoding.PEM).decode() for entry in entries if entry)
    if content.key is None:
        return Pem(pem)
    key = content.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Pem(pem, key.decode())


@contextmanager
def as_file(pem: Pem) -> Iterator[str]:
    """A path from which the key and certificates can be read, as long as the context lasts."""
    text = f"{pem.key}\n{pem.certificates}\n".encode()
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, text)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:  # macOS and Windows have no files in memory; this one only we can read
        import tempfile

        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(text)
            file.flush()
            yield file.name
