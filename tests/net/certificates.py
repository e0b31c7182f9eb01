"""Certificates for tests, made once: of a server and a client, and of others that must not be let in."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOCAL: list[x509.GeneralName] = [
    x509.DNSName("localhost"),
    x509.IPAddress(IPv4Address("127.0.0.1")),
    x509.IPAddress(IPv6Address("::1")),
]
ELSEWHERE: list[x509.GeneralName] = [x509.DNSName("elsewhere.example")]


class Authority:
    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.path = directory / f"{name}.pem"
        certificate = (
            _builder(self._name, self._name, self._key, timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, hosts: list[x509.GeneralName], valid_for: timedelta = timedelta(days=1)
    ) -> Path:
        """A file with a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._name, key, valid_for)
        certificate = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False).sign(
            self._key, hashes.SHA256()
        )
        path = self._directory / f"{name}.pem"
        path.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return path


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, valid_for: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + valid_for)
    )


class Certificates:
    def __init__(self, directory: Path) -> None:
        ours, strange = Authority(directory, "authority"), Authority(directory, "strange-authority")
        self.authority, self.strange_authority = ours.path, strange.path
        self.server = ours.issue("server", LOCAL)
        self.client = ours.issue("client", LOCAL)
        self.other_host = ours.issue("other-host", ELSEWHERE)
        self.expired = ours.issue("expired", LOCAL, timedelta(days=-1))
        self.stranger = strange.issue("stranger", LOCAL)

    def server_context(self, identity: Path | None = None, wants_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        context.load_cert_chain(identity or self.server)
        if wants_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.authority)
        return context

    def client_context(self, identity: Path | None = None, authority: Path | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(authority or self.authority)
        if identity is not None:
            context.load_cert_chain(identity)
        return context
