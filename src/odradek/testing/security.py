"""TLS and SASL for brokers of tests: an authority, certificates, a user, and the settings of clients that log in.

    with broker(security="SASL_SSL") as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, **kafka.login.librdkafka})

Clients log in as `admin` with SCRAM or PLAIN, or show a certificate (`security="SSL"`). Brokers do the same to each
other, with PLAIN, because its users are known before there is a cluster; controllers show certificates. Everything is
made anew for each broker or cluster, and passwords are in files that only their owner can read.
"""

import os
import secrets
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.security.jaas import PLAIN as PLAIN_MODULE
from odradek.security.jaas import SCRAM as SCRAM_MODULE
from odradek.testing.patience import until

if TYPE_CHECKING:
    from odradek.client.settings import ClientSettings
    from odradek.security.authority import Authority

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN, SCRAM = "PLAIN", "SCRAM-SHA-512"
ADMIN = "admin"
HOSTS = ("localhost", "127.0.0.1", "::1")
CONTROLLER = "CONTROLLER"
PATIENCE_S = 60.0


class Login(NamedTuple):
    """Settings with which a client connects: the same ones by the names of several clients."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    password: str = ""
    ca_file: str = ""
    certificate_file: str = ""  # with its key

    def __repr__(self) -> str:
        return f"<login {self.protocol} {self.mechanism} {self.username}>"

    def by(self, mechanism: str) -> "Login":
        """The same user by another mechanism."""
        return self._replace(mechanism=mechanism)

    @property
    def java(self) -> dict[str, str]:
        """Settings for Java's clients and tools, Spark, and `odradek --command-config`."""
        settings = {"security.protocol": self.protocol}
        if self.ca_file:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca_file}
        if self.certificate_file:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.certificate_file}
        if self.mechanism:
            module = PLAIN_MODULE if self.mechanism == PLAIN else SCRAM_MODULE
            settings["sasl.mechanism"] = self.mechanism
            settings["sasl.jaas.config"] = (
                f'{module} required username="{self.username}" password="{self.password}";'
            )
        return settings

    @property
    def librdkafka(self) -> dict[str, str]:
        """Settings for confluent-kafka, kcat and other clients on librdkafka."""
        settings = {"security.protocol": self.protocol}
        if self.ca_file:
            settings["ssl.ca.location"] = self.ca_file
        if self.certificate_file:
            settings |= {
                "ssl.certificate.location": self.certificate_file,
                "ssl.key.location": self.certificate_file,
            }
        if self.mechanism:
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.username,
                "sasl.password": self.password,
            }
        return settings

    @property
    def python(self) -> dict[str, Any]:
        """Settings for aiokafka and kafka-python."""
        settings: dict[str, Any] = {"security_protocol": self.protocol}
        if self.ca_file:
            import ssl

            context = settings["ssl_context"] = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file:
                context.load_cert_chain(self.certificate_file)
        if self.mechanism:
            settings |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        return settings

    def client_settings(self, bootstrap: str) -> "ClientSettings":
        """Return the settings for our own client."""
        from odradek.client.properties import parse_properties

        return parse_properties({"bootstrap.servers": bootstrap, **self.java}).client


EVERYBODY = Login()


