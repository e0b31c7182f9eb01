"""kafkajs and franz-go over SASL_SSL, with each mechanism, and with certificates alone."""

import os
import subprocess
import uuid

import pytest

from odradek.testing import broker
from tests.real_clients.adapters import Kafkajs
from tests.real_clients.test_franz_go import PROGRAM, TIMEOUT_S

MECHANISMS = ["PLAIN", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def by_password():
    with broker(security="SASL_SSL") as kafka:
        yield kafka


@pytest.fixture(scope="module")
def by_certificate():
    with broker(security="SSL") as kafka:
        yield kafka


def kafkajs(kafka, login):
    client, topic = Kafkajs(), kafka.create_topic()
    client.check_installed()
    told = {
        "ca": login.ca_file,
        "certificate": login.certificate_file or None,
        "mechanism": login.mechanism.lower() or None,
        "username": login.username,
        "password": login.password,
    }
    message = {"key": None, "value": "4 spools", "headers": {}}
    client.run(
        "produce",
        bootstrap=kafka.bootstrap,
        topic=topic,
        gzip=False,
        acks=-1,
        messages=[message],
        protected=told,
    )
    found = client.run(
        *("consume",),
        bootstrap=kafka.bootstrap,
        topic=topic,
        count=1,
        offset=0,
        timestamp=None,
        protected=told,
    )
    assert [one["value"] for one in found] == ["4 spools"]


def franz(kafka, login):
    if not PROGRAM.exists():
        pytest.skip("franz-go is not built: make franz-go")
    environ = {
        **os.environ,
        "CA": login.ca_file,
        "CERTIFICATE": login.certificate_file,
        "MECHANISM": login.mechanism,
        "USERNAME": login.username,
        "PASSWORD": login.password,
    }
    topic = kafka.create_topic()
    command = [PROGRAM, "roundtrip", kafka.bootstrap, topic, uuid.uuid4().hex]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.stdout.strip() == command[-1], done.stderr


@pytest.mark.parametrize("client", [kafkajs, franz])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_logs_in_over_tls(by_password, client, mechanism):
    client(by_password, by_password.login.by(mechanism))


@pytest.mark.parametrize("client", [kafkajs, franz])
def test_a_client_shows_its_certificate(by_certificate, client):
    client(by_certificate, by_certificate.login)
