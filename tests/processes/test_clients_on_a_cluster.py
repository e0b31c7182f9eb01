"""Real clients against three brokers: anything may be on another broker than the one asked, and moves when one dies.

First with one replica a partition, through each of the brokers. Then with three: a producer and a member of a group,
as a user writes them, are at work when the broker dies that coordinates the group and leads a third of the partitions.
"""

import asyncio
import json
import shutil
import subprocess
import threading
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import ClassVar, Protocol

import pytest

from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.processes.nodes import BOTH, Node, Nodes, cluster, until
from tests.real_clients.adapters import NODE_DIRECTORY
from tests.real_clients.adapters import Kafkajs as InstalledKafkajs
from tests.support import odradek_command, run_command

PARTITIONS = 6
PER_PARTITION = 4
WHILE_A_BROKER_DIES = 120
TIMEOUT_S = 60

Record = tuple[int, str]  # partition and value
Sent = set[Record]
Process = subprocess.Popen[str]


class Producing(Protocol):
    """A client with what it can do, as its own users do it."""

    def produce(self, bootstrap: str, topic: str, records: Iterable[Record]) -> None:
        """Returns when all are acknowledged."""

    def consume(self, bootstrap: str, topic: str, group: str, count: int, found: Sent) -> None:
        """Find so many records, as the only member of a group, which commits what it has read."""


class Client(Producing, Protocol):
    def create(self, bootstrap: str, topic: str) -> None: ...
    def committed(self, bootstrap: str, topic: str, group: str) -> int:
        """The sum of what a group has committed."""


class Confluent:
    def create(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            future.result(TIMEOUT_S)

    def produce(self, bootstrap: str, topic: str, records: Iterable[Record]) -> None:
        from confluent_kafka import Producer

        producer, failed = Producer({"bootstrap.servers": bootstrap}), []
        for partition, value in records:
            producer.produce(
                topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error)
            )
        assert producer.flush(TIMEOUT_S) == 0
        assert not any(failed)

    def consume(self, bootstrap: str, topic: str, group: str, count: int, found: Sent) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])

        def read() -> bool:
            for message in consumer.consume(count - len(found), 1):
                if message.error() is None:
                    found.add((message.partition(), message.value().decode()))
            return len(found) == count

        until(read, f"{count} records are read", TIMEOUT_S)
        consumer.commit(asynchronous=False)
        consumer.close()

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

    def produce(self, bootstrap: str, topic: str, records: Iterable[Record]) -> None:
        from aiokafka import AIOKafkaProducer

        async def produce() -> None:
            async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
                for partition, value in records:
                    await producer.send_and_wait(topic, value.encode(), partition=partition)

        asyncio.run(produce())

    def consume(self, bootstrap: str, topic: str, group: str, count: int, found: Sent) -> None:
        from aiokafka import AIOKafkaConsumer

        async def consume() -> None:
            async with AIOKafkaConsumer(
                topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
            ) as consumer:
                while len(found) < count:
                    one = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
                    found.add((one.partition, one.value.decode()))
                await consumer.commit()

        asyncio.run(consume())

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

    def produce(self, bootstrap: str, topic: str, records: Iterable[Record]) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=bootstrap)
        futures = [producer.send(topic, value.encode(), partition=partition) for partition, value in records]
        for future in futures:
            future.get(TIMEOUT_S)
        producer.close()

    def consume(self, bootstrap: str, topic: str, group: str, count: int, found: Sent) -> None:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
        )

        def read() -> bool:
            for batch in consumer.poll(1000, count - len(found)).values():
                found.update((one.partition, one.value.decode()) for one in batch)
            return len(found) == count

        until(read, f"{count} records are read", TIMEOUT_S)
        consumer.commit()
        consumer.close()

    def committed(self, bootstrap: str, topic: str, group: str) -> int:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
        offsets = [consumer.committed(TopicPartition(topic, number)) or 0 for number in range(PARTITIONS)]
        consumer.close()
        return sum(offsets)


class Kafkajs:
    """In a process of its own (tests/real_clients/node).

    It asks a broker that is gone several times more before it looks for another; by its defaults it waits for up to
    30 s in between.
    """

    RETRY: ClassVar = {"initialRetryTime": 100, "maxRetryTime": 500, "retries": 15}

    def produce(self, bootstrap: str, topic: str, records: Iterable[Record]) -> None:
        with self._run("produceLines", bootstrap, topic) as process:
            write_lines(process, records)

    def consume(self, bootstrap: str, topic: str, group: str, count: int, found: Sent) -> None:
        with self._run("consumeLines", bootstrap, topic, group=group) as process:
            read_lines(process, count, found)

    @staticmethod
    def _run(command: str, bootstrap: str, topic: str, **options: str) -> AbstractContextManager[Process]:
        script = [shutil.which("node") or "node", str(NODE_DIRECTORY / "client.js"), command]
        return started(
            [*script, json.dumps({"bootstrap": bootstrap, "topic": topic, "retry": Kafkajs.RETRY, **options})]
        )


