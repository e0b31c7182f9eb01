"""Proving who one is: SASL conversations as recorded from brokers, and TLS with real certificates."""

import base64
import contextlib
import datetime
import hashlib
import hmac
import ipaddress
import json
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from odradek.client.cluster import Cluster
from odradek.client.connection import Connection
from odradek.client.deadline import TimedOut
from odradek.client.sasl import start_authentication
from odradek.client.settings import ClientSettings, SaslSettings
from odradek.errors import ErrorCode, KafkaError
from odradek.security.stores import Store
from odradek.security.tls_settings import TlsSettings
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.client.scripted_broker import (
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    ScriptedBroker,
    metadata_of,
)

SALT, ITERATIONS = b"some salt", 4096


def with_login(broker: ScriptedBroker, responses: list[SaslAuthenticateResponse]) -> None:
    broker.handlers[SASL_HANDSHAKE] = lambda request: SaslHandshakeResponse(mechanisms=["PLAIN"])
    broker.handlers[SASL_AUTHENTICATE] = lambda request: responses.pop(0)


def test_plain_sends_name_and_password_once():
    with ScriptedBroker() as broker:
        with_login(broker, [SaslAuthenticateResponse()])
        Connection("127.0.0.1", broker.port, broker.settings(sasl=SaslSettings("PLAIN", "ada", "secret")))
        (shake,), (login,) = (
            broker.requests_of(SaslHandshakeRequest),
            broker.requests_of(SaslAuthenticateRequest),
        )
        assert (shake.mechanism, login.auth_bytes) == ("PLAIN", b"\0ada\0secret")


def test_a_refused_login_is_no_reason_to_try_again():
    with ScriptedBroker() as broker:
        with_login(broker, [SaslAuthenticateResponse(error_code=58, error_message="Invalid credentials")])
        settings = broker.settings(sasl=SaslSettings("PLAIN", "ada", "wrong"))
        with pytest.raises(KafkaError, match="Invalid credentials"):
            Cluster(settings).topic_names()


def test_a_mechanism_that_is_not_offered_is_named():
    with ScriptedBroker() as broker:
        broker.handlers[SASL_AUTHENTICATE] = lambda request: None
        broker.handlers[SASL_HANDSHAKE] = lambda request: SaslHandshakeResponse(
            error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["SCRAM-SHA-512"]
        )
        settings = broker.settings(sasl=SaslSettings("PLAIN", "ada", "secret"))
        with pytest.raises(KafkaError, match=r"the broker offers SCRAM-SHA-512, not sasl\.mechanism PLAIN"):
            Connection("127.0.0.1", broker.port, settings)


@pytest.mark.parametrize("lists_handshake", [True, False])
def test_sasl_on_a_listener_without_it_is_said_at_once(lists_handshake):
    """Kafka's plaintext listeners know the request and refuse it; ours do not know it."""
    with ScriptedBroker() as broker:
        broker.handlers[METADATA] = metadata_of([broker], {})
        if lists_handshake:
            broker.handlers[SASL_HANDSHAKE] = lambda request: SaslHandshakeResponse(error_code=34)
        sasl = SaslSettings("PLAIN", "ada", "pw")
        with pytest.raises(KafkaError, match="has no SASL on this listener: set kafka"):
            Cluster(broker.settings(sasl=sasl)).topic_names()


@pytest.mark.parametrize("response", [b"", b"\x00\x00\x00\x05hello"])
def test_tls_on_a_listener_without_it_is_said(response):
    """Which takes the handshake for a frame that it cannot read."""

    def refuse() -> None:
        while True:
            with contextlib.suppress(OSError), listener.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(response)
                continue
            return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=refuse, daemon=True).start()
        settings = ClientSettings((listener.getsockname(),), tls=TlsSettings(), api_timeout_s=0.01)
        with pytest.raises(TimedOut, match="This listener does not seem to speak TLS"):
            Cluster(settings).topic_names()
        listener.shutdown(socket.SHUT_RDWR)


