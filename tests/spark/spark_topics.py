"""The actions of tests of the source and the sink on topics beside Spark, through another client."""

import itertools
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.read_topic import read_to_the_end

_numbers = itertools.count()


class Topics:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, partitions: int = 2, name: str | None = None, **config: str) -> str:
        name = name or f"topic-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        wanted = [NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)]
        for result in self.admin.create_topics(wanted).values():
            result.result(30)
        return name

    def delete(self, name: str) -> None:
        for result in self.admin.delete_topics([name]).values():
            result.result(30)

    def fill(
        self,
        topic: str,
        values: Sequence[bytes | None],
        partition: int | Callable[[int], int] = 0,
        **settings: str,
    ) -> None:
        """Values to partitions; a value's first bytes are its key."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, **{k.replace("_", "."): v for k, v in settings.items()}}
        )
        for index, value in enumerate(values):
            target = partition(index) if callable(partition) else partition
            producer.produce(topic, key=value and value[:20], value=value, partition=target)
            if index % 10_000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0

    def read(self, topic: str, partitions: int) -> list:
        """All messages of a topic, as another client reads them."""
        return read_to_the_end(self.bootstrap, topic, range(partitions))

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            found = consumer.committed([TopicPartition(topic, n) for n in range(partitions)], timeout=30)
            return {one.partition: one.offset for one in found}
        finally:
            consumer.close()
