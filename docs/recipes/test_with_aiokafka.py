"""Recipes with aiokafka: what a test can do to the code that uses it. `pytest docs/recipes` runs them."""

import asyncio
import json
from collections import Counter

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

PATIENCE_S = 30


def consumer_of(broker, *topics: str, group: str | None = None) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        metadata_max_age_ms=1000,
    )


async def send(broker, topic: str, *values: str, partition: int | None = None) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for value in values:
            await producer.send_and_wait(topic, value.encode(), partition=partition)


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

    asyncio.run(scenario())


def test_a_broker_that_hangs_is_given_up(odradek_broker, odradek_topic):
    """What the application does when nobody answers: here, it learns that the message was not delivered."""

    async def scenario():
        options = {"bootstrap_servers": odradek_broker.bootstrap, "request_timeout_ms": 500}
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(odradek_topic, b"hello")
            with odradek_broker.paused(), pytest.raises(KafkaError):
                await producer.send_and_wait(odradek_topic, b"hello?")

    asyncio.run(scenario())


def test_a_message_delivered_twice_counts_once(odradek_broker, odradek_topic):
    """A consumer that dies before it commits leaves its messages to the next one: handlers must bear that."""

    async def scenario():
        await send(odradek_broker, odradek_topic, "order-1", "order-2")
        handled, deliveries = set(), 0
        for commits in (False, True):  # the first consumer dies with its work done and nothing committed
            async with consumer_of(odradek_broker, odradek_topic, group=f"{odradek_topic}-group") as consumer:
                for _ in range(2):
                    handled.add((await next_message(consumer)).value)
                    deliveries += 1
                if commits:
                    await consumer.commit()
        assert deliveries == 4
        assert handled == {b"order-1", b"order-2"}

    asyncio.run(scenario())


class HandOver(ConsumerRebalanceListener):
    """Commits what is done before partitions go to somebody else."""

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
    """Whoever commits what is done when partitions are taken away hands them over clean."""

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
                while len(handled) < 20:  # … when the second comes
                    await asyncio.gather(handle_one(first), handle_one(second))
        assert set(handled.values()) == {1}

    asyncio.run(asyncio.wait_for(scenario(), 2 * PATIENCE_S))


def test_a_poison_message_does_not_stop_the_rest(odradek_broker, odradek_topic):
    """What cannot be read goes to a topic of its own, with the reason, and the consumer goes on."""
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

    asyncio.run(scenario())
