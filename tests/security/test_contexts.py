"""Key stores and SSL contexts: handshakes in memory, without a socket."""

import os
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from odradek.security.authority import Issued, load_authority, new_authority
from odradek.security.ciphers import TLS_1_3
from odradek.security.contexts import ContextSource, client_context, server_context
from odradek.security.names import subject_of
from odradek.security.stores import BadStore, Store, read_store, store_kind
from odradek.security.tls_settings import TlsSettings

NOW = datetime.now(UTC)
AUTHORITY = new_authority("authority", NOW)
OTHER = new_authority("other", NOW)
BROKER = AUTHORITY.issue("broker", ["localhost", "127.0.0.1"], NOW)
CLIENT = AUTHORITY.issue("ada", [], NOW, organization="ops")
TRUST = Store(certificates=AUTHORITY.pem.certificate)


def text_store(issued: Issued) -> Store:
    return Store(certificates=issued.certificate, key=issued.key)


SERVER = TlsSettings(identity=text_store(BROKER), trust=TRUST)
TRUSTING = TlsSettings(trust=TRUST)


def shake_hands(server, client, host="localhost"):
    """The two ends after their handshake, or the first error of either."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(20):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
        if not waiting:
            break
    for end in ends:  # in TLS 1.3 a server refuses a client's certificate after the client is done
        try:
            end.read(1)
        except ssl.SSLWantReadError:
            pass
    return ends


def ends_of(server=SERVER, client=TRUSTING, host="localhost"):
    return shake_hands(server_context(server), client_context(client), host)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_that_trusts_the_authority_is_connected(host, version):
    ours = TlsSettings(trust=TRUST, oldest_version=version, newest_version=version)
    client, _ = ends_of(client=ours, host=host)
    assert client.version() == version


def test_a_wrong_host_is_refused_unless_hostnames_are_not_checked():
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        ends_of(host="elsewhere")
    ends_of(client=TlsSettings(trust=TRUST, check_hostname=False), host="elsewhere")


def test_an_unknown_authority_is_refused():
    with pytest.raises(ssl.SSLCertVerificationError):
        ends_of(client=TlsSettings(trust=Store(certificates=OTHER.pem.certificate)))


def test_an_expired_certificate_is_refused():
    old = AUTHORITY.issue("broker", ["localhost"], NOW - timedelta(days=10), days=5)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        ends_of(TlsSettings(identity=text_store(old)))


def test_tls_1_1_is_refused():
    client = client_context(TRUSTING)
    client.set_ciphers("ALL:@SECLEVEL=0")
    client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        shake_hands(server_context(SERVER), client)


def test_a_required_certificate_is_required_and_names_the_client():
    strict = TlsSettings(identity=text_store(BROKER), trust=TRUST, client_authentication="required")
    _, server = ends_of(strict, TlsSettings(trust=TRUST, identity=text_store(CLIENT)))
    assert subject_of(server.getpeercert(binary_form=True)) == "CN=ada,O=ops"
    with pytest.raises(ssl.SSLError):
        ends_of(strict)
    stranger = text_store(OTHER.issue("ada", [], NOW))
    with pytest.raises(ssl.SSLError):
        ends_of(strict, TlsSettings(trust=TRUST, identity=stranger))


def test_a_requested_certificate_may_be_missing_but_not_wrong():
    asking = TlsSettings(identity=text_store(BROKER), trust=TRUST, client_authentication="requested")
    _, server = ends_of(asking)
    assert server.getpeercert(binary_form=True) is None
    with pytest.raises(ssl.SSLError):
        ends_of(asking, TlsSettings(trust=TRUST, identity=text_store(OTHER.issue("ada", [], NOW))))


def test_clients_are_not_authenticated_by_nobodys_authority():
    with pytest.raises(BadStore, match=r"set ssl\.truststore\.location"):
        server_context(TlsSettings(identity=text_store(BROKER), client_authentication="required"))
    with pytest.raises(BadStore, match=r"set ssl\.keystore\.location"):
        server_context(TRUSTING)


def test_a_server_does_not_renegotiate_and_gives_no_tickets():
    context = server_context(SERVER)
    assert context.options & ssl.OP_NO_RENEGOTIATION and context.options & ssl.OP_NO_TICKET
    assert context.num_tickets == 0


# --- stores ---


def pkcs12_file(path, issued, password="pw"):
    key = load_pem_private_key(issued.key.encode(), None)
    certificate = x509.load_pem_x509_certificate(issued.certificate.encode())
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"x", key, certificate, None, BestAvailableEncryption(password.encode())
        )
    )
    return Store("PKCS12", str(path), password)


def test_files_of_each_kind_can_be_used_and_leave_nothing_behind(tmp_path, monkeypatch):
    together = tmp_path / "broker.pem"
    together.write_text(BROKER.certificate + BROKER.key)
    locked_key = load_pem_private_key(BROKER.key.encode(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pw")
    )
    locked = Store(certificates=BROKER.certificate, key=locked_key.decode(), key_password="pw")
    p12 = pkcs12_file(tmp_path / "broker.p12", BROKER)
    before = sorted(tmp_path.iterdir()), len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr("tempfile.NamedTemporaryFile", None)  # no file but those there are
    for identity in (Store(location=str(together)), locked, p12):
        ends_of(TlsSettings(identity=identity))
    assert (sorted(tmp_path.iterdir()), len(os.listdir("/proc/self/fd"))) == before


@pytest.mark.parametrize(
    ("store", "message"),
    [
        (Store(location="/nowhere/x.pem"), "cannot be read"),
        (Store("PKCS12", __file__, "hunter2"), "is not PKCS12, or the password is wrong"),
        (Store(certificates=BROKER.certificate, key=CLIENT.key), "cannot be used"),
        (Store(certificates="nonsense", key="hunter2"), "cannot be used"),
    ],
)
def test_a_store_that_cannot_be_used_is_said_without_its_secrets(store, message):
    with pytest.raises(BadStore, match=message) as refused:
        server_context(TlsSettings(identity=store))
    assert "hunter2" not in str(refused.value) and "hunter2" not in repr(store)


def test_java_key_stores_are_refused_with_the_command_that_converts_them(tmp_path):
    path = tmp_path / "store"
    path.write_bytes(bytes.fromhex("feedfeed") + b"rest")
    for kind in ("PEM", "PKCS12"):
        with pytest.raises(BadStore, match=r"keytool -importkeystore -srckeystore .*store"):
            read_store(Store(kind, str(path)))
    with pytest.raises(BadStore, match="keytool"):
        store_kind("JKS", "store.jks", False)
    with pytest.raises(BadStore, match="BCFKS"):
        store_kind("BCFKS", "store", False)
    assert store_kind("JKS", "store.p12", False) == store_kind(None, "store.pfx", False) == "PKCS12"
    assert store_kind("pem", "x", False) == store_kind(None, None, True) == "PEM"


# --- cipher suites ---


def test_cipher_suites_have_javas_names():
    suites = ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)
    only = TlsSettings(
        trust=TRUST,
        identity=text_store(BROKER),
        ciphers=suites,
        oldest_version="TLSv1.2",
        newest_version="TLSv1.2",
    )
    client, _ = ends_of(only)
    assert client.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


@pytest.mark.parametrize(
    ("ciphers", "oldest", "message"),
    [
        (("TLS_RSA_WITH_RC4_128_MD5",), "TLSv1.2", "is not one of"),
        (("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",), "TLSv1.2", "cannot be chosen"),
        (TLS_1_3[:1], "TLSv1.3", "cannot be chosen"),
        (TLS_1_3, "TLSv1.2", "no suite of TLS 1.2"),
    ],
)
def test_a_list_of_suites_that_would_not_be_obeyed_is_refused(ciphers, oldest, message):
    with pytest.raises(BadStore, match=message):
        server_context(TlsSettings(identity=text_store(BROKER), ciphers=ciphers, oldest_version=oldest))


# --- change ---


def test_new_files_are_used_by_new_connections_and_bad_ones_are_not(tmp_path):
    path = tmp_path / "broker.pem"
    path.write_text(BROKER.certificate + BROKER.key)
    source = ContextSource(TlsSettings(identity=Store(location=str(path))), server_context)
    first = source.current
    assert not source.refresh() and source.current is first
    path.write_text("half written")
    with pytest.raises(BadStore):
        source.refresh()
    assert source.current is first and not source.refresh()
    other = OTHER.issue("broker", ["localhost"], NOW)
    path.write_text(other.certificate + other.key)
    assert source.refresh()
    shake_hands(source.current, client_context(TlsSettings(trust=Store(certificates=OTHER.pem.certificate))))
    shake_hands(first, client_context(TRUSTING))


def test_an_authority_is_loaded_from_its_files():
    again = load_authority(AUTHORITY.pem)
    ends_of(TlsSettings(identity=text_store(again.issue("broker", ["localhost"], NOW))))
    with pytest.raises(ValueError, match="does not belong"):
        load_authority(Issued(AUTHORITY.pem.certificate, OTHER.pem.key))
