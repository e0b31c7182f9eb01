"""A consumer in a process of its own, so that a test can kill it, stop it for a while, or ask it to leave.

    python group_member.py '{"client": "confluent", "bootstrap": …, "group": …, "topics": […]}'

It commits every record after it has processed it, and prints one JSON object a line: `assigned` (all it owns now),
`record`, `committed`, `commit_refused`. With `hold`, it waits for a line on standard input before its first commit.
"""

import asyncio
import json
import signal
import sys
from types import FrameType
from typing import Any

POLL_S = 0.1
HEARTBEAT_MS = 300


class Stopping(Exception):
    pass


def stop(number: int, frame: FrameType | None) -> None:
    raise Stopping


def python_settings(options: dict[str, Any]) -> dict[str, Any]:
    """The settings that aiokafka and kafka-python share."""
    return {
        "bootstrap_servers": options["bootstrap"],
        "group_id": options["group"],
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": options["session_timeout_ms"],
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "metadata_max_age_ms": 500,
        "fetch_max_wait_ms": 100,
    }


def subscribe(consumer: Any, options: dict[str, Any], listener: object) -> None:
    if options.get("pattern"):
        consumer.subscribe(pattern=options["pattern"], listener=listener)
    else:
        consumer.subscribe(options["topics"], listener=listener)


def report(event: str, **details: Any) -> None:
    print(json.dumps({"event": event, **details}), flush=True)


def maybe_hold(options: dict[str, Any]) -> None:
    if options.pop("hold", False):
        report("holding")
        sys.stdin.readline()


# --- confluent-kafka ---


def run_confluent(options: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaException

    settings = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "topic.metadata.refresh.interval.ms": 500,
        **options.get("settings", {}),
    }
    if settings.get("group.protocol") != "consumer":
        settings["session.timeout.ms"] = options["session_timeout_ms"]
        settings["heartbeat.interval.ms"] = HEARTBEAT_MS
    consumer = Consumer(settings)
    owned: set[tuple[str, int]] = set()

    def changed(adds: bool) -> Any:
        def callback(_: Any, partitions: Any) -> None:
            names = {(item.topic, item.partition) for item in partitions}
            owned.update(names) if adds else owned.difference_update(names)
            report("assigned", partitions=sorted(owned))

        return callback

    consumer.subscribe(
        options["topics"], on_assign=changed(True), on_revoke=changed(False), on_lost=changed(False)
    )
    try:
        while True:
            message = consumer.poll(POLL_S)
            if message is None or message.error():
                continue
            place = {"topic": message.topic(), "partition": message.partition()}
            report("record", **place, offset=message.offset(), value=(message.value() or b"").decode())
            maybe_hold(options)
            try:
                consumer.commit(message, asynchronous=False)
                report("committed", **place, offset=message.offset() + 1)
            except KafkaException as error:
                report("commit_refused", **place, error=error.args[0].name())
    except Stopping:
        consumer.close()


# --- aiokafka ---


async def run_aiokafka(options: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            report("assigned", partitions=[])

        def on_partitions_assigned(self, assigned: Any) -> None:
            report("assigned", partitions=sorted(assigned))

    consumer = AIOKafkaConsumer(**python_settings(options))
    subscribe(consumer, options, Listener())
    await consumer.start()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async for message in consumer:
            place = {"topic": message.topic, "partition": message.partition}
            report("record", **place, offset=message.offset, value=(message.value or b"").decode())
            try:
                await consumer.commit({TopicPartition(message.topic, message.partition): message.offset + 1})
                report("committed", **place, offset=message.offset + 1)
            except KafkaError as error:
                report("commit_refused", **place, error=type(error).__name__)
    except asyncio.CancelledError:
        await consumer.stop()


# --- kafka-python ---


def run_kafka_python(options: dict[str, Any]) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            report("assigned", partitions=[])

        def on_partitions_assigned(self, assigned: Any) -> None:
            report("assigned", partitions=sorted(tuple(item) for item in assigned))

    consumer = KafkaConsumer(**python_settings(options))
    subscribe(consumer, options, Listener())
    try:
        while True:
            # Long: if a poll ends between SyncGroup and its response, kafka-python 3.0 never takes the assignment.
            for partition, messages in consumer.poll(10_000).items():
                for message in messages:
                    place = {"topic": message.topic, "partition": message.partition}
                    report("record", **place, offset=message.offset, value=(message.value or b"").decode())
                    try:
                        offset = OffsetAndMetadata(message.offset + 1, "", -1)
                        consumer.commit({TopicPartition(*partition): offset})
                        report("committed", **place, offset=message.offset + 1)
                    except KafkaError as error:
                        report("commit_refused", **place, error=type(error).__name__)
                        break
    except Stopping:
        consumer.close()


def main() -> None:
    options = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, stop)
    client = options["client"]
    if client == "confluent":
        run_confluent(options)
    elif client == "aiokafka":
        asyncio.run(run_aiokafka(options))
    else:
        run_kafka_python(options)
    report("left")


if __name__ == "__main__":
    main()