def test_a_session_that_is_about_to_end_is_not_used_again():
    with ScriptedBroker() as broker:
        broker.handlers[METADATA] = metadata_of([broker], {})
        with_login(broker, [SaslAuthenticateResponse(session_lifetime_ms=1), SaslAuthenticateResponse()])
        cluster = Cluster(broker.settings(sasl=SaslSettings("PLAIN", "ada", "secret")))
        cluster.topic_names()
        threading.Event().wait(0.01)  # the session's life is a fact of the clock
        cluster.topic_names()
        assert len(broker.requests_of(SaslAuthenticateRequest)) == 2


def scram_server(first: str, hash_name: str, password: str, nonce: str) -> tuple[str, "ScramEnd"]:
    client_nonce = first.split("r=")[1]
    server_first = f"r={client_nonce}{nonce},s={base64.b64encode(SALT).decode()},i={ITERATIONS}"
    return server_first, ScramEnd(first.removeprefix("n,,"), server_first, hash_name, password)


class ScramEnd:
    def __init__(self, client_first: str, server_first: str, hash_name: str, password: str) -> None:
        self.start, self.hash_name = f"{client_first},{server_first}", hash_name
        self.salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), SALT, ITERATIONS)

    def finish(self, client_final: str) -> tuple[bool, str]:
        """Returns True if the client proved the password, and the proof that we know it too."""
        without_proof, _, proof = client_final.partition(",p=")
        everything = f"{self.start},{without_proof}".encode()
        key = hmac.digest(self.salted, b"Client Key", self.hash_name)
        stored = hashlib.new(self.hash_name, key).digest()
        signature = hmac.digest(stored, everything, self.hash_name)
        right = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
        server_key = hmac.digest(self.salted, b"Server Key", self.hash_name)
        verifier = base64.b64encode(hmac.digest(server_key, everything, self.hash_name)).decode()
        return proof == right, f"v={verifier}"


@pytest.mark.parametrize(
    ("mechanism", "hash_name"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")]
)
def test_scram_proves_the_password_and_asks_for_a_proof(mechanism, hash_name):
    conversation = start_authentication(SaslSettings(mechanism, "a,d=a", "secret"))
    first = next(conversation).decode()
    assert first.startswith("n,,n=a=2Cd=3Da,r=")
    server_first, end = scram_server(first, hash_name, "secret", "more")
    proven, server_final = end.finish(conversation.send(server_first.encode()).decode())
    assert proven
    with pytest.raises(StopIteration):
        conversation.send(server_final.encode())


def test_scram_does_not_believe_a_broker_that_cannot_know_the_password():
    conversation = start_authentication(SaslSettings("SCRAM-SHA-256", "ada", "secret"))
    server_first, end = scram_server(next(conversation).decode(), "sha256", "another", "more")
    _, server_final = end.finish(conversation.send(server_first.encode()).decode())
    with pytest.raises(KafkaError, match="does not know the password"):
        conversation.send(server_final.encode())


@pytest.mark.parametrize(
    ("server_first", "message"),
    [("r=other,s=c2FsdA==,i=4096", "nonce"), ("r={nonce}x,s=c2FsdA==,i=1", "iterations")],
)
def test_scram_refuses_a_challenge_that_is_not_for_it(server_first, message):
    conversation = start_authentication(SaslSettings("SCRAM-SHA-256", "ada", "secret"))
    nonce = next(conversation).decode().split("r=")[1]
    with pytest.raises(KafkaError, match=message):
        conversation.send(server_first.replace("{nonce}", nonce).encode())


def test_oauthbearer_makes_an_unsecured_token_for_trials():
    settings = SaslSettings("OAUTHBEARER", unsecured_subject="ada", extensions=(("tenant", "x"),))
    conversation = start_authentication(settings)
    message = next(conversation).decode()
    start, token_part, extension = message.split("\x01")[:3]
    header, claims, signature = token_part.removeprefix("auth=Bearer ").split(".")
    assert (start, extension, signature) == ("n,,", "tenant=x", "")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"] == "ada"
    with pytest.raises(StopIteration):
        conversation.send(b"")


def test_oauthbearer_fetches_a_token_and_tells_why_it_was_refused():
    class TokenEndpoint(BaseHTTPRequestHandler):
        def do_POST(self):
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            TokenEndpoint.seen = (self.headers["Authorization"], form)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"access_token": "abc.def.ghi"}')

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), TokenEndpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/token"
        conversation = start_authentication(SaslSettings("OAUTHBEARER", "me", "pw", url, scope="kafka"))
        assert b"auth=Bearer abc.def.ghi\x01" in next(conversation)
        server.shutdown()
    basic = base64.b64encode(b"me:pw").decode()
    assert TokenEndpoint.seen == (f"Basic {basic}", "grant_type=client_credentials&scope=kafka")
    assert conversation.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(KafkaError, match="invalid_token"):
        conversation.send(b"")


