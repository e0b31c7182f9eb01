"""Consumers and brokers that die, sleep and come back while records flow."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.real_clients.adapters import Confluent
from tests.real_clients.members import group_of, wait_until
from tests.real_clients.test_groups import describe, owners
from tests.support import RunningBroker, running_broker

TIMEOUT_S = 60  # of what takes milliseconds, on a busy machine too
PARTITIONS = 4
SESSION_TIMEOUT_MS = 2000


class Load:
    """A producer that does not stop, and what it was told is safe."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "acks": "all"}
        )
        self.acknowledged: dict[str, tuple[int, int]] = {}
        self.failed: list[Any] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        for number in itertools.count():
            if self._done.is_set():
                return
            value = str(number)
            self._producer.produce(
                self._topic, value, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            self._producer.poll(0.002)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged[message.value().decode()] = (message.partition(), message.offset())

    def wait_for_more(self, count: int = 100) -> None:
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, f"{wanted} acknowledgements")

    def finish(self) -> set[str]:
        """Everything that was produced, all of it acknowledged."""
        self._done.set()
        self._thread.join()
        assert self._producer.flush(TIMEOUT_S) == 0
        assert not self.failed
        return set(self.acknowledged)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()


def create(bootstrap: str, topic: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
        future.result(TIMEOUT_S)
    return admin


@contextmanager
def watching(admin: AdminClient, group: str) -> Iterator[None]:
    """Looks at the group again and again: no partition has two owners, no committed offset goes back."""
    done, wrong = threading.Event(), []

    def watch() -> None:
        highest: dict[tuple[str, int], int] = {}
        while not done.wait(0.05):
            owned = owners(describe(admin, group))
            if len(owned) != len(set(owned)):
                wrong.append(f"two owners: {owned}")
            for place, offset in committed_offsets(admin, group).items():
                if offset < highest.setdefault(place, offset):
                    wrong.append(f"{place} went back from {highest[place]} to {offset}")
                highest[place] = offset

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    yield
    done.set()
    watcher.join(TIMEOUT_S)
    assert not wrong


def committed_offsets(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    found = future.result(TIMEOUT_S).topic_partitions
    return {(place.topic, place.partition): place.offset for place in found}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumers_killed_paused_and_added_under_load(
    broker: RunningBroker, topic: str, group: str, protocol: str
) -> None:
    """Every record is processed at least once, whatever happens to those who process them."""
    admin = create(broker.bootstrap, topic)
    options = {"settings": {"group.protocol": protocol}, "session_timeout_ms": SESSION_TIMEOUT_MS}
    with (
        group_of(broker.bootstrap, group, [topic]) as members,
        Load(broker.bootstrap, topic) as load,
        watching(admin, group),
    ):
        killed, paused = members.add(**options), members.add(**options)
        killed.wait_for(lambda it: len(it.values) > 20, "consumed")
        paused.wait_for(lambda it: len(it.values) > 20, "consumed")
        killed.kill()
        added = members.add(**options)
        added.wait_for(lambda it: len(it.values) > 20, "got its share")
        paused.pause()
        wait_until(lambda: len(added.owned) == PARTITIONS, "took all partitions over")
        paused.resume()
        load.wait_for_more()
        members.add(**options)
        members.wait_for_values(load.finish())


def test_the_broker_killed_under_load_loses_and_repeats_nothing(
    tmp_path: Path, topic: str, group: str
) -> None:
    """Every acknowledged record is there, once, at its offset; the group goes on from where it had committed."""
    with running_broker(tmp_path, offsets_topic_num_partitions="4") as broker:
        create(broker.bootstrap, topic)
        with group_of(broker.bootstrap, group, [topic]) as members, Load(broker.bootstrap, topic) as load:
            member = members.add()
            member.wait_for(lambda it: len(it.of("committed")) > 20, "committed")
            for _ in range(2):
                load.wait_for_more()
                broker.kill()
                committed = {(event["partition"]): event["offset"] for event in member.of("committed")}
                broker.start()
                after = committed_of(broker.bootstrap, group, topic)
                assert all(after[index] >= offset for index, offset in committed.items())
            load.wait_for_more()
            produced = load.finish()
            members.wait_for_values(produced)
        stored = everything(broker.bootstrap, topic)
    assert {value: place for place, value in stored.items()} == load.acknowledged


def committed_of(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """Return what the group has committed, partition by partition, as a consumer of it would find it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    found = {place.partition: place.offset for place in consumer.committed(places, TIMEOUT_S)}
    consumer.close()
    return found


def everything(bootstrap: str, topic: str) -> dict[tuple[int, int], str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    found = {}
    for index in range(PARTITIONS):
        place = TopicPartition(topic, index, 0)
        _, end = consumer.get_watermark_offsets(place, TIMEOUT_S)
        consumer.assign([place])
        for message in consumer.consume(end, TIMEOUT_S):
            found[index, message.offset()] = message.value().decode()
        assert len([place for place in found if place[0] == index]) == end
    consumer.close()
    return found


def test_a_producer_outlives_a_clean_restart(tmp_path: Path, topic: str) -> None:
    with running_broker(tmp_path) as broker:
        create(broker.bootstrap, topic)
        with Load(broker.bootstrap, topic) as load:
            load.wait_for_more()
            broker.restart()
            load.wait_for_more()
            load.finish()
        stored = everything(broker.bootstrap, topic)
    assert {value: place for place, value in stored.items()} == load.acknowledged


def test_topics_settings_and_records_outlive_a_kill(tmp_path: Path, topic: str) -> None:
    with running_broker(tmp_path) as broker:
        admin = create(broker.bootstrap, topic)
        cluster = admin.describe_cluster().result(TIMEOUT_S).cluster_id
        with Load(broker.bootstrap, topic) as load:
            load.wait_for_more(20)
            load.finish()
        broker.kill()
        broker.start()
        metadata = admin.list_topics(timeout=TIMEOUT_S)
        assert len(metadata.topics[topic].partitions) == PARTITIONS
        assert metadata.cluster_id == cluster
        assert len(everything(broker.bootstrap, topic)) == len(load.acknowledged)
        assert Confluent().consume(broker.bootstrap, topic, 1)[0].offset == 0
