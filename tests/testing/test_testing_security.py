"""Brokers and clusters for tests with TLS and SASL by one argument."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaProducer

from odradek.testing import broker, cluster
from tests.support import run_command


def send(bootstrap, login, topic):
    producer = Producer({"bootstrap.servers": bootstrap, **login.librdkafka, "message.timeout.ms": 60_000})
    producer.produce(topic, "4 spools")
    return producer.flush(60)


def read(bootstrap, login, topic):
    consumer = Consumer({"bootstrap.servers": bootstrap, **login.librdkafka, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(60)
    consumer.close()
    return message.value()


@pytest.mark.parametrize("security", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_broker_for_each_protocol(security):
    with broker(security=security) as kafka:
        topic = kafka.create_topic()
        assert send(kafka.bootstrap, kafka.login, topic) == 0
        kafka.crash()
        kafka.start()
        assert read(kafka.bootstrap, kafka.login, topic) == b"4 spools"


def test_a_protocol_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="'TLS' is not one of PLAINTEXT, SSL"), broker(security="TLS"):
        pass


@pytest.mark.odradek(security="SASL_SSL")
def test_every_client_logs_in(odradek_broker, odradek_topic, tmp_path):
    kafka = odradek_broker
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        assert send(kafka.bootstrap, kafka.login.by(mechanism), odradek_topic) == 0
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, **kafka.login.python)
    producer.send(odradek_topic, b"5 spools").get(60)
    producer.close()

    async def with_aiokafka():
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, **kafka.login.python) as client:
            await client.send_and_wait(odradek_topic, b"6 spools")

    asyncio.run(with_aiokafka())
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in kafka.login.java.items()))
    listed = run_command("topic", "list", "-b", kafka.bootstrap, "--command-config", str(file))
    assert odradek_topic in listed.stdout, listed.stderr


@pytest.mark.odradek(security="SASL_SSL")
def test_users_and_no_secret_in_the_arguments(odradek_broker, odradek_topic):
    ada = odradek_broker.set_password("ada", "first")
    assert send(odradek_broker.bootstrap, ada, odradek_topic) == 0
    with open(f"/proc/{odradek_broker.pid}/cmdline") as arguments:
        assert odradek_broker.login.password not in arguments.read()
    assert "first" not in repr(ada)


@pytest.mark.odradek_cluster(security="SASL_SSL")
def test_a_cluster_by_a_marker(odradek_cluster, odradek_cluster_topic):
    assert send(odradek_cluster.bootstrap, odradek_cluster.login, odradek_cluster_topic) == 0
    first = odradek_cluster.leader(odradek_cluster_topic)
    first.crash()
    assert odradek_cluster.leader(odradek_cluster_topic, other_than=first) is not first
    ada = odradek_cluster.set_password("ada", "secret")
    assert read(odradek_cluster.bootstrap, ada, odradek_cluster_topic) == b"4 spools"


def test_a_cluster_with_certificates_alone():
    with cluster(security="SSL") as kafka:
        topic = kafka.create_topic()
        assert send(kafka.bootstrap, kafka.login, topic) == 0
