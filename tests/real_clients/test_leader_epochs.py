"""Tests of what a client that checks leader epochs is told after a broker was killed."""

import logging
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.real_clients.members import wait_until
from tests.support import running_broker

TOPIC = "empty"
TIMEOUT_S = 30


class Heard(logging.Handler):
    """Collects what the client's own log says of its position and of epoch validation."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if any(word in line for word in ("start fetching", "validation", "runcat")):
            self.lines.append(line)


def test_a_consumer_of_an_empty_partition_sees_no_truncation_after_a_kill(tmp_path: Path) -> None:
    """Its position carries the epoch of the leader before the kill, in which nothing was ever appended."""
    heard = Heard()
    logger = logging.Logger("librdkafka", logging.DEBUG)
    logger.addHandler(heard)
    with running_broker(tmp_path) as broker:
        servers: dict[str, Any] = {"bootstrap.servers": broker.bootstrap}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(TIMEOUT_S)
        settings = {
            **servers,
            "group.id": "g",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 500,
            "debug": "topic,fetch",
        }
        consumer = Consumer(settings, logger=logger)
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_END)])
        polled: list[Any] = []

        def poll() -> None:
            message = consumer.poll(0.1)
            if message is not None:
                polled.append(message.error() or message.value())

        def truncations() -> list[str]:
            return [line for line in [*heard.lines, *map(str, polled)] if "runcat" in line]

        def was_validated() -> bool:
            poll()
            return bool(truncations()) or any("validation succeeded" in line for line in heard.lines)

        def has_position() -> bool:
            poll()
            return any("start fetching at offset 0 (leader epoch" in line for line in heard.lines)

        wait_until(has_position, "the consumer's position")
        broker.kill()
        broker.start()
        wait_until(was_validated, "the consumer's check of its position")
        assert truncations() == []
        producer = Producer(servers)
        producer.produce(TOPIC, "first")
        assert producer.flush(TIMEOUT_S) == 0

        def was_read() -> bool:
            poll()
            return b"first" in polled

        wait_until(was_read, "the record")
        consumer.close()
