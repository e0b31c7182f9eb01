"""Real clients that change the metadata without a pause, and a ledger of what they were told.

Every topic's name is used once. So the ledger is simple: a topic whose creation was acknowledged is there from then on,
until its deletion is asked for; one whose deletion was acknowledged is gone. What was neither confirmed nor refused,
because the response was lost, may be either. A topic that "exists already" was created by an earlier attempt of the
same client.

A client that gets no response begins anew, with the next broker: one that is cut off from the controllers cannot
know it.
"""

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka.admin import NewTopic as PythonTopic
from kafka.errors import KafkaError as PythonError
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

logging.getLogger("kafka").setLevel(logging.CRITICAL)  # that its brokers go away is what the tests are about

REQUEST_TIMEOUT_S = 5
DELETE_EVERY = 5

# Each returns True: it is as asked for; False: nobody knows.
Act = Callable[[str], bool]
Connect = Callable[[str], AbstractContextManager[tuple[Act, Act]]]


class Ledger:
    """The clients' knowledge of topics. Their threads write, the test reads."""

    def __init__(self) -> None:
        self.present: set[str] = set()
        self.absent: set[str] = set()
        self.acknowledged = 0
        self.in_doubt = 0
        self._changed = threading.Condition()

    def told(self, topic: str, is_known: bool, is_there: bool) -> None:
        with self._changed:
            self.present.discard(topic)
            if is_known:
                (self.present if is_there else self.absent).add(topic)
                self.acknowledged += 1
            else:
                self.in_doubt += 1
            self._changed.notify_all()

    def asked_to_delete(self, topic: str) -> None:
        with self._changed:
            self.present.discard(topic)

    def wait_for(self, count: int, timeout_s: float) -> None:
        """Until so many more changes are acknowledged than now."""
        with self._changed:
            wanted = self.acknowledged + count
            done = self._changed.wait_for(lambda: self.acknowledged >= wanted, timeout_s)
            assert done, f"{count} changes were not acknowledged in {timeout_s:g} s"

    def check(self, topics: set[str], where: str) -> None:
        lost, undead = self.present - topics, self.absent & topics
        assert not lost, (
            f"{where}: {len(lost)} topics are lost whose creation was acknowledged: {sorted(lost)[:5]}"
        )
        assert not undead, f"{where}: {len(undead)} topics are back that were deleted: {sorted(undead)[:5]}"


class Load:
    """Clients of two kinds in threads of their own, for the length of a `with` block."""

    def __init__(self, bootstrap: str, ledger: Ledger) -> None:
        self._ledger = ledger
        self._is_over = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(name, kind, bootstrap), name=name)
            for name, kind in (("confluent", confluent), ("kafka-python", kafka_python))
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        if self._failures and error is None:
            raise self._failures[0]

    def _run(self, name: str, connect: Connect, bootstrap: str) -> None:
        try:
            numbers = itertools.count(1)
            for broker in itertools.cycle(bootstrap.split(",")):
                with connect(broker) as (create, delete):
                    while not self._is_over.is_set() and self._change(
                        f"{name}-{next(numbers)}", create, delete
                    ):
                        pass
                if self._is_over.is_set():
                    return
        except BaseException as failure:
            self._failures.append(failure)

    def _change(self, topic: str, create: Act, delete: Act) -> bool:
        """True if all of it was acknowledged."""
        is_known = create(topic)
        self._ledger.told(topic, is_known, is_there=True)
        if is_known and int(topic.rpartition("-")[2]) % DELETE_EVERY == 0:
            self._ledger.asked_to_delete(topic)
            is_known = delete(topic)
            self._ledger.told(topic, is_known, is_there=False)
        return is_known


@contextmanager
def confluent(bootstrap: str) -> Iterator[tuple[Act, Act]]:
    timeout_ms = REQUEST_TIMEOUT_S * 1000
    admin = AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "socket.timeout.ms": timeout_ms,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )

    def outcome(futures: dict[str, object], done: int) -> bool:
        (future,) = futures.values()
        try:
            future.result()  # type: ignore[attr-defined]
        except KafkaException as error:
            return bool(error.args[0].code() == done)
        return True

    def create(topic: str) -> bool:
        futures = admin.create_topics([NewTopic(topic, 2, 1)], request_timeout=REQUEST_TIMEOUT_S)
        return outcome(futures, KafkaError.TOPIC_ALREADY_EXISTS)

    def delete(topic: str) -> bool:
        futures = admin.delete_topics([topic], request_timeout=REQUEST_TIMEOUT_S)
        return outcome(futures, KafkaError.UNKNOWN_TOPIC_OR_PART)

    yield create, delete


@contextmanager
def kafka_python(bootstrap: str) -> Iterator[tuple[Act, Act]]:
    try:
        admin = python_admin(bootstrap)
    except PythonError:  # nobody is there
        yield lambda topic: False, lambda topic: False
        return
    timeout_ms = REQUEST_TIMEOUT_S * 1000

    def create(topic: str) -> bool:
        try:
            admin.create_topics([PythonTopic(topic, 1, 1)], timeout_ms=timeout_ms)
        except TopicAlreadyExistsError:
            return True
        except PythonError:
            return False
        return True

    def delete(topic: str) -> bool:
        try:
            admin.delete_topics([topic], timeout_ms=timeout_ms)
        except UnknownTopicOrPartitionError:
            return True
        except PythonError:
            return False
        return True

    try:
        yield create, delete
    finally:
        admin.close()


def python_admin(bootstrap: str) -> KafkaAdminClient:
    return KafkaAdminClient(
        bootstrap_servers=bootstrap,
        request_timeout_ms=REQUEST_TIMEOUT_S * 1000,
        bootstrap_timeout_ms=REQUEST_TIMEOUT_S * 1000,
        reconnect_backoff_max_ms=200,
    )