class Certificates:
    """An authority, and certificates that it signed."""

    def __init__(self, directory):
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.authority = self._signed("authority", self.key, [], is_authority=True)

    def _signed(self, name, key, hosts, is_authority=False):
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = subject if is_authority else self.authority.subject
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def pem(self, certificate):
        return certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, name, hosts=()):
        key = ec.generate_private_key(ec.SECP256R1())
        return key, self._signed(name, key, list(hosts))

    def key_pem(self, key):
        return key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()

    def pkcs12(self, name, key, certificate, authorities, password):
        data = pkcs12.serialize_key_and_certificates(
            b"x", key, certificate, authorities, serialization.BestAvailableEncryption(password.encode())
        )
        path = self.directory / name
        path.write_bytes(data)
        return str(path)


@pytest.fixture
def certificates(tmp_path):
    return Certificates(tmp_path)


def tls_broker(certificates, hosts, client_required=False):
    key, certificate = certificates.issue("broker", hosts)
    path = certificates.directory / "broker.pem"
    path.write_text(certificates.key_pem(key) + certificates.pem(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    if client_required:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=certificates.pem(certificates.authority))
    broker = ScriptedBroker(tls=context)
    broker.handlers[METADATA] = metadata_of([broker], {("t", 0): (1, 0)})
    return broker


def local_host():
    return [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]


def topics_with(broker, tls):
    return Cluster(broker.settings(tls=tls, api_timeout_s=0.5)).topic_names()


def test_tls_with_an_authority_as_text_file_and_pkcs12(certificates, tmp_path):
    pem = certificates.pem(certificates.authority)
    (tmp_path / "ca.pem").write_text(pem)
    p12 = certificates.pkcs12("ca.p12", None, None, [certificates.authority], "pw")
    with tls_broker(certificates, local_host()) as broker:
        for trust in (
            Store(certificates=pem),
            Store(location=str(tmp_path / "ca.pem")),
            Store("PKCS12", p12, "pw"),
        ):
            assert topics_with(broker, TlsSettings(trust)) == ["t"]


def test_tls_refuses_an_unknown_authority_and_a_wrong_host(certificates, tmp_path):
    other = Certificates(tmp_path)
    trust = Store(certificates=certificates.pem(certificates.authority))
    with tls_broker(certificates, [x509.DNSName("elsewhere.example")]) as broker:
        with pytest.raises(TimedOut, match="certificate verify failed"):
            topics_with(broker, TlsSettings(Store(certificates=other.pem(other.authority))))
        with pytest.raises(TimedOut, match="IP address mismatch"):
            topics_with(broker, TlsSettings(trust))
        assert topics_with(broker, TlsSettings(trust, check_hostname=False)) == ["t"]


def test_mutual_tls_with_pem_text_and_pkcs12(certificates):
    trust = Store(certificates=certificates.pem(certificates.authority))
    key, certificate = certificates.issue("client")
    text = Store(certificates=certificates.pem(certificate), key=certificates.key_pem(key))
    p12 = certificates.pkcs12("client.p12", key, certificate, None, "pw")
    with tls_broker(certificates, local_host(), client_required=True) as broker:
        assert topics_with(broker, TlsSettings(trust, text)) == ["t"]
        assert topics_with(broker, TlsSettings(trust, Store("PKCS12", p12, "pw"))) == ["t"]
        with pytest.raises(TimedOut):
            topics_with(broker, TlsSettings(trust))


def test_secrets_are_not_in_what_settings_print():
    text = repr(
        (
            SaslSettings("PLAIN", "ada", "hunter2"),
            Store("PEM", None, "hunter2", "hunter2", "hunter2", "hunter2"),
        )
    )
    assert "hunter2" not in text
