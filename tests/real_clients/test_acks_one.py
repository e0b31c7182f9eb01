"""Tests that what a client was told is written is there when it asks next, with acks=1 too."""

import asyncio

from tests.support import RunningBroker

ROUNDS = 60


def test_aiokafka_lists_and_deletes_what_it_has_just_written(broker: RunningBroker, topic: str) -> None:
    """On a broker that syncs before it commits, this came too early now and then: OFFSET_OUT_OF_RANGE."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

    async def run() -> None:
        partition = TopicPartition(topic, 0)
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, acks=1)
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap)
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        async with producer, consumer:
            await admin.start()
            try:
                for round_number in range(ROUNDS):
                    sent = await producer.send_and_wait(topic, b"value", partition=0)
                    assert sent.offset == round_number
                    if round_number % 2:
                        assert await consumer.end_offsets([partition]) == {partition: sent.offset + 1}
                    await admin.delete_records({partition: RecordsToDelete(before_offset=sent.offset + 1)})
                    assert await consumer.beginning_offsets([partition]) == {partition: sent.offset + 1}
            finally:
                await admin.close()

    asyncio.run(run())


def test_confluent_lists_what_it_has_just_written(broker: RunningBroker, topic: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": 1, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    try:
        for round_number in range(ROUNDS):
            producer.produce(topic, b"value", partition=0)
            assert producer.flush(20) == 0
            low_and_high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
            assert low_and_high == (0, round_number + 1)
    finally:
        consumer.close()
