"""Recipes with kafka-python: what a test can do to the code that uses it. `pytest docs/recipes` runs them."""

import json
import time
from collections import Counter

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

PATIENCE_S = 30


def consumer_of(broker, *topics: str, group: str | None = None, client_id: str = "recipe") -> KafkaConsumer:
    consumer = KafkaConsumer(
        *topics,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        client_id=client_id,
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


def stored(broker, topic: str) -> list[bytes]:
    """All that partition 0 of a topic holds."""
    consumer = consumer_of(broker, topic)
    (end,) = consumer.end_offsets([TopicPartition(topic, 0)]).values()
    values = [next(consumer).value for _ in range(end)]
    consumer.close()
    return values


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
    deadline = time.monotonic() + 2 * PATIENCE_S

    def handle_one(consumer):
        assert time.monotonic() < deadline, handled
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


def test_a_retriable_error_is_tried_again(odradek_broker, odradek_topic):
    """The broker says twice that it does not lead the partition; the producer asks a third time."""
    with odradek_broker.faults.answer(
        "Produce", error="NOT_LEADER_OR_FOLLOWER", times=2, topic=odradek_topic
    ) as fault:
        send(odradek_broker, odradek_topic, "order-1")
    assert fault.fired == 2
    assert stored(odradek_broker, odradek_topic) == [b"order-1"]


def send_with_a_lost_response(broker, topic: str, is_idempotent: bool) -> None:
    """The broker has the message, but the producer does not hear of it, and sends it again on a new connection."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=is_idempotent)
    with broker.faults.lose_response("Produce", topic=topic) as lost:
        sent = producer.send(topic, b"order-1")
        lost.wait()
    sent.get(PATIENCE_S)
    producer.close()


def test_a_lost_response_makes_a_duplicate_without_idempotence(odradek_broker, odradek_topic):
    send_with_a_lost_response(odradek_broker, odradek_topic, is_idempotent=False)
    assert stored(odradek_broker, odradek_topic) == [b"order-1", b"order-1"]


def test_a_lost_response_makes_no_duplicate_with_idempotence(odradek_broker, odradek_topic):
    send_with_a_lost_response(odradek_broker, odradek_topic, is_idempotent=True)
    assert stored(odradek_broker, odradek_topic) == [b"order-1"]


def test_a_held_fetch_keeps_one_consumer_waiting_and_no_other(odradek_broker, odradek_topic):
    """What the application does while its messages do not come: here, it goes on polling."""
    send(odradek_broker, odradek_topic, "order-1")
    slow, quick = (consumer_of(odradek_broker, odradek_topic, client_id=name) for name in ("slow", "quick"))
    with odradek_broker.faults.hold("Fetch", topic=odradek_topic, client_id="slow") as held:
        deadline = time.monotonic() + PATIENCE_S
        while not held.happened:  # kafka-python asks for messages while it polls
            assert time.monotonic() < deadline
            assert slow.poll(timeout_ms=200) == {}
        assert next(quick).value == b"order-1"
        held.release()
        assert next(slow).value == b"order-1"
    slow.close()
    quick.close()


def test_a_power_cut_loses_what_was_sent_with_acks_1(odradek_broker, odradek_topic):
    """The broker acknowledges what it has written; a power cut takes what the disk does not have yet."""
    producer = KafkaProducer(bootstrap_servers=odradek_broker.bootstrap, acks=1, enable_idempotence=False)
    with odradek_broker.faults.hold_syncs():
        producer.send(odradek_topic, b"order-1").get(PATIENCE_S)  # acknowledged …
        odradek_broker.power_cut()
    odradek_broker.restart()
    producer.close()
    assert stored(odradek_broker, odradek_topic) == []  # … and gone


def test_a_power_cut_loses_nothing_that_was_sent_with_acks_all(odradek_broker, odradek_topic):
    """The broker acknowledges what is on disk. What was not acknowledged is sent again, and stored once."""
    producer = KafkaProducer(bootstrap_servers=odradek_broker.bootstrap, enable_idempotence=True)
    producer.send(odradek_topic, b"order-1").get(PATIENCE_S)
    with odradek_broker.faults.hold_syncs() as disk:
        second = producer.send(odradek_topic, b"order-2")
        disk.wait()  # the message is written, but not on disk …
        assert not second.is_done  # … so it is not acknowledged
        odradek_broker.power_cut()
    odradek_broker.restart()
    second.get(PATIENCE_S)
    producer.close()
    assert stored(odradek_broker, odradek_topic) == [b"order-1", b"order-2"]
