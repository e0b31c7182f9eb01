"""Producers that number their batches."""

import asyncio

from confluent_kafka import Producer

from tests.real_clients.adapters import Confluent
from tests.real_clients.test_produce_and_consume import stored_headers
from tests.support import RunningBroker

TIMEOUT_S = 60  # of what takes milliseconds, on a busy machine too


def test_confluent_numbers_its_batches(broker: RunningBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for number in range(50):
        producer.produce(topic, b"%d" % number, partition=0)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    headers = stored_headers(broker.data_dir, topic)
    assert headers[0].producer_id >= 0
    assert [header.base_sequence for header in headers] == [header.base_offset for header in headers]
    found = Confluent().consume(broker.bootstrap, topic, 50)
    assert [message.value for message in found] == [b"%d" % number for number in range(50)]


def test_aiokafka_numbers_its_batches(broker: RunningBroker, topic: str) -> None:
    async def produce() -> None:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True) as producer:
            for number in range(10):
                await producer.send_and_wait(topic, b"%d" % number, partition=0)

    asyncio.run(produce())
    headers = stored_headers(broker.data_dir, topic)
    assert [header.base_sequence for header in headers] == list(range(10))


def test_kafka_python_numbers_its_batches(broker: RunningBroker, topic: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=0).get(TIMEOUT_S)
    producer.close()
    headers = stored_headers(broker.data_dir, topic)
    assert [header.base_sequence for header in headers] == list(range(10))


def test_every_producer_has_an_id_of_its_own(broker: RunningBroker, topic: str) -> None:
    for _ in range(3):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce(topic, b"x", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    assert len({header.producer_id for header in stored_headers(broker.data_dir, topic)}) == 3
