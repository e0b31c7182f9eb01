"""The additions of `odradek up --secure` to a cluster on one machine (`up_home`):

    DIR/security/ca.pem, ca.key, node-1.pem …    an authority, and the certificates of the nodes
    DIR/security/passwords.json                  of the users `admin` and `node`
    DIR/client.properties                        settings for clients, which `--command-config` takes

Clients and brokers connect with TLS and log in with SCRAM; controllers show their certificates. `admin` and the nodes
may do everything, everybody else what an ACL allows. All files can be read
by their owner only, and are made once: the first start writes the users into the metadata of the new cluster.
"""

import json
import os
import secrets
from pathlib import Path
from random import SystemRandom

from odradek.cli.certificates import AUTHORITY, issue, new_authority, write_secret
from odradek.cli.up_home import CONTROLLER_LISTENER
from odradek.cli.up_home import SECURE_LISTENER as LISTENER
from odradek.config.authorizer import STANDARD_AUTHORIZER
from odradek.config.sources import format_properties
from odradek.controller.requests.alter_user_scram_credentials import decoys_record
from odradek.metadata.records import MetadataRecord, UserScramCredentialRecord
from odradek.security.credentials import DEFAULT_ITERATIONS, SHA_512
from odradek.security.decoys import SALT_SIZE, new_salt
from odradek.security.jaas import SCRAM
from odradek.security.scram import credential_of, salt_password

DIRECTORY, PASSWORDS, CLIENT_FILE = "security", "passwords.json", "client.properties"
ADMIN, NODE = "admin", "node"
HOSTS = ["localhost", "127.0.0.1", "::1"]

GREETING = """\
Odradek {version} is up, with TLS, passwords and ACLs.

  listening on {bootstrap}
  data in {data_dir}
  client settings, with the password of user admin, in {client_file}

From a terminal:

  echo hello | odradek produce --command-config {client_file} greetings
  odradek consume --command-config {client_file} --from-beginning greetings
  odradek user add ada --command-config {client_file}
  odradek acl add --allow-principal User:ada --topic greetings --consumer --group '*' --command-config {client_file}

Stop with Ctrl-C.
"""


def is_secure(home: Path) -> bool:
    return (home / DIRECTORY / PASSWORDS).exists()


class Security:
    """The secrets of one cluster."""

    def __init__(self, home: Path, node_ids: list[int]) -> None:
        """Make what is missing of keys, certificates and passwords."""
        self._home, self._directory = home, home / DIRECTORY
        self._node_ids = node_ids
        self._directory.mkdir(mode=0o700, exist_ok=True)
        if not (self._directory / AUTHORITY).exists():
            new_authority(self._directory)
        for node_id in node_ids:
            if not self._certificate(node_id).exists():
                issue(self._directory, f"node-{node_id}", HOSTS)
        if not is_secure(home):
            made = {user: secrets.token_urlsafe(24) for user in (ADMIN, NODE)}
            write_secret(self._directory / PASSWORDS, json.dumps(made))
        self._passwords: dict[str, str] = json.loads((self._directory / PASSWORDS).read_text())

    def _certificate(self, node_id: int) -> Path:
        return self._directory / f"node-{node_id}.pem"

    def records(self) -> list[MetadataRecord]:
        """The users of a new cluster."""
        return [
            decoys_record(SystemRandom()),
            *(_user_record(name, word) for name, word in self._passwords.items()),
        ]

    def settings_of(self, node_id: int) -> dict[str, str]:
        """Return the settings of a node, besides its listeners."""
        return {
            "listener.security.protocol.map": f"{LISTENER}:SASL_SSL,{CONTROLLER_LISTENER}:SSL",
            "inter.broker.listener.name": LISTENER,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": ";".join([f"User:{ADMIN}", f"User:{NODE}", *map(_principal, self._node_ids)]),
            f"listener.name.{CONTROLLER_LISTENER.lower()}.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._certificate(node_id)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._directory / AUTHORITY),
            "sasl.enabled.mechanisms": SHA_512.name,
            "sasl.mechanism.inter.broker.protocol": SHA_512.name,
            f"listener.name.{LISTENER.lower()}.{SHA_512.name.lower()}.sasl.jaas.config": self._login(NODE),
        }

    def write_client_file(self, bootstrap: str) -> Path:
        """Write settings for clients, by the names that Java's and our tools know."""
        settings = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": SHA_512.name,
            "sasl.jaas.config": self._login(ADMIN),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._directory / AUTHORITY),
        }
        path = self._home / CLIENT_FILE
        path.unlink(missing_ok=True)
        write_secret(path, format_properties(settings))
        return path

    def _login(self, user: str) -> str:
        return f'{SCRAM} required username="{user}" password="{self._passwords[user]}";'


def _principal(node_id: int) -> str:
    """Return the principal of the certificate that a node shows to controllers."""
    return f"User:CN=node-{node_id}"


def _user_record(name: str, password: str) -> UserScramCredentialRecord:
    salt = new_salt(os.urandom(SALT_SIZE))
    salted = salt_password(SHA_512, password, salt, DEFAULT_ITERATIONS)
    return UserScramCredentialRecord(
        name, SHA_512.code, *credential_of(SHA_512, salted, salt, DEFAULT_ITERATIONS)
    )
