"""Real clients that write records and read them in groups without a pause, for the length of a `with` block.

Two idempotent producers, of two libraries, wait for all in-sync replicas, and try again for as long as it takes: so
nothing is in doubt at the end. Two groups, one of the classic protocol and one of KIP-848, have two members each that
commit what they have read. All of them are ordinary programs: they do not know what happens to the brokers.
"""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from kafka import KafkaProducer

from odradek.testing import Login
from tests.processes.record_ledger import RecordLedger

logging.getLogger("kafka").setLevel(logging.CRITICAL)  # that its brokers go away is what the tests are about

EVERYBODY = Login()
REQUEST_TIMEOUT_MS = 4_000  # after which a client gives up on a broker that does not answer
DELIVERY_TIMEOUT_MS = 600_000
SENDING = 50  # records of one producer that may wait for their acknowledgement
PACE_S = 0.02  # between two rounds of a producer: one record for each partition
MEMBERS = 2

GROUPS = {"classic-group": "classic", "consumer-group": "consumer"}  # name and protocol


class RecordLoad:
    def __init__(self, bootstrap: str, topic: str, ledger: RecordLedger, login: Login = EVERYBODY) -> None:
        self._bootstrap = bootstrap
        self._login = login
        self._topic = topic
        self._ledger = ledger
        self._no_more_records = threading.Event()
        self._is_over = threading.Event()
        self._failures: list[BaseException] = []
        self._producers = [self._thread(self._confluent), self._thread(self._kafka_python)]
        self._members = [
            self._thread(self._member, group, protocol)
            for group, protocol in GROUPS.items()
            for _ in range(MEMBERS)
        ]

    def _thread(self, work: Callable[..., None], *arguments: str) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as failure:
                self._failures.append(failure)

        return threading.Thread(target=run, name=work.__name__)

    def __enter__(self) -> "RecordLoad":
        for thread in (*self._producers, *self._members):
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._no_more_records.set()
        self._is_over.set()
        self._join(*self._producers, *self._members)
        if error is None:
            self.check()

    def stop_producing(self) -> None:
        """And wait until all that was sent is acknowledged."""
        self._no_more_records.set()
        self._join(*self._producers)
        self.check()

    @staticmethod
    def _join(*threads: threading.Thread) -> None:
        for thread in threads:
            thread.join()

    def check(self) -> None:
        """Raise what a client raised."""
        if self._failures:
            raise self._failures[0]

    # Producers

    def _confluent(self) -> None:
        problems: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": "confluent",
                **self._login.librdkafka,
                "enable.idempotence": True,
                "acks": "all",
                "socket.timeout.ms": REQUEST_TIMEOUT_MS,
                "request.timeout.ms": REQUEST_TIMEOUT_MS // 2,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "error_cb": lambda error: problems.append(error) if error.fatal() else None,
            }
        )

        def delivered(error: Any, message: Message) -> None:
            self._ledger.told(message.value(), None if error else message.offset(), error)

        while not self._no_more_records.wait(PACE_S):
            for partition in range(self._ledger.partitions):
                sent = self._ledger.next_of("confluent", partition)
                producer.produce(self._topic, sent.value, partition=partition, on_delivery=delivered)
            producer.poll(0)
            while len(producer) > SENDING and not problems:
                producer.poll(0.1)
            assert not problems, f"the producer gave up: {problems[0]}"
        assert producer.flush(DELIVERY_TIMEOUT_MS / 1000) == 0

    def _kafka_python(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap.split(","),
            client_id="kafka-python",
            **self._login.python,
            enable_idempotence=True,
            acks="all",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            reconnect_backoff_max_ms=500,
            max_block_ms=DELIVERY_TIMEOUT_MS,
        )
        room = threading.Semaphore(SENDING)

        def delivered(value: bytes, offset: int | None, error: object = None) -> None:
            room.release()
            self._ledger.told(value, offset, error)

        while not self._no_more_records.wait(PACE_S):
            for partition in range(self._ledger.partitions):
                room.acquire()
                value = self._ledger.next_of("kafka-python", partition).value
                future = producer.send(self._topic, value, partition=partition)
                future.add_callback(lambda found, value=value: delivered(value, found.offset))
                future.add_errback(lambda error, value=value: delivered(value, None, error))
        producer.flush(DELIVERY_TIMEOUT_MS / 1000)
        producer.close()

    # Groups

    def _member(self, group: str, protocol: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            **self._login.librdkafka,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "socket.timeout.ms": REQUEST_TIMEOUT_MS,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": 15_000, "heartbeat.interval.ms": 1_000}
        consumer = Consumer(settings)
        consumer.subscribe([self._topic])
        while not self._is_over.is_set():
            positions: dict[int, int] = {}
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    self._ledger.has_read(group, message.partition(), message.offset(), message.value())
                    positions[message.partition()] = message.offset() + 1
            if positions:
                self._commit(consumer, group, positions)
        consumer.close()

    def _commit(self, consumer: Consumer, group: str, positions: dict[int, int]) -> None:
        wanted = [TopicPartition(self._topic, partition, offset) for partition, offset in positions.items()]
        try:
            for done in consumer.commit(offsets=wanted, asynchronous=False):
                if done.error is None:
                    self._ledger.has_committed(group, done.partition, done.offset)
        except KafkaException:
            pass  # a rebalance, or nobody answered: what is not committed is read again


def read_all(
    bootstrap: str, topic: str, ends: dict[int, int], timeout_s: float, login: Login = EVERYBODY
) -> dict[int, dict[int, bytes]]:
    """Every record of a topic up to these offsets, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            **login.librdkafka,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
    )
    found: dict[int, dict[int, bytes]] = {partition: {} for partition in ends}
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    at_end: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while len(at_end) < len(ends):
        assert time.monotonic() < deadline, f"in {timeout_s:g} s only partitions {at_end} were read"
        for message in consumer.consume(1000, 0.1):
            if message.error() is None:
                found[message.partition()][message.offset()] = message.value()
            elif message.error().name() == "_PARTITION_EOF" and message.offset() >= ends[message.partition()]:
                at_end.add(message.partition())
    consumer.close()
    return found
