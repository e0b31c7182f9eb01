"""Real clients against three brokers, one replica a partition: anything may be on another broker than the one asked."""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Protocol

import pytest

from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.processes.nodes import BOTH, Node, Nodes, cluster, until

PARTITIONS = 6
PER_PARTITION = 4
TIMEOUT_S = 60

Sent = set[tuple[int, str]]  # partition and value


class Client(Protocol):
    """What each client can do, as its own users do it."""

    def create(self, bootstrap: str, topic: str) -> None: ...
    def produce(self, bootstrap: str, topic: str, records: Sent) -> None: ...
    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> Sent:
        """As the only member of a group, which commits what it has read."""

    def committed(self, bootstrap: str, topic: str, group: str) -> int:
        """The sum of what a group has committed."""


class Confluent:
    def create(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            future.result(TIMEOUT_S)

    def produce(self, bootstrap: str, topic: str, records: Sent) -> None:
        from confluent_kafka import Producer

        producer, failed = Producer({"bootstrap.servers": bootstrap}), []
        for partition, value in records:
            producer.produce(
                topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error)
            )
        assert producer.flush(TIMEOUT_S) == 0
        assert not any(failed)

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> Sent:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        found: Sent = set()

        def read() -> bool:
            for message in consumer.consume(count - len(found), 1):
                if message.error() is None:
                    found.add((message.partition(), message.value().decode()))
            return len(found) == count

        until(read, f"{count} records are read", TIMEOUT_S)
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    def committed(self, bootstrap: str, topic: str, group: str) -> int:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        wanted = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        offsets = [one.offset for one in consumer.committed(wanted, TIMEOUT_S)]
        consumer.close()
        return sum(offsets)


class Aiokafka:
    def create(self, bootstrap: str, topic: str) -> None:
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        async def create() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            try:
                response = await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
                assert [one[1] for one in response.topic_errors] == [0], response
            finally:
                await admin.close()

        asyncio.run(create())

    def produce(self, bootstrap: str, topic: str, records: Sent) -> None:
        from aiokafka import AIOKafkaProducer

        async def produce() -> None:
            async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
                for partition, value in records:
                    await producer.send_and_wait(topic, value.encode(), partition=partition)

        asyncio.run(produce())

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> Sent:
        from aiokafka import AIOKafkaConsumer

        async def consume() -> Sent:
            async with AIOKafkaConsumer(
                topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
            ) as consumer:
                found = [await asyncio.wait_for(consumer.getone(), TIMEOUT_S) for _ in range(count)]
                await consumer.commit()
            return {(one.partition, one.value.decode()) for one in found}

        return asyncio.run(consume())

    def committed(self, bootstrap: str, topic: str, group: str) -> int:
        from aiokafka.admin import AIOKafkaAdminClient

        async def ask() -> int:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            try:
                offsets = await admin.list_consumer_group_offsets(group)
                return sum(one.offset for one in offsets.values())
            finally:
                await admin.close()

        return asyncio.run(ask())


class KafkaPython:
    def create(self, bootstrap: str, topic: str) -> None:
        from kafka import KafkaAdminClient
        from kafka.admin import NewTopic

        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        admin.close()

    def produce(self, bootstrap: str, topic: str, records: Sent) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=bootstrap)
        futures = [producer.send(topic, value.encode(), partition=partition) for partition, value in records]
        for future in futures:
            future.get(TIMEOUT_S)
        producer.close()

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> Sent:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
        )
        found: Sent = set()

        def read() -> bool:
            for batch in consumer.poll(1000, count - len(found)).values():
                found.update((one.partition, one.value.decode()) for one in batch)
            return len(found) == count

        until(read, f"{count} records are read", TIMEOUT_S)
        consumer.commit()
        consumer.close()
        return found

    def committed(self, bootstrap: str, topic: str, group: str) -> int:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
        offsets = [consumer.committed(TopicPartition(topic, number)) or 0 for number in range(PARTITIONS)]
        consumer.close()
        return sum(offsets)


CLIENTS: dict[str, Client] = {
    "confluent": Confluent(),
    "aiokafka": Aiokafka(),
    "kafka-python": KafkaPython(),
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    home = tmp_path_factory.mktemp("cluster")
    settings = {"offsets_topic_num_partitions": "6", "group_initial_rebalance_delay_ms": "0"}
    with cluster(home, {1: BOTH, 2: BOTH, 3: BOTH}, **settings) as running:
        yield running


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_works_through_any_broker(nodes: Nodes, name: str) -> None:
    client = CLIENTS[name]
    for broker in nodes.brokers:
        bootstrap, topic = broker.address("PLAINTEXT"), f"{name}-{broker.id}"
        other = next(one for one in nodes.others(broker))
        client.create(bootstrap, topic)
        assert sorted(_leaders(nodes, topic)) == [1, 1, 2, 2, 3, 3], "every broker leads some of it"
        records = {
            (partition, f"{partition}/{number}")
            for partition in range(PARTITIONS)
            for number in range(PER_PARTITION)
        }
        client.produce(bootstrap, topic, records)
        group = _group_at(broker, other.id)
        assert client.consume(bootstrap, topic, group, len(records)) == records
        third = next(one for one in nodes.others(broker) if one is not other)
        assert client.committed(third.address("PLAINTEXT"), topic, group) == len(records)


def _leaders(nodes: Nodes, topic: str) -> list[int]:
    """Once all brokers know it."""
    for broker in nodes.brokers:
        found = until(lambda broker=broker: broker.topics().get(topic), f"broker {broker.id} knows {topic}")
    return [partition.leader_id for partition in found.partitions]


def _group_at(broker: Node, coordinator: int) -> str:
    """A group that is coordinated elsewhere, as this broker tells."""

    def look() -> str | None:
        group = f"group-{uuid.uuid4().hex[:8]}"
        request = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=[group])
        answer = broker.ask(request, FindCoordinatorResponse)
        (found,) = answer.coordinators
        return group if not found.error_code and found.node_id == coordinator else None

    return until(look, f"broker {broker.id} names a group of coordinator {coordinator}")
