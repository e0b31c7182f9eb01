"""TLS to Apache Kafka, with the options that the JVM connector takes, on it and on ours.

The authority and the certificates are made here; the stores of kind PKCS12 by `keytool`, as people make them.
"""

import datetime
import ipaddress
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from tools.peer.kafka import KafkaPeer

PASSWORD = "hunter22"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required "
FORMATS = ("kafka", "odradek")


class Stores:
    """An authority, and for broker and client a certificate of it: as PEM files and as PKCS12."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._authority = self._certificate("authority", self._key, is_authority=True)
        self.path("authority.pem").write_bytes(self._authority.public_bytes(serialization.Encoding.PEM))
        for name in ("broker", "client"):
            self._issue(name)
        self._keytool_truststore("authority")

    def path(self, name: str) -> Path:
        return self.directory / name

    def _certificate(self, name: str, key, *, is_authority: bool = False) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = x509.CertificateBuilder(subject_name=subject, public_key=key.public_key())
        builder = builder.issuer_name(subject if is_authority else self._authority.subject)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - day).not_valid_after(now + day)
        builder = builder.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        return builder.add_extension(address, critical=False).sign(self._key, hashes.SHA256())

    def _issue(self, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(name, key)
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        secret = serialization.BestAvailableEncryption(PASSWORD.encode())
        chain = certificate.public_bytes(pem)
        self.path(f"{name}.pem").write_bytes(
            key.private_bytes(pem, pkcs8, serialization.NoEncryption()) + chain
        )
        both = pkcs12.serialize_key_and_certificates(
            name.encode(), key, certificate, [self._authority], secret
        )
        self.path(f"{name}.p12").write_bytes(both)

    def _keytool_truststore(self, name: str) -> None:
        command = ["keytool", "-importcert", "-noprompt", "-alias", name, "-file", self.path(f"{name}.pem")]
        command += ["-keystore", self.path(f"{name}.p12"), "-storetype", "PKCS12", "-storepass", PASSWORD]
        subprocess.run(command, check=True, capture_output=True)

    def trusting(self, kind: str) -> dict[str, str]:
        return self._store("truststore", kind, "authority")

    def identity(self, kind: str) -> dict[str, str]:
        return self._store("keystore", kind, "client")

    def _store(self, store: str, kind: str, name: str) -> dict[str, str]:
        ending = {"PEM": "pem", "PKCS12": "p12"}[kind]
        given = {f"kafka.ssl.{store}.type": kind}
        given[f"kafka.ssl.{store}.location"] = str(self.path(f"{name}.{ending}"))
        return given if kind == "PEM" else given | {f"kafka.ssl.{store}.password": PASSWORD}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def guarded(session_settings, stores: Stores):
    """The listener SSL asks clients for a certificate, LOGIN for a password."""
    settings = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(stores.path("broker.p12")),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores.path("authority.pem")),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.login.scram-sha-512.sasl.jaas.config": SCRAM + ";",
    }
    with KafkaPeer("SSL", "LOGIN", **settings) as peer:
        from confluent_kafka.admin import (
            AdminClient,
            NewTopic,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        admin = AdminClient({"bootstrap.servers": peer.bootstrap})
        admin.create_topics([NewTopic("guarded", 1, 1)])["guarded"].result(30)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion("ada", info, b"secret")
        admin.alter_user_scram_credentials([change])["ada"].result(30)
        yield peer


PROTOCOLS = {"SSL": "SSL", "LOGIN": "SASL_SSL"}


def over(peer: KafkaPeer, listener: str) -> dict[str, str]:
    servers = {"kafka.bootstrap.servers": peer.bootstrap_of(listener)}
    return servers | {"kafka.security.protocol": PROTOCOLS[listener]}


def login(password: str) -> dict[str, str]:
    jaas = SCRAM + f'username="ada" password="{password}";'
    return {"kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.sasl.jaas.config": jaas}


def write_with_both_and_read_with_both(spark, given: dict[str, str], text: str) -> None:
    for name in FORMATS:
        frame = spark.createDataFrame([(f"{text} by {name}",)], "value string")
        frame.write.format(name).options(**given).option("topic", "guarded").mode("append").save()
    theirs, ours = (
        spark.read.format(name).options(**given).option("subscribe", "guarded").load().collect()
        for name in FORMATS
    )
    assert ours == theirs
    assert {f"{text} by {name}".encode() for name in FORMATS} <= {bytes(row.value) for row in ours}


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_certificates_of_both_ends(spark, guarded, stores, kind):
    given = over(guarded, "SSL") | stores.trusting(kind) | stores.identity(kind)
    write_with_both_and_read_with_both(spark, given, kind)


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_a_password_within_tls(spark, guarded, stores, kind):
    given = over(guarded, "LOGIN") | stores.trusting(kind) | login("secret")
    write_with_both_and_read_with_both(spark, given, f"SCRAM, {kind}")


def test_a_stream_over_tls(spark, guarded, stores, tmp_path):
    given = over(guarded, "SSL") | stores.trusting("PKCS12") | stores.identity("PKCS12")
    frame = spark.readStream.format("odradek").options(**given).option("subscribe", "guarded")
    writer = frame.option("startingOffsets", "earliest").load().select("value").writeStream.format("odradek")
    writer = writer.options(**given).option("topic", "copied").option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination()
    counts = [
        spark.read.format("odradek").options(**given).option("subscribe", topic).load().count()
        for topic in ("guarded", "copied")
    ]
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize(
    ("listener", "problem"), [("SSL", "no certificate of its own"), ("LOGIN", "nobody is trusted")]
)
def test_who_is_not_trusted_is_told_so_soon(spark, guarded, stores, listener, problem):
    given = over(guarded, listener) | {"kafka.default.api.timeout.ms": "2000"}
    given |= stores.trusting("PEM") if problem.startswith("no cert") else login("secret")
    with pytest.raises(Exception) as error:
        spark.read.format("odradek").options(**given).option("subscribe", "guarded").load().count()
    message = str(error.value)
    assert guarded.bootstrap_of(listener) in message and "certificate" in message.lower()
    assert PASSWORD not in message and "secret" not in message
