"""Recipes with kafka-python: what a test can do to the code that uses it. `pytest docs/recipes` runs them."""

import json
from collections import Counter

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

PATIENCE_S = 30


def consumer_of(broker, *topics: str, group: str | None = None) -> KafkaConsumer:
    consumer = KafkaConsumer(
        *topics,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        consumer_timeout_ms=PATIENCE_S * 1000,
    )
    # kafka-python 3.0 that learns of the partitions while it joins, joins again; if a poll ends meanwhile, it never
    # looks at the assignment. A consumer that knows the partitions first joins once.
    for topic in topics:
        consumer.partitions_for_topic(topic)
    return consumer


def send(broker, topic: str, *values: str, partition: int | None = None) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for value in values:
        producer.send(topic, value.encode(), partition=partition).get(PATIENCE_S)
    producer.close()


def test_retries_outlive_a_crash(odradek_broker, odradek_topic):
    """A message sent while the broker is down arrives once it is back, and arrives once."""
    producer = KafkaProducer(bootstrap_servers=odradek_broker.bootstrap, enable_idempotence=True)
    producer.send(odradek_topic, b"before").get(PATIENCE_S)
    odradek_broker.crash()
    meanwhile = producer.send(odradek_topic, b"meanwhile")
    odradek_broker.restart()
    meanwhile.get(PATIENCE_S)
    producer.close()
    consumer = consumer_of(odradek_broker, odradek_topic)
    assert [next(consumer).value for _ in range(2)] == [b"before", b"meanwhile"]
    consumer.close()


def test_a_broker_that_hangs_is_given_up(odradek_broker, odradek_topic):
    """What the application does when nobody answers: here, it learns that the message was not delivered."""
    producer = KafkaProducer(
        bootstrap_servers=odradek_broker.bootstrap,
        request_timeout_ms=500,
        delivery_timeout_ms=1000,
        linger_ms=0,
    )
    producer.send(odradek_topic, b"hello").get(PATIENCE_S)
    with odradek_broker.paused(), pytest.raises(KafkaError):
        producer.send(odradek_topic, b"hello?").get(PATIENCE_S)
    producer.close()


def test_a_message_delivered_twice_counts_once(odradek_broker, odradek_topic):
    """A consumer that dies before it commits leaves its messages to the next one: handlers must bear that."""
    send(odradek_broker, odradek_topic, "order-1", "order-2")
    handled, deliveries = set(), 0
    for commits in (False, True):  # the first consumer dies with its work done and nothing committed
        consumer = consumer_of(odradek_broker, odradek_topic, group=f"{odradek_topic}-group")
        for _ in range(2):
            handled.add(next(consumer).value)
            deliveries += 1
        if commits:
            consumer.commit()
        consumer.close(autocommit=False)
    assert deliveries == 4
    assert handled == {b"order-1", b"order-2"}


@pytest.mark.odradek_topic(partitions=2)
def test_a_rebalance_in_the_middle_of_a_batch_loses_and_repeats_nothing(odradek_broker, odradek_topic):
    """Whoever commits what is done before the next poll, in which partitions are taken away, hands them over clean.

    (kafka-python's rebalance listeners run on its own thread and must not block, so they cannot commit.)
    """
    for partition in range(2):
        send(odradek_broker, odradek_topic, *(f"{partition}-{n}" for n in range(10)), partition=partition)
    handled = Counter()

    def handle_one(consumer):
        for partition, messages in consumer.poll(timeout_ms=50, max_records=1).items():
            for message in messages:
                handled[message.value] += 1
                consumer.commit({partition: OffsetAndMetadata(message.offset + 1, "", -1)})

    first = consumer_of(odradek_broker, odradek_topic, group=f"{odradek_topic}-group")
    while len(handled) < 5:  # the first is in the middle of its work …
        handle_one(first)
    second = consumer_of(odradek_broker, odradek_topic, group=f"{odradek_topic}-group")
    while len(handled) < 20:  # … when the second comes
        handle_one(first)
        handle_one(second)
    assert set(handled.values()) == {1}
    first.close(autocommit=False)
    second.close(autocommit=False)


def test_a_poison_message_does_not_stop_the_rest(odradek_broker, odradek_topic):
    """What cannot be read goes to a topic of its own, with the reason, and the consumer goes on."""
    dead_letters = odradek_broker.create_topic()
    send(odradek_broker, odradek_topic, '{"amount": 1}', "not json", '{"amount": 2}')
    consumer = consumer_of(odradek_broker, odradek_topic, group=f"{odradek_topic}-group")
    producer = KafkaProducer(bootstrap_servers=odradek_broker.bootstrap)
    total = 0
    for _ in range(3):
        message = next(consumer)
        try:
            total += json.loads(message.value)["amount"]
        except ValueError as error:
            headers = [("reason", str(error).encode())]
            producer.send(dead_letters, message.value, headers=headers).get(PATIENCE_S)
        consumer.commit()
    assert total == 3
    consumer.close()
    letters = consumer_of(odradek_broker, dead_letters)
    letter = next(letters)
    assert (letter.value, letter.headers[0][0]) == (b"not json", "reason")
    letters.close()
    producer.close()
