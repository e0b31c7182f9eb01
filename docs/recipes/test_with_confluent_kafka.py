"""Recipes with confluent-kafka: how to test code that uses it. `pytest docs/recipes` runs them."""

import json
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

PATIENCE_S = 30


def producer_of(broker, **settings: object) -> Producer:
    # reconnect.backoff.max.ms is 10 s by default: with less, the client finds a restarted broker at once
    return Producer({"bootstrap.servers": broker.bootstrap, "reconnect.backoff.max.ms": 500, **settings})


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
    producer = producer_of(broker)
    for value in values:
        producer.produce(topic, value, **where)
    assert producer.flush(PATIENCE_S) == 0


def stored(broker, topic: str) -> list[bytes]:
    """All messages in partition 0 of a topic."""
    consumer = consumer_of(broker, f"{topic}-reader")
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [next_message(consumer).value() for _ in range(end)]
    consumer.close()
    return values


def next_message(consumer: Consumer) -> Message:
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.error() is None, message.error()
    return message


def test_retries_outlive_a_crash(odradek_broker, odradek_topic):
    """A message sent while the broker is down arrives once it is back, and arrives once."""
    producer = producer_of(odradek_broker, **{"enable.idempotence": True})
    producer.produce(odradek_topic, "before")
    assert producer.flush(PATIENCE_S) == 0

    odradek_broker.crash()
    producer.produce(odradek_topic, "meanwhile")
    assert producer.flush(0.5) == 1  # it is still waiting, not lost

    odradek_broker.restart()
    assert producer.flush(PATIENCE_S) == 0
    consumer = consumer_of(odradek_broker, f"{odradek_topic}-group")
    consumer.assign([TopicPartition(odradek_topic, 0, 0)])
    assert [next_message(consumer).value() for _ in range(2)] == [b"before", b"meanwhile"]
    consumer.close()


def test_a_broker_that_hangs_is_given_up(odradek_broker, odradek_topic):
    """The broker does not respond: here, the application learns that the message was not delivered."""
    outcomes = []
    producer = producer_of(odradek_broker, **{"message.timeout.ms": 500})
    with odradek_broker.paused():
        producer.produce(odradek_topic, "hello", on_delivery=lambda error, _: outcomes.append(error))
        producer.flush(PATIENCE_S)
    assert outcomes[0] is not None
    assert outcomes[0].name() == "_MSG_TIMED_OUT"


def test_a_message_delivered_twice_counts_once(odradek_broker, odradek_topic):
    """If a consumer dies before it commits, the next one gets its messages again: handlers must cope with that."""
    send(odradek_broker, odradek_topic, "order-1", "order-2")
    handled, deliveries = set(), 0
    for commits in (False, True):  # the first consumer dies after its work, before it commits
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
    """A consumer that commits when its partitions are revoked hands them over without loss or repeats."""
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

    deadline = time.monotonic() + 2 * PATIENCE_S

    def handle_one(consumer, wait_s):
        assert time.monotonic() < deadline, handled
        message = consumer.poll(wait_s)
        if message is not None and message.error() is None:
            handled[message.value()] += 1
            done[message.partition()] = message.offset() + 1

    first, second = (consumer_of(odradek_broker, f"{odradek_topic}-group") for _ in range(2))
    first.subscribe([odradek_topic], on_revoke=hand_over)
    while len(handled) < 5:  # the first is in the middle of its work …
        handle_one(first, PATIENCE_S)
    second.subscribe([odradek_topic], on_revoke=hand_over)
    while len(handled) < 20 or not second.assignment():  # … when the second joins
        handle_one(first, 0.05)
        handle_one(second, 0.05)
    assert set(handled.values()) == {1}
    first.close()
    second.close()


def test_a_poison_message_does_not_stop_the_rest(odradek_broker, odradek_topic):
    """A message that cannot be read goes to a dead-letter topic, with the reason, and the consumer continues."""
    dead_letters = odradek_broker.create_topic()
    send(odradek_broker, odradek_topic, '{"amount": 1}', "not json", '{"amount": 2}')
    consumer = consumer_of(odradek_broker, f"{odradek_topic}-group")
    consumer.subscribe([odradek_topic])
    producer = producer_of(odradek_broker)
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
    producer = producer_of(broker, **{"enable.idempotence": is_idempotent})
    with broker.faults.lose_response("Produce", topic=topic) as lost:
        producer.produce(topic, "order-1")
        lost.wait()
    assert producer.flush(PATIENCE_S) == 0


def test_a_lost_response_makes_a_duplicate_without_idempotence(odradek_broker, odradek_topic):
    send_with_a_lost_response(odradek_broker, odradek_topic, is_idempotent=False)
    assert stored(odradek_broker, odradek_topic) == [b"order-1", b"order-1"]


def test_a_lost_response_makes_no_duplicate_with_idempotence(odradek_broker, odradek_topic):
    send_with_a_lost_response(odradek_broker, odradek_topic, is_idempotent=True)
    assert stored(odradek_broker, odradek_topic) == [b"order-1"]


def test_a_held_fetch_keeps_one_consumer_waiting_and_no_other(odradek_broker, odradek_topic):
    """No messages arrive: here, the application keeps polling."""
    send(odradek_broker, odradek_topic, "order-1")
    slow, quick = (
        consumer_of(odradek_broker, f"{odradek_topic}-{name}", **{"client.id": name})
        for name in ("slow", "quick")
    )
    with odradek_broker.faults.hold("Fetch", topic=odradek_topic, client_id="slow") as held:
        for consumer in (slow, quick):
            consumer.assign([TopicPartition(odradek_topic, 0, 0)])
        held.wait()
        assert slow.poll(0.2) is None
        assert next_message(quick).value() == b"order-1"
        held.release()
        assert next_message(slow).value() == b"order-1"
    slow.close()
    quick.close()


def test_a_power_cut_loses_what_was_sent_with_acks_1(odradek_broker, odradek_topic):
    """The broker acknowledges what it has written; a power cut loses what is not on disk yet."""
    producer = producer_of(odradek_broker, acks=1)
    with odradek_broker.faults.hold_syncs():
        producer.produce(odradek_topic, "order-1")
        assert producer.flush(PATIENCE_S) == 0  # acknowledged …
        odradek_broker.power_cut()
    odradek_broker.restart()
    assert stored(odradek_broker, odradek_topic) == []  # … and gone


def test_a_power_cut_loses_nothing_that_was_sent_with_acks_all(odradek_broker, odradek_topic):
    """The broker acknowledges only what is on disk. The producer sends the rest again, and it is stored once."""
    producer = producer_of(odradek_broker, **{"enable.idempotence": True})
    producer.produce(odradek_topic, "order-1")
    assert producer.flush(PATIENCE_S) == 0
    with odradek_broker.faults.hold_syncs() as disk:
        producer.produce(odradek_topic, "order-2")
        disk.wait()  # the message is written, but not on disk …
        assert producer.flush(0) == 1  # … so it is not acknowledged
        odradek_broker.power_cut()
    odradek_broker.restart()
    assert producer.flush(PATIENCE_S) == 0
    assert stored(odradek_broker, odradek_topic) == [b"order-1", b"order-2"]
