"""Recipes with aiokafka: how to test code that uses it. `pytest docs/recipes` runs them."""

import asyncio
import json
from collections import Counter

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

PATIENCE_S = 30


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 2 * PATIENCE_S))


def consumer_of(
    broker, *topics: str, group: str | None = None, client_id: str = "recipe"
) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        client_id=client_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        metadata_max_age_ms=1000,
    )


async def send(broker, topic: str, *values: str, partition: int | None = None) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for value in values:
            await producer.send_and_wait(topic, value.encode(), partition=partition)


async def stored(broker, topic: str) -> list[bytes]:
    """All messages in partition 0 of a topic."""
    async with consumer_of(broker, topic) as consumer:
        (end,) = (await consumer.end_offsets([TopicPartition(topic, 0)])).values()
        return [(await next_message(consumer)).value for _ in range(end)]


async def next_message(consumer: AIOKafkaConsumer):
    return await asyncio.wait_for(consumer.getone(), PATIENCE_S)


def test_retries_outlive_a_crash(odradek_broker, odradek_topic):
    """A message sent while the broker is down arrives once it is back, and arrives once."""

    async def scenario():
        options = {"bootstrap_servers": odradek_broker.bootstrap, "enable_idempotence": True}
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(odradek_topic, b"before")
            odradek_broker.crash()
            meanwhile = await producer.send(odradek_topic, b"meanwhile")
            odradek_broker.restart()
            await asyncio.wait_for(meanwhile, PATIENCE_S)
        async with consumer_of(odradek_broker, odradek_topic) as consumer:
            assert [(await next_message(consumer)).value for _ in range(2)] == [b"before", b"meanwhile"]

    run(scenario)


def test_a_broker_that_hangs_is_given_up(odradek_broker, odradek_topic):
    """The broker does not respond: here, the application learns that the message was not delivered."""

    async def scenario():
        options = {"bootstrap_servers": odradek_broker.bootstrap, "request_timeout_ms": 2000}
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(odradek_topic, b"hello")
            with odradek_broker.paused(), pytest.raises(KafkaError):
                await producer.send_and_wait(odradek_topic, b"hello?")

    run(scenario)


def test_a_message_delivered_twice_counts_once(odradek_broker, odradek_topic):
    """If a consumer dies before it commits, the next one gets its messages again: handlers must cope with that."""

    async def scenario():
        await send(odradek_broker, odradek_topic, "order-1", "order-2")
        handled, deliveries = set(), 0
        for commits in (False, True):  # the first consumer dies after its work, before it commits
            async with consumer_of(odradek_broker, odradek_topic, group=f"{odradek_topic}-group") as consumer:
                for _ in range(2):
                    handled.add((await next_message(consumer)).value)
                    deliveries += 1
                if commits:
                    await consumer.commit()
        assert deliveries == 4
        assert handled == {b"order-1", b"order-2"}

    run(scenario)


class HandOver(ConsumerRebalanceListener):
    """Commits finished work before its partitions go to another consumer."""

    def __init__(self, consumer: AIOKafkaConsumer, done: dict[TopicPartition, int]) -> None:
        self.consumer, self.done = consumer, done

    async def on_partitions_revoked(self, revoked):
        offsets = {partition: self.done[partition] for partition in revoked if partition in self.done}
        if offsets:
            await self.consumer.commit(offsets)

    async def on_partitions_assigned(self, assigned):
        pass


@pytest.mark.odradek_topic(partitions=2)
def test_a_rebalance_in_the_middle_of_a_batch_loses_and_repeats_nothing(odradek_broker, odradek_topic):
    """A consumer that commits when its partitions are revoked hands them over without loss or repeats."""

    async def scenario():
        for partition in range(2):
            values = (f"{partition}-{number}" for number in range(10))
            await send(odradek_broker, odradek_topic, *values, partition=partition)
        handled, done = Counter(), {}

        async def handle_one(consumer):
            for partition, messages in (await consumer.getmany(timeout_ms=50, max_records=1)).items():
                for message in messages:
                    handled[message.value] += 1
                    done[partition] = message.offset + 1

        first, second = (consumer_of(odradek_broker, group=f"{odradek_topic}-group") for _ in range(2))
        first.subscribe([odradek_topic], listener=HandOver(first, done))
        second.subscribe([odradek_topic], listener=HandOver(second, done))
        async with first:
            while len(handled) < 5:  # the first is in the middle of its work …
                await handle_one(first)
            async with second:
                while len(handled) < 20 or not second.assignment():  # … when the second joins
                    await asyncio.gather(handle_one(first), handle_one(second))
        assert set(handled.values()) == {1}

    run(scenario)


