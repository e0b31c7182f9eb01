"""Recipes with confluent-kafka: what a test can do to the code that uses it. `pytest docs/recipes` runs them."""

import json
from collections import Counter

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

PATIENCE_S = 30


def consumer_of(broker, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            **settings,
        }
    )


def send(broker, topic: str, *values: str, **where: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, **where)
    assert producer.flush(PATIENCE_S) == 0


def next_message(consumer: Consumer) -> Message:
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.error() is None, message.error()
    return message


def test_retries_outlive_a_crash(odradek_broker, odradek_topic):
    """A message sent while the broker is down arrives once it is back, and arrives once."""
    producer = Producer({"bootstrap.servers": odradek_broker.bootstrap, "enable.idempotence": True})
    producer.produce(odradek_topic, "before")
    assert producer.flush(PATIENCE_S) == 0

    odradek_broker.crash()
    producer.produce(odradek_topic, "meanwhile")
    assert producer.flush(0.5) == 1  # it waits, it is not lost

    odradek_broker.restart()
    assert producer.flush(PATIENCE_S) == 0
    consumer = consumer_of(odradek_broker, f"{odradek_topic}-group")
    consumer.assign([TopicPartition(odradek_topic, 0, 0)])
    assert [next_message(consumer).value() for _ in range(2)] == [b"before", b"meanwhile"]
    consumer.close()


def test_a_broker_that_hangs_is_given_up(odradek_broker, odradek_topic):
    """What the application does when nobody answers: here, it learns that the message was not delivered."""
    outcomes = []
    producer = Producer({"bootstrap.servers": odradek_broker.bootstrap, "message.timeout.ms": 500})
    with odradek_broker.paused():
        producer.produce(odradek_topic, "hello", on_delivery=lambda error, _: outcomes.append(error))
        producer.flush(PATIENCE_S)
    assert outcomes[0] is not None
    assert outcomes[0].name() == "_MSG_TIMED_OUT"


def test_a_message_delivered_twice_counts_once(odradek_broker, odradek_topic):
    """A consumer that dies before it commits leaves its messages to the next one: handlers must bear that."""
    send(odradek_broker, odradek_topic, "order-1", "order-2")
    handled, deliveries = set(), 0
    for commits in (False, True):  # the first consumer dies with its work done and nothing committed
        consumer = consumer_of(odradek_broker, f"{odradek_topic}-group")
        consumer.subscribe([odradek_topic])
        for _ in range(2):
            handled.add(next_message(consumer).value())
            deliveries += 1
        if commits:
            consumer.commit(asynchronous=False)
        consumer.close()
    assert deliveries == 4
    assert handled == {b"order-1", b"order-2"}


@pytest.mark.odradek_topic(partitions=2)
def test_a_rebalance_in_the_middle_of_a_batch_loses_and_repeats_nothing(odradek_broker, odradek_topic):
    """Whoever commits what is done when partitions are taken away hands them over clean."""
    for partition in range(2):
        send(odradek_broker, odradek_topic, *(f"{partition}-{n}" for n in range(10)), partition=partition)
    handled = Counter()
    done = {}  # partition -> next offset

    def hand_over(consumer, partitions):
        offsets = [
            TopicPartition(odradek_topic, p.partition, done[p.partition])
            for p in partitions
            if p.partition in done
        ]
        if offsets:
            consumer.commit(offsets=offsets, asynchronous=False)

    def handle_one(consumer, wait_s):
        message = consumer.poll(wait_s)
        if message is not None and message.error() is None:
            handled[message.value()] += 1
            done[message.partition()] = message.offset() + 1

    first, second = (consumer_of(odradek_broker, f"{odradek_topic}-group") for _ in range(2))
    first.subscribe([odradek_topic], on_revoke=hand_over)
    while len(handled) < 5:  # the first is in the middle of its work …
        handle_one(first, PATIENCE_S)
    second.subscribe([odradek_topic], on_revoke=hand_over)
    while len(handled) < 20:  # … when the second comes
        handle_one(first, 0.05)
        handle_one(second, 0.05)
    assert set(handled.values()) == {1}
    first.close()
    second.close()


def test_a_poison_message_does_not_stop_the_rest(odradek_broker, odradek_topic):
    """What cannot be read goes to a topic of its own, with the reason, and the consumer goes on."""
    dead_letters = odradek_broker.create_topic()
    send(odradek_broker, odradek_topic, '{"amount": 1}', "not json", '{"amount": 2}')
    consumer = consumer_of(odradek_broker, f"{odradek_topic}-group")
    consumer.subscribe([odradek_topic])
    producer = Producer({"bootstrap.servers": odradek_broker.bootstrap})
    total = 0
    for _ in range(3):
        message = next_message(consumer)
        try:
            total += json.loads(message.value())["amount"]
        except ValueError as error:
            producer.produce(dead_letters, message.value(), headers={"reason": str(error)})
            producer.flush(PATIENCE_S)
        consumer.commit(message, asynchronous=False)
    assert total == 3
    consumer.close()
    letters = consumer_of(odradek_broker, f"{odradek_topic}-letters")
    letters.assign([TopicPartition(dead_letters, 0, 0)])
    letter = next_message(letters)
    assert (letter.value(), letter.headers()[0][0]) == (b"not json", "reason")
    letters.close()
