"""The real clients, each behind the few verbs that the tests need.

Every client is used as its own users use it; what differs between them stays in here. Messages go in and come
back as `Message`. A client that cannot be installed here is skipped, in CI it is a failure.
"""

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

NODE_DIRECTORY = Path(__file__).parent / "node"
CLIENT_TIMEOUT_S = 30


class Message(NamedTuple):
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int | None = None
    offset: int | None = None


class Client(Protocol):
    name: str
    codecs: tuple[str, ...]

    def check_installed(self) -> None: ...
    def produce(
        self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none", acks: str = "all"
    ) -> None:
        """To partition 0, all in one batch if the client can."""

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        offset: int | None = None,
        timestamp: int | None = None,
    ) -> list[Message]:
        """Consume from partition 0: from the beginning, or where told."""


def skip_unless(found: bool, what: str) -> None:
    if not found and os.environ.get("CI"):
        pytest.fail(f"{what} can be installed, so CI may not skip it")
    if not found:
        pytest.skip(f"{what} is not installed")


class Confluent:
    name = "confluent"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    def check_installed(self) -> None:
        pass

    def produce(
        self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none", acks: str = "all"
    ) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "acks": acks, "linger.ms": 100}
        settings["message.max.bytes"] = 10_000_000
        producer = Producer(settings)
        failed: list[Any] = []
        for message in messages:
            producer.produce(
                topic,
                message.value,
                message.key,
                0,
                on_delivery=lambda error, _: failed.append(error) if error else None,
                timestamp=message.timestamp or 0,
                headers=list(message.headers),
            )
        assert producer.flush(CLIENT_TIMEOUT_S) == 0
        assert not failed

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        offset: int | None = None,
        timestamp: int | None = None,
    ) -> list[Message]:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
        consumer = Consumer(settings)
        start = TopicPartition(topic, 0, OFFSET_BEGINNING if offset is None else offset)
        if timestamp is not None:
            (start,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], CLIENT_TIMEOUT_S)
        consumer.assign([start])
        found = consumer.consume(count, CLIENT_TIMEOUT_S)
        consumer.close()
        return [
            Message(item.key(), item.value(), tuple(item.headers() or ()), item.timestamp()[1], item.offset())
            for item in found
        ]


class Aiokafka:
    name = "aiokafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    def check_installed(self) -> None:
        pass

    def produce(
        self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none", acks: str = "all"
    ) -> None:
        asyncio.run(self._produce(bootstrap, topic, messages, codec, acks))

    async def _produce(
        self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str, acks: str
    ) -> None:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            max_request_size=10_000_000,
            max_batch_size=5_000_000,
            linger_ms=50,
        ) as producer:
            futures = [
                await producer.send(
                    topic,
                    message.value,
                    message.key,
                    0,
                    timestamp_ms=message.timestamp,
                    headers=list(message.headers),
                )
                for message in messages
            ]
            await asyncio.gather(*futures)

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        offset: int | None = None,
        timestamp: int | None = None,
    ) -> list[Message]:
        return asyncio.run(self._consume(bootstrap, topic, count, offset, timestamp))

    async def _consume(
        self, bootstrap: str, topic: str, count: int, offset: int | None, timestamp: int | None
    ) -> list[Message]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        partition = TopicPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
            consumer.assign([partition])
            if timestamp is not None:
                offset = (await consumer.offsets_for_times({partition: timestamp}))[partition].offset
            if offset is None:
                await consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, offset)
            found = [await asyncio.wait_for(consumer.getone(), CLIENT_TIMEOUT_S) for _ in range(count)]
        return [
            Message(item.key, item.value, tuple(item.headers), item.timestamp, item.offset) for item in found
        ]


class KafkaPython:
    name = "kafka-python"
    codecs = ("none", "gzip", "zstd")  # the others need packages of their own, and say nothing new here

    def check_installed(self) -> None:
        pass

    def produce(
        self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none", acks: str = "all"
    ) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=False,
            max_request_size=10_000_000,
            linger_ms=100,
        )
        futures = [
            producer.send(
                topic,
                message.value,
                message.key,
                list(message.headers),
                partition=0,
                timestamp_ms=message.timestamp,
            )
            for message in messages
        ]
        producer.flush(CLIENT_TIMEOUT_S)
        for future in futures:
            future.get(CLIENT_TIMEOUT_S)
        producer.close()

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        offset: int | None = None,
        timestamp: int | None = None,
    ) -> list[Message]:
        from kafka import KafkaConsumer, TopicPartition

        partition = TopicPartition(topic, 0)
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None)
        consumer.assign([partition])
        if timestamp is not None:
            offset = consumer.offsets_for_times({partition: timestamp})[partition].offset
        if offset is None:
            consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, offset)
        found: list[Any] = []
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            for batch in consumer.poll(1000, count - len(found)).values():
                found += batch
        consumer.close()
        return [
            Message(item.key, item.value, tuple(item.headers), item.timestamp, item.offset) for item in found
        ]


