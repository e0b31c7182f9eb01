"""All records of partitions as another client sees them: librdkafka, which reads committed data by default.

Offsets do not tell how many records there are, because the ends of transactions take one each. So it reads until each
partition says that there is no more.
"""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition


def read_to_the_end(
    bootstrap: str, topic: str, partitions: Sequence[int], timeout_s: float = 30
) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found, left = [], set(partitions)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        while left:
            message = consumer.poll(
                timeout_s
            )  # `consume` would wait until it has as many as it was asked for
            assert message is not None, (
                f"{len(found)} records came, and partitions {sorted(left)} have no end"
            )
            if message.error() is None:
                found.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    finally:
        consumer.close()
    return found
