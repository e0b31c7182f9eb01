"""Transactions of real clients: what is committed is read, what is aborted is not, and a group's offsets go with them.

confluent-kafka, aiokafka and kafka-python speak the protocol before `transaction.version` 2; franz-go
(`test_franz_go.py`) speaks the newer one.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.real_clients.adapters import skip_unless
from tests.support import RunningBroker

TIMEOUT_S = 30
ROUNDS = ((b"a", True), (b"b", False), (b"c", True))  # values, and whether they are committed

Write = Callable[[str, str, str, Iterable[tuple[bytes, bool]]], None]


def write_with_confluent(
    bootstrap: str, topic: str, transactional_id: str, rounds: Iterable[tuple[bytes, bool]]
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(TIMEOUT_S)
    for value, is_committed in rounds:
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, value, partition=partition)
        assert producer.flush(TIMEOUT_S) == 0  # an abort would drop what was not sent
        end = producer.commit_transaction if is_committed else producer.abort_transaction
        end(TIMEOUT_S)


def write_with_aiokafka(
    bootstrap: str, topic: str, transactional_id: str, rounds: Iterable[tuple[bytes, bool]]
) -> None:
    from aiokafka import AIOKafkaProducer

    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        async with producer:
            for value, is_committed in rounds:
                await producer.begin_transaction()
                for partition in range(3):
                    await producer.send_and_wait(topic, value, partition=partition)
                await (producer.commit_transaction() if is_committed else producer.abort_transaction())

    asyncio.run(asyncio.wait_for(write(), TIMEOUT_S))


def write_with_kafka_python(
    bootstrap: str, topic: str, transactional_id: str, rounds: Iterable[tuple[bytes, bool]]
) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    producer.init_transactions()
    for value, is_committed in rounds:
        producer.begin_transaction()
        for partition in range(3):
            producer.send(topic, value, partition=partition).get(TIMEOUT_S)
        (producer.commit_transaction if is_committed else producer.abort_transaction)()
    producer.close()


def read(bootstrap: str, topic: str, isolation_level: str, count: int) -> list[bytes]:
    """All that there is in partitions 0 to 2. The markers of a transaction follow its commit, so the ends of the
    partitions may be reached before the last of so many records."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(3)])
    values: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < 3 or len(values) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"only {values} in {TIMEOUT_S} s"
        if message.error():
            ended.add(message.partition())
        else:
            ended.discard(message.partition())
            values.append(message.value())
    consumer.close()
    return sorted(values)


@pytest.mark.parametrize("write", [write_with_confluent, write_with_aiokafka, write_with_kafka_python])
def test_committed_records_are_read_and_aborted_ones_are_not(
    broker: RunningBroker, topic: str, write: Write
) -> None:
    write(broker.bootstrap, topic, f"tx-{topic}", ROUNDS)
    assert read(broker.bootstrap, topic, "read_committed", 6) == sorted([b"a", b"c"] * 3)
    assert read(broker.bootstrap, topic, "read_uncommitted", 9) == sorted([b"a", b"b", b"c"] * 3)


def test_kafkajs_commits_and_aborts(broker: RunningBroker, topic: str) -> None:
    import json
    import shutil
    import subprocess

    from tests.real_clients.adapters import NODE_DIRECTORY

    skip_unless(bool(shutil.which("node")) and (NODE_DIRECTORY / "node_modules/kafkajs").exists(), "kafkajs")
    script = """
        const { Kafka, logLevel } = require('kafkajs')
        const [bootstrap, topic, rounds] = process.argv.slice(1)
        const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING })
        const run = async () => {
          const producer = kafka.producer(
            { transactionalId: 'tx-' + topic, maxInFlightRequests: 1, idempotent: true })
          await producer.connect()
          for (const [value, isCommitted] of JSON.parse(rounds)) {
            const transaction = await producer.transaction()
            const messages = [0, 1, 2].map(partition => ({ partition, value }))
            await transaction.send({ topic, messages })
            await (isCommitted ? transaction.commit() : transaction.abort())
          }
          await producer.disconnect()
        }
        run().catch(error => { console.error(error); process.exit(1) })
    """
    rounds = json.dumps([(value.decode(), is_committed) for value, is_committed in ROUNDS])
    subprocess.run(
        ["node", "-e", script, broker.bootstrap, topic, rounds],
        cwd=NODE_DIRECTORY,
        check=True,
        timeout=2 * TIMEOUT_S,
    )
    assert read(broker.bootstrap, topic, "read_committed", 6) == sorted([b"a", b"c"] * 3)


def test_a_second_producer_fences_the_first(broker: RunningBroker, topic: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"tx-{topic}"}
    first, second = Producer(settings), Producer(settings)
    first.init_transactions(TIMEOUT_S)
    first.begin_transaction()
    first.produce(topic, b"lost", partition=0)
    assert first.flush(TIMEOUT_S) == 0
    second.init_transactions(TIMEOUT_S)  # aborts the transaction of the first
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].fatal()
    assert caught.value.args[0].name() in ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    second.begin_transaction()
    second.produce(topic, b"kept", partition=0)
    second.commit_transaction(TIMEOUT_S)
    assert read(broker.bootstrap, topic, "read_committed", 1) == [b"kept"]


def test_offsets_are_committed_with_the_transaction(broker: RunningBroker, topic: str, group: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"tx-{topic}"})
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce(topic, b"in", partition=0)
    assert plain.flush(TIMEOUT_S) == 0
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None and not message.error()
    producer.init_transactions(TIMEOUT_S)
    at = TopicPartition(topic, 0)
    for is_committed, expected in ((False, -1001), (True, 1)):
        producer.begin_transaction()
        producer.produce(topic, b"out", partition=1)
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, 1)], consumer.consumer_group_metadata(), TIMEOUT_S
        )
        end = producer.commit_transaction if is_committed else producer.abort_transaction
        end(TIMEOUT_S)
        assert [one.offset for one in consumer.committed([at], TIMEOUT_S)] == [expected]
    consumer.close()


def test_a_producer_that_goes_silent_is_timed_out(broker: RunningBroker, topic: str) -> None:
    """The records behind its transaction are read once it is aborted."""
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "transaction.timeout.ms": 1000}
    producer = Producer(settings | {"transactional.id": f"tx-{topic}"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"hanging", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce(topic, b"behind", partition=0)
    assert plain.flush(TIMEOUT_S) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None and message.value() == b"behind"
    consumer.close()