def test_a_poison_message_does_not_stop_the_rest(odradek_broker, odradek_topic):
    """A message that cannot be read goes to a dead-letter topic, with the reason, and the consumer continues."""
    dead_letters = odradek_broker.create_topic()

    async def scenario():
        await send(odradek_broker, odradek_topic, '{"amount": 1}', "not json", '{"amount": 2}')
        total = 0
        async with (
            consumer_of(odradek_broker, odradek_topic, group=f"{odradek_topic}-group") as consumer,
            AIOKafkaProducer(bootstrap_servers=odradek_broker.bootstrap) as producer,
        ):
            for _ in range(3):
                message = await next_message(consumer)
                try:
                    total += json.loads(message.value)["amount"]
                except ValueError as error:
                    headers = [("reason", str(error).encode())]
                    await producer.send_and_wait(dead_letters, message.value, headers=headers)
                await consumer.commit()
        assert total == 3
        async with consumer_of(odradek_broker, dead_letters) as consumer:
            letter = await next_message(consumer)
        assert (letter.value, letter.headers[0][0]) == (b"not json", "reason")

    run(scenario)


def test_a_retriable_error_is_tried_again(odradek_broker, odradek_topic):
    """The broker says twice that it does not lead the partition; the producer tries a third time."""

    async def scenario():
        with odradek_broker.faults.answer(
            "Produce", error="NOT_LEADER_OR_FOLLOWER", times=2, topic=odradek_topic
        ) as fault:
            await send(odradek_broker, odradek_topic, "order-1")
        assert fault.fired == 2
        assert await stored(odradek_broker, odradek_topic) == [b"order-1"]

    run(scenario)


async def send_with_a_lost_response(broker, topic: str, is_idempotent: bool) -> None:
    """The broker has the message, but the producer does not know, and sends it again on a new connection."""
    options = {"bootstrap_servers": broker.bootstrap, "enable_idempotence": is_idempotent}
    async with AIOKafkaProducer(**options) as producer:
        with broker.faults.lose_response("Produce", topic=topic) as lost:
            sent = await producer.send(topic, b"order-1")
            await asyncio.to_thread(lost.wait)
        await asyncio.wait_for(sent, PATIENCE_S)


def test_a_lost_response_makes_a_duplicate_without_idempotence(odradek_broker, odradek_topic):
    async def scenario():
        await send_with_a_lost_response(odradek_broker, odradek_topic, is_idempotent=False)
        assert await stored(odradek_broker, odradek_topic) == [b"order-1", b"order-1"]

    run(scenario)


def test_a_lost_response_makes_no_duplicate_with_idempotence(odradek_broker, odradek_topic):
    async def scenario():
        await send_with_a_lost_response(odradek_broker, odradek_topic, is_idempotent=True)
        assert await stored(odradek_broker, odradek_topic) == [b"order-1"]

    run(scenario)


def test_a_held_fetch_keeps_one_consumer_waiting_and_no_other(odradek_broker, odradek_topic):
    """No messages arrive: here, the application keeps asking."""

    async def scenario():
        await send(odradek_broker, odradek_topic, "order-1")
        slow, quick = (
            consumer_of(odradek_broker, odradek_topic, client_id=name) for name in ("slow", "quick")
        )
        with odradek_broker.faults.hold("Fetch", topic=odradek_topic, client_id="slow") as held:
            async with slow, quick:
                assert await slow.getmany(timeout_ms=200) == {}
                await asyncio.to_thread(held.wait)
                assert (await next_message(quick)).value == b"order-1"
                held.release()
                assert (await next_message(slow)).value == b"order-1"

    run(scenario)


def test_a_power_cut_loses_what_was_sent_with_acks_1(odradek_broker, odradek_topic):
    """The broker acknowledges what it has written; a power cut loses what is not on disk yet."""

    async def scenario():
        async with AIOKafkaProducer(bootstrap_servers=odradek_broker.bootstrap, acks=1) as producer:
            with odradek_broker.faults.hold_syncs():
                await producer.send_and_wait(odradek_topic, b"order-1")  # acknowledged …
                odradek_broker.power_cut()
            odradek_broker.restart()
        assert await stored(odradek_broker, odradek_topic) == []  # … and gone

    run(scenario)


def test_a_power_cut_loses_nothing_that_was_sent_with_acks_all(odradek_broker, odradek_topic):
    """The broker acknowledges only what is on disk. The producer sends the rest again, and it is stored once."""

    async def scenario():
        options = {"bootstrap_servers": odradek_broker.bootstrap, "enable_idempotence": True}
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(odradek_topic, b"order-1")
            with odradek_broker.faults.hold_syncs() as disk:
                second = await producer.send(odradek_topic, b"order-2")
                await asyncio.to_thread(disk.wait)  # the message is written, but not on disk …
                assert not second.done()  # … so it is not acknowledged
                odradek_broker.power_cut()
            odradek_broker.restart()
            await asyncio.wait_for(second, PATIENCE_S)
        assert await stored(odradek_broker, odradek_topic) == [b"order-1", b"order-2"]

    run(scenario)
