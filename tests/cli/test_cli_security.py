"""`odradek user` and `odradek certificates`."""

import json
import stat

import pytest

from odradek.security.contexts import server_context
from odradek.security.stores import Store
from odradek.security.tls_settings import TlsSettings
from tests.security_cluster import PASSWORDS, configured_broker, users
from tests.support import run_command


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users(),
    }
    directory = tmp_path_factory.mktemp("users")
    with configured_broker(directory, settings) as running:
        (directory / "admin.properties").write_text(login(running, "PLAIN", "admin", PASSWORDS["admin"]))
        running.admin = str(directory / "admin.properties")
        yield running


def login(broker, mechanism, user, password):
    return (
        f"bootstrap.servers={broker.bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config=Login required username="{user}" password="{password}";\n'
    )


def test_a_user_is_added_listed_and_removed(broker, tmp_path):
    admin = ["--command-config", broker.admin]
    (tmp_path / "password").write_text("wörd 1\nnot this\n")
    added = run_command("user", "add", "eve", "--password-file", str(tmp_path / "password"), *admin)
    assert added.returncode == 0, added.stderr
    assert added.stdout == "User eve logs in with SCRAM-SHA-512.\n"
    listed = run_command("user", "list", "--json", *admin)
    assert json.loads(listed.stdout) == [{"user": "eve", "mechanism": "SCRAM-SHA-512", "iterations": 4096}]
    own = tmp_path / "eve.properties"
    own.write_text(login(broker, "SCRAM-SHA-512", "eve", "wörd 1"))
    assert run_command("user", "list", "--command-config", str(own)).stdout.splitlines()[1].startswith("eve")
    assert run_command("topic", "list", "--command-config", str(own)).returncode == 0
    removed = run_command("user", "remove", "eve", "--yes", *admin)
    assert removed.stdout == "Removed user eve.\n", removed.stderr
    refused = run_command("user", "list", "--command-config", str(own))
    assert refused.returncode == 1 and "Authentication failed" in refused.stderr
    assert (
        run_command("user", "remove", "eve", "--yes", *admin).stderr.strip().endswith("there is no user eve")
    )


def test_a_password_is_never_an_argument(broker):
    admin = ["--command-config", broker.admin]
    assert run_command("user", "add", "eve", "--password", "x", *admin).returncode == 2
    from_environment = run_command("user", "add", "eve", *admin, environ={"ODRADEK_USER_PASSWORD": "secret"})
    assert from_environment.returncode == 0, from_environment.stderr
    assert run_command("user", "remove", "eve", "--yes", *admin).returncode == 0


def test_certificates_are_made_for_brokers_and_clients(tmp_path):
    directory = tmp_path / "certificates"
    where = ["--dir", str(directory)]
    missing = run_command("certificates", "broker", "broker-1", *where)
    assert missing.returncode == 1 and "run 'odradek certificates authority' first" in missing.stderr
    assert run_command("certificates", "authority", *where).returncode == 0
    made = run_command("certificates", "broker", "broker-1", "--host", "kafka.example", *where)
    assert f"ssl.keystore.location={directory}/broker-1.pem" in made.stdout, made.stderr
    assert run_command("certificates", "client", "ada", *where).returncode == 0
    for path in directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = run_command("certificates", "authority", *where)
    assert again.returncode == 1 and "exists already" in again.stderr
    server_context(TlsSettings(identity=Store(location=str(directory / "broker-1.pem"))))
    assert run_command("certificates", "client", "../x", *where).returncode == 2


# --- the first users of a cluster ---


SALTED = "c2FsdGVk" * 8  # base64 of 48 bytes: too few for SHA-512


def formatted(tmp_path, *scram, environ=None):
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=SASL_PLAINTEXT://localhost:0\nsecurity.inter.broker.protocol=SASL_PLAINTEXT\n"
        "sasl.enabled.mechanisms=SCRAM-SHA-512\nsasl.mechanism.inter.broker.protocol=SCRAM-SHA-512\n"
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram."
        'ScramLoginModule required username="root" password="secret";\n'
        f"log.dirs={tmp_path}/data\n"
    )
    options = [part for text in scram for part in ("--add-scram", text)]
    return file, run_command("format", "-c", str(file), *options, environ=environ)


def test_a_cluster_begins_with_the_users_it_was_formatted_with(tmp_path):
    (tmp_path / "password").write_text("secret\n")
    file, done = formatted(
        tmp_path, f"SCRAM-SHA-512=[name=root,password-file={tmp_path}/password,iterations=8192]"
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    settings = dict(line.split("=", 1) for line in file.read_text().splitlines())
    with configured_broker(tmp_path, settings) as running:
        own = tmp_path / "root.properties"
        own.write_text(login(running, "SCRAM-SHA-512", "root", "secret"))
        listed = run_command("user", "list", "--json", "--command-config", str(own))
        assert json.loads(listed.stdout) == [
            {"user": "root", "mechanism": "SCRAM-SHA-512", "iterations": 8192}
        ], listed.stderr


def test_kafkas_syntax_is_understood_and_an_open_password_is_warned_about(tmp_path):
    _, done = formatted(tmp_path, "SCRAM-SHA-256=[name=ada,password=hunter2]")
    assert (
        done.returncode == 0 and "can be read by every user" in done.stderr and "hunter2" not in done.stderr
    )
    _, again = formatted(tmp_path, "SCRAM-SHA-256=[name=ada,password=hunter2]")
    assert again.returncode == 1


@pytest.mark.parametrize(
    ("scram", "said"),
    [
        ("PLAIN=[name=ada]", "must begin with SCRAM-SHA-256 or"),
        ("SCRAM-SHA-512=name=ada", "in brackets"),
        ("SCRAM-SHA-512=[password=hunter2]", "it has no name"),
        ("SCRAM-SHA-512=[name=ada,pass=hunter2]", "with the names name, password"),
        ("SCRAM-SHA-512=[name=ada,password=hunter2,iterations=1]", "from 4096 to 16384"),
        ("SCRAM-SHA-512=[name=ada,saltedpassword=hunter2]", "needs the salt"),
        (f"SCRAM-SHA-512=[name=ada,salt=c2FsdA==,saltedpassword={SALTED}]", "must have 64 bytes"),
        ("SCRAM-SHA-512=[name=ada,password-env=NO_SUCH_VARIABLE]", "is not set"),
        ("SCRAM-SHA-512=[name=ada,password-file=/no/such]", "cannot be read"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_without_its_secrets(tmp_path, scram, said):
    _, done = formatted(tmp_path, scram)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "hunter2" not in done.stderr and not (tmp_path / "data" / "meta.properties").exists()
