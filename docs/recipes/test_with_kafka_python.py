"""Recipes with kafka-python: how to test code that uses it. `pytest docs/recipes` runs them."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

PATIENCE_S = 30


@contextmanager
def producer_of(broker, **settings: object) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        reconnect_backoff_max_ms=500,  # not 30 s: finds a restarted broker at once
        **settings,
    )
    try:
        yield producer
    finally:
        producer.close(timeout=PATIENCE_S)  # without a timeout it may wait forever


@contextmanager
def consumer_of(
    broker, *topics: str, group: str | None = None, client_id: str = "recipe"
) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(
        *topics,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        client_id=client_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        reconnect_backoff_max_ms=500,
        consumer_timeout_ms=PATIENCE_S * 1000,
    )
    try:
        # A kafka-python 3.0 consumer that learns of the partitions while it joins a group joins again; if a poll ends
        # meanwhile, it never uses its assignment. A consumer that knows the partitions before it joins, joins once.
        consumer.beginning_offsets([TopicPartition(topic, 0) for topic in topics])
        yield consumer
    finally:
        consumer.close(autocommit=False, timeout_ms=PATIENCE_S * 1000)


def next_message(consumer: KafkaConsumer):
    message = next(consumer, None)
    assert message is not None, f"no message came within {PATIENCE_S} s"
    return message


def send(broker, topic: str, *values: str, partition: int | None = None) -> None:
    with producer_of(broker) as producer:
        for value in values:
            producer.send(topic, value.encode(), partition=partition).get(PATIENCE_S)


def stored(broker, topic: str) -> list[bytes]:
    """All messages in partition 0 of a topic."""
    with consumer_of(broker, topic) as consumer:
        (end,) = consumer.end_offsets([TopicPartition(topic, 0)]).values()
        return [next_message(consumer).value for _ in range(end)]


def test_retries_outlive_a_crash(odradek_broker, odradek_topic):
    """A message sent while the broker is down arrives once it is back, and arrives once."""
    with producer_of(odradek_broker, enable_idempotence=True) as producer:
        producer.send(odradek_topic, b"before").get(PATIENCE_S)
        odradek_broker.crash()
        meanwhile = producer.send(odradek_topic, b"meanwhile")
        odradek_broker.restart()
        meanwhile.get(PATIENCE_S)
    assert stored(odradek_broker, odradek_topic) == [b"before", b"meanwhile"]


def test_a_broker_that_hangs_is_given_up(odradek_broker, odradek_topic):
    """The broker does not respond: here, the application learns that the message was not delivered."""
    patience = {"request_timeout_ms": 2000, "delivery_timeout_ms": 3000, "linger_ms": 0}
    with producer_of(odradek_broker, **patience) as producer:
        producer.send(odradek_topic, b"hello").get(PATIENCE_S)
        with odradek_broker.paused(), pytest.raises(KafkaError):
            producer.send(odradek_topic, b"hello?").get(PATIENCE_S)


def test_a_message_delivered_twice_counts_once(odradek_broker, odradek_topic):
    """If a consumer dies before it commits, the next one gets its messages again: handlers must cope with that."""
    send(odradek_broker, odradek_topic, "order-1", "order-2")
    handled, deliveries = set(), 0
    for commits in (False, True):  # the first consumer dies after its work, before it commits
        with consumer_of(odradek_broker, odradek_topic, group=f"{odradek_topic}-group") as consumer:
            for _ in range(2):
                handled.add(next_message(consumer).value)
                deliveries += 1
            if commits:
                consumer.commit()
    assert deliveries == 4
    assert handled == {b"order-1", b"order-2"}


@pytest.mark.odradek_topic(partitions=2)
def test_a_rebalance_in_the_middle_of_a_batch_loses_and_repeats_nothing(odradek_broker, odradek_topic):
    """A consumer that commits before each poll, which may revoke partitions, hands them over without loss or repeats.

    (kafka-python's rebalance listeners run on its own thread and must not block, so they cannot commit.)
    """
    for partition in range(2):
        send(odradek_broker, odradek_topic, *(f"{partition}-{n}" for n in range(10)), partition=partition)
    handled = []
    has_second_joined = threading.Event()
    deadline = time.monotonic() + 2 * PATIENCE_S

    def handle_one(consumer):
        assert time.monotonic() < deadline, handled
        for partition, messages in consumer.poll(timeout_ms=1000, max_records=1).items():
            for message in messages:
                handled.append(message.value)
                consumer.commit({partition: OffsetAndMetadata(message.offset + 1, "", -1)})

    def is_done():
        return len(handled) >= 20 and has_second_joined.is_set()

    def run_second():
        with consumer_of(odradek_broker, odradek_topic, group=group) as second:
            while not is_done():
                handle_one(second)
                if second.assignment():
                    has_second_joined.set()

    group = f"{odradek_topic}-group"
    with consumer_of(odradek_broker, odradek_topic, group=group) as first, ThreadPoolExecutor() as threads:
        while len(handled) < 5:  # the first is in the middle of its work …
            handle_one(first)
        # … when the second joins, in a thread of its own: a kafka-python 3.0 consumer that finishes joining while
        # nobody polls it throws its assignment away and joins again.
        running = threads.submit(run_second)
        while not is_done() and not running.done():
            handle_one(first)
        running.result(2 * PATIENCE_S)
    assert len(handled) == len(set(handled)) == 20


def test_a_poison_message_does_not_stop_the_rest(odradek_broker, odradek_topic):
    """A message that cannot be read goes to a dead-letter topic, with the reason, and the consumer continues."""
    dead_letters = odradek_broker.create_topic()
    send(odradek_broker, odradek_topic, '{"amount": 1}', "not json", '{"amount": 2}')
    total = 0
    with (
        consumer_of(odradek_broker, odradek_topic, group=f"{odradek_topic}-group") as consumer,
        producer_of(odradek_broker) as producer,
    ):
        for _ in range(3):
            message = next_message(consumer)
            try:
                total += json.loads(message.value)["amount"]
            except ValueError as error:
                headers = [("reason", str(error).encode())]
                producer.send(dead_letters, message.value, headers=headers).get(PATIENCE_S)
            consumer.commit()
    assert total == 3
    with consumer_of(odradek_broker, dead_letters) as letters:
        letter = next_message(letters)
    assert (letter.value, letter.headers[0][0]) == (b"not json", "reason")


def test_a_retriable_error_is_tried_again(odradek_broker, odradek_topic):
    """The broker says twice that it does not lead the partition; the producer tries a third time."""
    with odradek_broker.faults.answer(
        "Produce", error="NOT_LEADER_OR_FOLLOWER", times=2, topic=odradek_topic
    ) as fault:
        send(odradek_broker, odradek_topic, "order-1")
    assert fault.fired == 2
    assert stored(odradek_broker, odradek_topic) == [b"order-1"]


def send_with_a_lost_response(broker, topic: str, is_idempotent: bool) -> None:
    """The broker has the message, but the producer does not know, and sends it again on a new connection."""
    with producer_of(broker, enable_idempotence=is_idempotent) as producer:
        with broker.faults.lose_response("Produce", topic=topic) as lost:
            sent = producer.send(topic, b"order-1")
            lost.wait()
        sent.get(PATIENCE_S)


def test_a_lost_response_makes_a_duplicate_without_idempotence(odradek_broker, odradek_topic):
    send_with_a_lost_response(odradek_broker, odradek_topic, is_idempotent=False)
    assert stored(odradek_broker, odradek_topic) == [b"order-1", b"order-1"]


def test_a_lost_response_makes_no_duplicate_with_idempotence(odradek_broker, odradek_topic):
    send_with_a_lost_response(odradek_broker, odradek_topic, is_idempotent=True)
    assert stored(odradek_broker, odradek_topic) == [b"order-1"]


def test_a_held_fetch_keeps_one_consumer_waiting_and_no_other(odradek_broker, odradek_topic):
    """No messages arrive: here, the application keeps polling."""
    send(odradek_broker, odradek_topic, "order-1")
    with (
        consumer_of(odradek_broker, odradek_topic, client_id="slow") as slow,
        consumer_of(odradek_broker, odradek_topic, client_id="quick") as quick,
        odradek_broker.faults.hold("Fetch", topic=odradek_topic, client_id="slow") as held,
    ):
        deadline = time.monotonic() + PATIENCE_S
        while not held.happened:  # kafka-python asks for messages while it polls
            assert time.monotonic() < deadline
            assert slow.poll(timeout_ms=200) == {}
        assert next_message(quick).value == b"order-1"
        held.release()
        assert next_message(slow).value == b"order-1"


def test_a_power_cut_loses_what_was_sent_with_acks_1(odradek_broker, odradek_topic):
    """The broker acknowledges what it has written; a power cut loses what is not on disk yet."""
    with producer_of(odradek_broker, acks=1, enable_idempotence=False) as producer:
        with odradek_broker.faults.hold_syncs():
            producer.send(odradek_topic, b"order-1").get(PATIENCE_S)  # acknowledged …
            odradek_broker.power_cut()
        odradek_broker.restart()
    assert stored(odradek_broker, odradek_topic) == []  # … and gone


def test_a_power_cut_loses_nothing_that_was_sent_with_acks_all(odradek_broker, odradek_topic):
    """The broker acknowledges only what is on disk. The producer sends the rest again, and it is stored once."""
    with producer_of(odradek_broker, enable_idempotence=True) as producer:
        producer.send(odradek_topic, b"order-1").get(PATIENCE_S)
        with odradek_broker.faults.hold_syncs() as disk:
            second = producer.send(odradek_topic, b"order-2")
            disk.wait()  # the message is written, but not on disk …
            assert not second.is_done  # … so it is not acknowledged
            odradek_broker.power_cut()
        odradek_broker.restart()
        second.get(PATIENCE_S)
    assert stored(odradek_broker, odradek_topic) == [b"order-1", b"order-2"]