class Security:
    """The settings by which the brokers of a test know who connects, and who they are themselves."""

    def __init__(self, protocol: str) -> None:
        """Raises ValueError for a protocol that does not exist."""
        if protocol not in PROTOCOLS:
            raise ValueError(f"security={protocol!r} is not one of {', '.join(PROTOCOLS)}")
        self.protocol = protocol
        self.login = EVERYBODY
        self._directory: Path | None = None
        self._authority: Authority | None = None
        self._has_admin = False
        if protocol != "PLAINTEXT":
            self._directory = Path(tempfile.mkdtemp(prefix="odradek-"))
            self.login = self._new_login()

    @property
    def has_users(self) -> bool:
        return bool(self.login.mechanism)

    def _new_login(self) -> Login:
        login = Login(self.protocol)
        if self.protocol.startswith("SASL_"):
            login = login._replace(mechanism=SCRAM, username=ADMIN, password=secrets.token_urlsafe(16))
        from odradek.security.authority import new_authority

        self._authority = new_authority("Odradek test authority", datetime.now(UTC))
        authority_file = self._write("ca.pem", self._authority.pem.certificate)
        if self.protocol.endswith("SSL"):
            login = login._replace(ca_file=authority_file)
        if self.protocol == "SSL":
            login = login._replace(certificate_file=self.issue(ADMIN, ()))
        return login

    def issue(self, name: str, hosts: tuple[str, ...] = HOSTS) -> str:
        """A file with a certificate and its key; an existing one is replaced."""
        assert self._authority is not None
        issued = self._authority.issue(name, hosts, datetime.now(UTC))
        return self._write(f"{name}.pem", f"{issued.key}{issued.certificate}")

    def _write(self, name: str, text: str) -> str:
        """Whole or not at all: a broker may read it at any time."""
        assert self._directory is not None
        path, part = self._directory / name, self._directory / f"{name}.part"
        with open(part, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(text)
        os.replace(part, path)
        return str(path)

    def settings_of(self, node: str, *, is_controller: bool = False) -> dict[str, str]:
        """Return the settings of a broker, besides its listeners. A controller has a listener for other nodes."""
        if self._directory is None:
            return {}
        name = self.protocol
        settings = {"listener.security.protocol.map": f"{name}:{name}", "inter.broker.listener.name": name}
        if is_controller:
            settings["listener.security.protocol.map"] += f",{CONTROLLER}:SSL"
            settings[f"listener.name.{CONTROLLER.lower()}.ssl.client.auth"] = "required"
        if is_controller or name.endswith("SSL"):
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self._certificate_of(node),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self._directory / "ca.pem"),
            }
        if name == "SSL":
            settings["ssl.client.auth"] = "required"
        return settings | (self._sasl_settings() if self.has_users else {})

    def _certificate_of(self, node: str) -> str:
        assert self._directory is not None
        path = self._directory / f"{node}.pem"
        return str(path) if path.exists() else self.issue(node)

    def _sasl_settings(self) -> dict[str, str]:
        password = self.login.password
        return {
            "sasl.enabled.mechanisms": f"{PLAIN},{SCRAM}",
            "sasl.mechanism.inter.broker.protocol": PLAIN,
            f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config": (
                f'{PLAIN_MODULE} required username="{ADMIN}" password="{password}" user_{ADMIN}="{password}";'
            ),
        }

    # --- users ---

    def await_users(self, bootstrap: str) -> None:
        """Add the user `admin` to a new cluster, and wait until this broker knows it."""
        if not self.has_users:
            return
        if not self._has_admin:
            self.set_password(bootstrap, ADMIN, self.login.password)
            self._has_admin = True
        self.await_login(bootstrap, self.login)

    def set_password(self, bootstrap: str, user: str, password: str) -> Login:
        """Add a user that logs in with SCRAM, or give it a new password, and wait until this broker knows it. Raises
        ValueError if clients show certificates, or nothing."""
        if not self.has_users:
            raise ValueError(f"security={self.protocol!r} has no users with passwords")
        from odradek.admin.access import Access
        from odradek.admin.users import set_password
        from odradek.security.credentials import DEFAULT_ITERATIONS

        cluster = Access(bootstrap, self.login.by(PLAIN).java)
        try:
            set_password(cluster, user, SCRAM, password, DEFAULT_ITERATIONS)
        finally:
            for kept in cluster.kept.values():
                kept.connection.close()
        login = self.login._replace(username=user, password=password)
        self.await_login(bootstrap, login)
        return login

    def await_login(self, bootstrap: str, login: Login) -> None:
        until(lambda: _lets_in(bootstrap, login), lambda: f"{bootstrap} knows {login}", PATIENCE_S)

    def close(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


def _lets_in(bootstrap: str, login: Login) -> bool | None:
    from odradek.errors import KafkaError
    from odradek.testing.asking import ask
    from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

    try:
        ask(bootstrap, ApiVersionsRequest(), ApiVersionsResponse, login=login)
    except KafkaError:
        return None
    return True
