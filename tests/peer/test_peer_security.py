"""Kafka's own tools, on the Java client, over TLS: with each mechanism, and with certificates alone."""

from pathlib import Path

import pytest

from odradek.testing import broker
from tests.peer.test_peer_tools import CONSUMER, PRODUCER, TOPICS
from tools.peer.kafka import run_tool

CONFIGS = "kafka.admin.ConfigCommand"
MECHANISMS = ["PLAIN", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def by_password(jars: Path):
    with broker(security="SASL_SSL") as kafka:
        yield kafka


@pytest.fixture(scope="module")
def by_certificate(jars: Path):
    with broker(security="SSL") as kafka:
        yield kafka


def file_of(login, directory: Path) -> str:
    file = directory / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in login.java.items()))
    return str(file)


def tool(main_class: str, *arguments: str, stdin: str = "") -> str:
    done = run_tool(main_class, *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def write_and_read(kafka, login, directory: Path) -> None:
    file, topic = file_of(login, directory), kafka.create_topic()
    server = ("--bootstrap-server", kafka.bootstrap)
    assert topic in tool(TOPICS, *server, "--command-config", file, "--list")
    tool(PRODUCER, *server, "--command-config", file, "--topic", topic, stdin="4 spools\n")
    reading = ("--topic", topic, "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000")
    assert tool(CONSUMER, *server, "--command-config", file, *reading).strip() == "4 spools"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_tools_log_in_over_tls(by_password, tmp_path, mechanism):
    write_and_read(by_password, by_password.login.by(mechanism), tmp_path)


def test_tools_show_a_certificate(by_certificate, tmp_path):
    write_and_read(by_certificate, by_certificate.login, tmp_path)


def test_kafkas_tool_makes_a_user_that_logs_in(by_password, tmp_path):
    file = file_of(by_password.login.by("PLAIN"), tmp_path)
    server = ("--bootstrap-server", by_password.bootstrap, "--command-config", file)
    user = ("--entity-type", "users", "--entity-name", "ada")
    tool(
        CONFIGS, *server, *user, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=secret]"
    )
    ada = by_password.login._replace(username="ada", password="secret")
    write_and_read(by_password, ada, tmp_path)


def test_a_wrong_password_is_told_so(by_password, tmp_path):
    wrong = by_password.login._replace(password="wrong")
    server = ("--bootstrap-server", by_password.bootstrap, "--command-config", file_of(wrong, tmp_path))
    done = run_tool(TOPICS, *server, "--list")
    assert done.returncode == 1
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in done.stdout + done.stderr