class Command:
    """`odradek produce` and `odradek consume`."""

    def produce(self, bootstrap: str, topic: str, records: Iterable[Record]) -> None:
        with started(odradek_command("produce", topic, "--json", "-b", bootstrap)) as process:
            write_lines(process, records)

    def consume(self, bootstrap: str, topic: str, group: str, count: int, found: Sent) -> None:
        options = ("--json", "--group", group, "--from-beginning", "-b", bootstrap)
        with started(odradek_command("consume", topic, *options)) as process:
            read_lines(process, count, found)


def write_lines(process: Process, records: Iterable[Record]) -> None:
    """Give a client a line of JSON for each record, and wait for its end."""
    assert process.stdin is not None
    for partition, value in records:
        print(json.dumps({"partition": partition, "value": value}), file=process.stdin, flush=True)
    process.stdin.close()
    assert process.wait(TIMEOUT_S) == 0


def read_lines(process: Process, count: int, found: Sent) -> None:
    """Read the lines of JSON that a client prints, until there are so many different ones."""
    assert process.stdout is not None
    while len(found) < count:
        line = process.stdout.readline()
        assert line, f"it ended with {process.wait()}"
        record = json.loads(line)
        found.add((record["partition"], record["value"]))


@contextmanager
def started(command: list[str]) -> Iterator[Process]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None and not pipe.closed:
                with suppress(BrokenPipeError):
                    pipe.close()


CLIENTS: dict[str, Client] = {
    "confluent": Confluent(),
    "aiokafka": Aiokafka(),
    "kafka-python": KafkaPython(),
}
FOLLOWING: dict[str, Producing] = {**CLIENTS, "kafkajs": Kafkajs(), "odradek": Command()}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    home = tmp_path_factory.mktemp("cluster")
    settings = {
        "offsets_topic_num_partitions": "6",
        "offsets_topic_replication_factor": "3",
        "min_insync_replicas": "2",
        "group_initial_rebalance_delay_ms": "0",
    }
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
        found: Sent = set()
        client.consume(bootstrap, topic, group, len(records), found)
        assert found == records
        third = next(one for one in nodes.others(broker) if one is not other)
        assert client.committed(third.address("PLAINTEXT"), topic, group) == len(records)


@pytest.mark.parametrize("name", FOLLOWING)
def test_a_client_goes_on_when_a_broker_dies(nodes: Nodes, name: str) -> None:
    client, topic, group = FOLLOWING[name], f"{name}-replicated", f"{name}-group"
    if isinstance(client, Kafkajs):
        InstalledKafkajs().check_installed()
    create_replicated(nodes, topic)
    victim = nodes[until(lambda: _coordinator(nodes[1], group), f"{group} has a coordinator")]
    records = [(number % PARTITIONS, f"value-{number}") for number in range(WHILE_A_BROKER_DIES)]
    has_died, found = threading.Event(), set()

    def some_before_and_some_after() -> Iterator[Record]:
        yield from records[: len(records) // 2]
        assert has_died.wait(TIMEOUT_S)
        yield from records[len(records) // 2 :]

    with ThreadPoolExecutor(2) as threads:
        producing = threads.submit(client.produce, nodes.bootstrap, topic, some_before_and_some_after())
        consuming = threads.submit(client.consume, nodes.bootstrap, topic, group, len(records), found)
        try:
            until(
                lambda: len(found) >= PARTITIONS or producing.done() or consuming.done(),
                "some records are read",
            )
            victim.kill()
            has_died.set()
            producing.result(2 * TIMEOUT_S)
            consuming.result(2 * TIMEOUT_S)
        finally:
            has_died.set()
            victim.kill()
            victim.start()
    assert found == set(records)


def create_replicated(nodes: Nodes, topic: str) -> None:
    """Once every broker is back."""
    for broker in nodes.brokers:
        until(lambda broker=broker: _knows_all(broker, nodes), f"broker {broker.id} knows all brokers")
    options = ("--partitions", str(PARTITIONS), "--replication-factor", "3", "-b", nodes.bootstrap)
    done = run_command("topic", "create", topic, *options)
    assert done.returncode == 0, done.stderr
    assert sorted(_leaders(nodes, topic)) == [1, 1, 2, 2, 3, 3], "every broker leads some of it"


def _knows_all(broker: Node, nodes: Nodes) -> bool:
    response = broker.ask(MetadataRequest(None), MetadataResponse)
    return len(response.brokers) == len(nodes.brokers)


def _leaders(nodes: Nodes, topic: str) -> list[int]:
    """Once all brokers know it."""
    for broker in nodes.brokers:
        found = until(lambda broker=broker: broker.topics().get(topic), f"broker {broker.id} knows {topic}")
    return [partition.leader_id for partition in found.partitions]


def _group_at(broker: Node, coordinator: int) -> str:
    """A group that is coordinated elsewhere, as this broker tells."""

    def look() -> str | None:
        group = f"group-{uuid.uuid4().hex[:8]}"
        return group if _coordinator(broker, group) == coordinator else None

    return until(look, f"broker {broker.id} names a group of coordinator {coordinator}")


def _coordinator(broker: Node, group: str) -> int | None:
    request = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=[group])
    (found,) = broker.ask(request, FindCoordinatorResponse).coordinators
    return None if found.error_code else found.node_id
