"""`ssl.cipher.suites`: from Java's names to OpenSSL's.

Python cannot choose among the suites of TLS 1.3, so a list that leaves some of them out while TLS 1.3 is enabled is
refused: they would be used all the same.
"""

from collections.abc import Iterable

TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
# Only suites with forward secrecy and authenticated encryption.
TLS_1_2 = {
    f"TLS_{exchange}_{key}_WITH_{java}": f"{exchange}-{key}-{openssl}"
    for exchange, key in (("ECDHE", "ECDSA"), ("ECDHE", "RSA"), ("DHE", "RSA"))
    for java, openssl in (
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}


class BadCiphers(ValueError):
    """The list cannot be used; the message says why."""


def openssl_ciphers(names: Iterable[str], oldest_version: str, newest_version: str) -> str:
    """The suites of TLS 1.2, as OpenSSL wants them. Raises BadCiphers."""
    listed = list(names)
    unknown = [name for name in listed if name not in TLS_1_3 and name not in TLS_1_2]
    if unknown:
        raise BadCiphers(f"{', '.join(unknown)} is not one of {', '.join([*TLS_1_3, *TLS_1_2])}")
    missing = [name for name in TLS_1_3 if name not in listed]
    if newest_version == "TLSv1.3" and missing:
        raise BadCiphers(
            f"the suites of TLS 1.3 cannot be chosen: add {', '.join(missing)}, or set ssl.enabled.protocols=TLSv1.2"
        )
    older = [TLS_1_2[name] for name in listed if name in TLS_1_2]
    if oldest_version == "TLSv1.2" and not older:
        raise BadCiphers("no suite of TLS 1.2 is named: add one, or set ssl.enabled.protocols=TLSv1.3")
    return ":".join(
        older or TLS_1_2.values()
    )  # without TLS 1.2, OpenSSL still wants a list, and never uses it