class Kcat:
    """Messages are text here, and all of one call have the same headers; timestamps cannot be given."""

    name = "kcat"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    def check_installed(self) -> None:
        skip_unless(shutil.which("kcat") is not None, "kcat")

    def produce(
        self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none", acks: str = "all"
    ) -> None:
        command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", "0", "-z", codec, "-Z", "-K", "\t"]
        command += ["-X", f"acks={acks}", "-X", "linger.ms=100", "-X", "message.max.bytes=10000000"]
        for key, value in messages[0].headers if messages else ():
            command += ["-H", f"{key}={value.decode()}"]
        lines = [b"%b\t%b\n" % (message.key or b"", message.value or b"") for message in messages]
        subprocess.run(command, input=b"".join(lines), check=True, timeout=CLIENT_TIMEOUT_S)

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        offset: int | None = None,
        timestamp: int | None = None,
    ) -> list[Message]:
        start = "beginning" if offset is None else str(offset)
        if timestamp is not None:
            start = f"s@{timestamp}"
        command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-p", "0", "-c", str(count), "-o", start, "-J"]
        done = subprocess.run(command, check=True, capture_output=True, timeout=CLIENT_TIMEOUT_S)
        return [self._message(json.loads(line)) for line in done.stdout.splitlines()]

    @staticmethod
    def _message(found: dict[str, Any]) -> Message:
        def encoded(text: str | None) -> bytes | None:
            return None if text is None else text.encode()

        flat = found.get("headers", [])
        headers = tuple((name, value.encode()) for name, value in zip(flat[::2], flat[1::2], strict=True))
        return Message(
            encoded(found["key"]), encoded(found["payload"]), headers, found["ts"], found["offset"]
        )


class Kafkajs:
    name = "kafkajs"
    codecs = ("none", "gzip")  # it comes with no other

    def check_installed(self) -> None:
        skip_unless(
            bool(shutil.which("node")) and (NODE_DIRECTORY / "node_modules/kafkajs").exists(), "kafkajs"
        )

    def produce(
        self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none", acks: str = "all"
    ) -> None:
        self.run(
            "produce",
            bootstrap=bootstrap,
            topic=topic,
            gzip=codec == "gzip",
            acks=-1 if acks == "all" else int(acks),
            messages=[self._to_json(message) for message in messages],
        )

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        offset: int | None = None,
        timestamp: int | None = None,
    ) -> list[Message]:
        found = self.run(
            "consume", bootstrap=bootstrap, topic=topic, count=count, offset=offset, timestamp=timestamp
        )
        return [self._from_json(item) for item in found]

    @staticmethod
    def run(command: str, **arguments: Any) -> Any:
        """Run one command of `client.js`; what it printed last is its result."""
        script = [shutil.which("node") or "node", str(NODE_DIRECTORY / "client.js"), command]
        done = subprocess.run(
            script, input=json.dumps(arguments), capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    @staticmethod
    def _to_json(message: Message) -> dict[str, Any]:
        return {
            "key": None if message.key is None else message.key.decode(),
            "value": None if message.value is None else message.value.decode(),
            "headers": {key: value.decode() for key, value in message.headers},
            **({"timestamp": str(message.timestamp)} if message.timestamp else {}),
        }

    @staticmethod
    def _from_json(item: dict[str, Any]) -> Message:
        return Message(
            None if item["key"] is None else item["key"].encode(),
            None if item["value"] is None else item["value"].encode(),
            tuple((key, value.encode()) for key, value in item["headers"].items()),
            int(item["timestamp"]),
            int(item["offset"]),
        )


CLIENTS: tuple[Client, ...] = (Confluent(), Aiokafka(), KafkaPython(), Kcat(), Kafkajs())
