"""A group of three consumers on a topic, and a producer for the topic of the exercise: something to look at.

They are threads of the console, few, and stop by themselves: nobody should have to remember that they run. Consumers
drop what they read, and commit it to a group of their own. The producer writes to no topic but `exercise`.
"""

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from odradek.admin.access import Access
from odradek.admin.failures import AdminError, BadRequest
from odradek.admin.librdkafka import kafka, make_client

GROUP_SIZE = 3
MOST_EXERCISES = 2
LONGEST_S = 1800.0
TOPIC = "exercise"
PARTITIONS = 3
RECORDS_A_SECOND = 5
PRODUCER = "picture-producer"

log = logging.getLogger("odradek.console.picture")


def group_of(topic: str) -> str:
    return f"picture-{topic}"


@dataclass
class Running:
    """One consumer or the producer."""

    name: str
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self.thread is not None and self.thread.is_alive() and not self.stop.is_set()

    def end(self) -> None:
        self.stop.set()

    def join(self) -> None:
        if self.thread is not None:
            self.thread.join(10)


class Exercises:
    """The exercises of one console, by cluster and topic."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], dict[str, Running]] = {}
        self._lock = threading.Lock()

    def running(self, cluster: str, topic: str) -> list[str]:
        """The names of consumers, and of the producer, that run."""
        with self._lock:
            return self._alive((cluster, topic))

    def _alive(self, key: tuple[str, str]) -> list[str]:
        return sorted(name for name, one in self._running.get(key, {}).items() if one.is_running)

    def start(self, cluster: str, topic: str, access: Access) -> list[str]:
        """Start those of the three that do not run."""
        return self._start(cluster, topic, access, [f"picture-{one}" for one in range(1, GROUP_SIZE + 1)])

    def start_producer(self, cluster: str, topic: str, access: Access) -> list[str]:
        if topic != TOPIC:
            raise BadRequest(f"records are made up for the topic {TOPIC} alone")
        return self._start(cluster, topic, access, [PRODUCER])

    def _start(self, cluster: str, topic: str, access: Access, names: list[str]) -> list[str]:
        key = (cluster, topic)
        with self._lock:
            others = [one for one in self._running if one != key and self._alive(one)]
            self._running = {one: there for one, there in self._running.items() if one in (*others, key)}
            if len(others) >= MOST_EXERCISES:
                raise AdminError(
                    f"{MOST_EXERCISES} topics have a group of three already: stop that of {others[0][1]} first"
                )
            there = self._running.setdefault(key, {})
            started = [name for name in names if not (name in there and there[name].is_running)]
            for name in started:
                one = Running(name)
                work = _produce if name == PRODUCER else _consume
                one.thread = threading.Thread(
                    target=_guarded, args=(work, access, topic, one), name=name, daemon=True
                )
                there[name] = one
                one.thread.start()
        return started

    def stop(self, cluster: str, topic: str, name: str | None = None) -> list[str]:
        """Stop one of them, or all."""
        with self._lock:
            there = self._running.get((cluster, topic), {})
            ended = [one for one in there.values() if one.is_running and name in (None, one.name)]
            for one in ended:
                one.end()
        return sorted(one.name for one in ended)

    def stop_all(self) -> None:
        with self._lock:
            all_of_them = [one for there in self._running.values() for one in there.values()]
        for one in all_of_them:
            one.end()
        for one in all_of_them:
            one.join()


def _guarded(work: Any, access: Access, topic: str, own: Running) -> None:
    try:
        work(access, topic, own)
    except AdminError as error:
        log.warning("%s on %s ended: %s", own.name, topic, error)
    except Exception:
        log.exception("%s on %s ended", own.name, topic)
    finally:
        own.end()


def _consume(access: Access, topic: str, own: Running) -> None:
    settings = {
        "client.id": own.name,
        "group.id": group_of(topic),
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 1000,
        "session.timeout.ms": 10_000,
        "fetch.max.bytes": 1024 * 1024,
        "queued.max.messages.kbytes": 2048,
        "allow.auto.create.topics": False,
    }
    consumer = make_client(access, kafka.Consumer, settings)
    try:
        consumer.subscribe([topic])
        ends_s = time.monotonic() + LONGEST_S
        while not own.stop.is_set() and time.monotonic() < ends_s:
            consumer.consume(500, 0.25)
    finally:
        consumer.close()


def _produce(access: Access, topic: str, own: Running) -> None:
    producer = make_client(access, kafka.Producer, {"client.id": own.name, "message.timeout.ms": 10_000})
    number, ends_s = 0, time.monotonic() + LONGEST_S
    while not own.stop.wait(1 / RECORDS_A_SECOND) and time.monotonic() < ends_s:
        number += 1
        try:
            producer.produce(topic, f"record {number}".encode(), str(number).encode())
        except BufferError:  # the cluster is away: those that wait are enough
            pass
        producer.poll(0)
    producer.flush(5)
