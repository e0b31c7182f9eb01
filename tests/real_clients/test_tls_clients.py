"""Real clients over TLS, with certificates and with passwords, and certificates that change while a broker runs."""

import asyncio
import dataclasses
import os
import shutil
import ssl
import subprocess
import uuid
from pathlib import Path

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from odradek.cli.certificates import issue, new_authority
from odradek.client.cluster import Cluster
from odradek.client.deadline import TimedOut
from odradek.client.properties import parse_properties
from odradek.security.jaas import PLAIN
from tests.processes.nodes import until
from tests.security_cluster import PASSWORDS, configured_broker, users


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    new_authority(directory)
    for name, hosts in (("broker", ["localhost", "127.0.0.1"]), ("ada", [])):
        issue(directory, name, hosts)
    return directory


@pytest.fixture(scope="module")
def broker(directory):
    settings = {
        "listeners": "CERTIFICATES://localhost:0,PASSWORDS://localhost:0",
        "listener.security.protocol.map": "CERTIFICATES:SSL,PASSWORDS:SASL_SSL",
        "inter.broker.listener.name": "PASSWORDS",
        "ssl.keystore.location": f"{directory}/broker.pem",
        "ssl.truststore.location": f"{directory}/ca.pem",
        "listener.name.certificates.ssl.client.auth": "required",
        "listener.name.passwords.plain.sasl.jaas.config": users(),
        "num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    with configured_broker(directory, settings) as running:
        yield running


def port_of(broker, listener):
    told = next(line for line in reversed(broker.log.splitlines()) if " started: " in line)
    return "localhost:" + told.split(f"{listener}://localhost:")[1].split(",")[0].strip().split()[0]


def with_certificate(broker, directory, name="ada"):
    return {
        "bootstrap.servers": port_of(broker, "CERTIFICATES"),
        "security.protocol": "SSL",
        "ssl.ca.location": f"{directory}/ca.pem",
        "ssl.certificate.location": f"{directory}/{name}.pem",
        "ssl.key.location": f"{directory}/{name}.pem",
    }


def with_password(broker, directory):
    return {
        "bootstrap.servers": port_of(broker, "PASSWORDS"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": PASSWORDS["ada"],
        "ssl.ca.location": f"{directory}/ca.pem",
    }


@pytest.mark.parametrize("settings_of", [with_certificate, with_password])
def test_confluent_kafka_produces_and_consumes(broker, directory, settings_of):
    topic, settings = f"t-{uuid.uuid4().hex[:8]}", settings_of(broker, directory)
    payload = os.urandom(500_000)
    producer = Producer(settings)
    producer.produce(topic, payload)
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    assert message is not None and message.value() == payload
    consumer.close()


def test_aiokafka_produces_with_a_password(broker, directory):
    async def scenario():
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=port_of(broker, "PASSWORDS"),
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=directory / "ca.pem"),
            sasl_mechanism="PLAIN",
            sasl_plain_username="ada",
            sasl_plain_password=PASSWORDS["ada"],
        )
        await producer.start()
        try:
            return await producer.send_and_wait(f"t-{uuid.uuid4().hex[:8]}", b"hello")
        finally:
            await producer.stop()

    assert asyncio.run(scenario()).offset == 0


def test_kafka_python_produces_with_a_certificate(broker, directory):
    producer = kafka.KafkaProducer(
        bootstrap_servers=port_of(broker, "CERTIFICATES"),
        security_protocol="SSL",
        ssl_cafile=f"{directory}/ca.pem",
        ssl_certfile=f"{directory}/ada.pem",
        ssl_keyfile=f"{directory}/ada.pem",
    )
    assert producer.send(f"t-{uuid.uuid4().hex[:8]}", b"hello").get(30).offset == 0
    producer.close()


@pytest.mark.parametrize("settings_of", [with_certificate, with_password])
def test_kcat_lists_topics(broker, directory, settings_of):
    settings = settings_of(broker, directory)
    address = settings.pop("bootstrap.servers")
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    done = subprocess.run(["kcat", "-L", "-b", address, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "1 brokers" in done.stdout, done.stderr


def own_settings(broker, directory, listener="PASSWORDS", **more):
    settings = {
        "bootstrap.servers": port_of(broker, listener),
        "security.protocol": "SASL_SSL" if listener == "PASSWORDS" else "SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="ada" password="{PASSWORDS["ada"]}";',
        "ssl.truststore.location": f"{directory}/ca.pem",
        **more,
    }
    return parse_properties(settings).client


def test_our_own_client_lists_topics(broker, directory):
    Cluster(own_settings(broker, directory)).topic_names()
    keystore = {"ssl.keystore.location": f"{directory}/ada.pem"}
    Cluster(own_settings(broker, directory, "CERTIFICATES", **keystore)).topic_names()


def impatient(settings):
    return dataclasses.replace(settings, api_timeout_s=0.5)


def test_a_client_without_a_certificate_is_refused(broker, directory):
    with pytest.raises(TimedOut):
        Cluster(impatient(own_settings(broker, directory, "CERTIFICATES"))).topic_names()
    line = "it shows no certificate, but ssl.client.auth requires one"
    until(lambda: line in broker.log, "the refusal is in the log")


def test_a_broker_whose_authority_is_not_known_is_refused(broker, tmp_path):
    new_authority(tmp_path)
    with pytest.raises(TimedOut, match="certificate verify failed"):
        Cluster(impatient(own_settings(broker, tmp_path))).topic_names()


def test_new_certificates_are_used_without_a_restart_and_connections_stay(broker, directory, tmp_path):
    producer = Producer(with_password(broker, directory))
    topic = f"t-{uuid.uuid4().hex[:8]}"
    producer.produce(topic, b"before")
    assert producer.flush(30) == 0
    issue_again = tmp_path / "again"
    issue_again.mkdir()
    shutil.copy(directory / "ca.pem", issue_again)
    shutil.copy(directory / "ca.key", issue_again)
    path = issue(issue_again, "broker", ["localhost", "renewed.example"])
    before = serial(broker)
    os.replace(path, directory / "broker.pem")
    while serial(broker) == before:  # the broker looks every few seconds
        producer.produce(topic, b"meanwhile")
        assert producer.flush(30) == 0
    assert "uses new certificates for new connections" in broker.log
    producer.produce(topic, b"after")
    assert producer.flush(30) == 0


def test_a_listener_is_told_where_its_new_certificate_is(broker, directory):
    """An operator tells it by IncrementalAlterConfigs, as with Kafka; what is about all listeners, or secret, is
    refused.
    """
    other = issue(directory, "moved", ["localhost"])
    before = serial(broker)
    admin = AdminClient(with_password(broker, directory))
    alter(admin, "listener.name.passwords.ssl.keystore.location", str(other))
    until(lambda: serial(broker) != before, "the new certificate is used")
    for key in ("ssl.keystore.location", "listener.name.passwords.plain.sasl.jaas.config"):
        with pytest.raises(KafkaException, match="Only a"):
            alter(admin, key, "/nowhere")
    after = serial(broker)
    alter(admin, "listener.name.passwords.ssl.keystore.location", "/nowhere.pem")
    until(lambda: "listener PASSWORDS keeps its certificates" in broker.log, "the refusal is logged")
    assert serial(broker) == after
    broker.restart()
    assert "are not used for its certificates" in broker.log
    assert serial(broker) == before  # that of the settings file


def alter(admin, name, value):
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(30)


def serial(broker):
    host, port = port_of(broker, "PASSWORDS").split(":")
    return ssl.get_server_certificate((host, int(port)), timeout=60)
