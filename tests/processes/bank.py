"""A bank: money moves between accounts by consume-transform-produce, and there is never more or less of it.

Transfers are in one topic. Workers (`bank_worker`) write two legs for each, a debit and a credit, usually into
different partitions of another, and commit them in one transaction with the offsets of the transfers. However often
workers and brokers are killed, each transfer happens once, and whoever reads committed records sees both of its legs.
Markers reach partitions one after the other, so a view reads on until no transfer is half there.
"""

import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TRANSFERS = "transfers"
ACCOUNTS = "accounts"
TRANSFER_PARTITIONS = 3
ACCOUNT_PARTITIONS = 6
ACCOUNT_COUNT = 20
OPENING_BALANCE = 100
TOTAL = ACCOUNT_COUNT * OPENING_BALANCE
GROUP = "bank"
PATIENCE_S = 120


class Transfer(NamedTuple):
    source: int
    target: int
    amount: int

    @property
    def legs(self) -> list[tuple[int, int]]:
        return [(self.source, -self.amount), (self.target, self.amount)]

    def encode(self) -> bytes:
        return b"%d %d %d" % self

    @classmethod
    def decode(cls, value: bytes) -> "Transfer":
        return cls(*map(int, value.split()))


class WrongView(AssertionError):
    """A reader saw what cannot be."""


def open_bank(bootstrap: str, transfer_count: int, rng: Random) -> dict[str, Transfer]:
    """Create topics, and order so many transfers."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(TRANSFERS, TRANSFER_PARTITIONS, 3), NewTopic(ACCOUNTS, ACCOUNT_PARTITIONS, 3)]
    for created in admin.create_topics(topics).values():
        created.result(PATIENCE_S)
    ordered: dict[str, Transfer] = {}
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(transfer_count):
        source, target = rng.sample(range(ACCOUNT_COUNT), 2)
        ordered[f"t{number}"] = transfer = Transfer(source, target, rng.randint(1, 50))
        producer.produce(
            TRANSFERS,
            key=f"t{number}",
            value=transfer.encode(),
            partition=number % TRANSFER_PARTITIONS,
        )
    assert producer.flush(PATIENCE_S) == 0
    return ordered


class Workers:
    """Processes that are started again when they end."""

    def __init__(self, bootstrap: str, count: int, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._starts = 0
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for number in range(count):
            self._start(number)

    def _start(self, number: int) -> None:
        self._starts += 1
        command = [sys.executable, "-m", "tests.processes.bank_worker", self._bootstrap, f"worker-{number}"]
        with (self._directory / f"worker-{number}.log").open("a") as log:
            self._processes[number] = subprocess.Popen([*command, str(self._starts)], stderr=log)

    def kill_one(self, rng: Random) -> None:
        """kill -9; its successor has the same transactional id."""
        number = rng.choice(sorted(self._processes))
        self._processes[number].kill()
        self._processes[number].wait()
        self.look_after()

    def look_after(self) -> None:
        """Start again those that have ended."""
        for number, process in self._processes.items():
            if process.poll() is not None:
                self._start(number)

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def logs(self) -> str:
        """The end of what each of them has logged, over all its lives."""
        return "\n".join(
            f"{path.name}:\n{path.read_text()[-2000:]}"
            for path in sorted(self._directory.glob("worker-*.log"))
        )


def is_done(bootstrap: str, transfer_count: int) -> bool:
    """True if the workers have committed the offsets of all transfers."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        wanted = [TopicPartition(TRANSFERS, index) for index in range(TRANSFER_PARTITIONS)]
        return sum(max(one.offset, 0) for one in reader.committed(wanted, PATIENCE_S)) == transfer_count
    finally:
        reader.close()


class View:
    """The accounts as one reader sees them, from the beginning to the end of what it may read."""

    def __init__(self, bootstrap: str, isolation_level: str) -> None:
        self._reader = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "views",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation_level,
            }
        )
        self.legs: dict[str, list[tuple[int, int]]] = defaultdict(list)

    def read(self, ordered: dict[str, Transfer]) -> int:
        """Return how many transfers there are. Raises WrongView if one is there twice, is another one than was
        ordered, or stays half, and if the total is not what it was in the beginning.
        """
        try:
            self._read()
        finally:
            self._reader.close()
        for transfer_id, legs in self.legs.items():
            if sorted(legs) != sorted(ordered[transfer_id].legs):
                raise WrongView(f"{transfer_id} should be {ordered[transfer_id].legs} and is {legs}")
        total = TOTAL + sum(amount for legs in self.legs.values() for _, amount in legs)
        if total != TOTAL:
            raise WrongView(f"there are {total} instead of {TOTAL}")
        return len(self.legs)

    def _read(self) -> None:
        self._reader.assign([TopicPartition(ACCOUNTS, index, 0) for index in range(ACCOUNT_PARTITIONS)])
        ended: set[int] = set()
        deadline = time.monotonic() + PATIENCE_S
        while len(ended) < ACCOUNT_PARTITIONS or any(len(legs) == 1 for legs in self.legs.values()):
            if time.monotonic() > deadline:
                half = [transfer_id for transfer_id, legs in self.legs.items() if len(legs) == 1]
                raise WrongView(f"only one leg of {half}, after {PATIENCE_S} s" if half else "no end")
            message = self._reader.poll(0.2)
            if message is None:
                continue
            if message.error():
                ended.add(message.partition())
                continue
            transfer_id, amount = message.value().decode().split()
            self.legs[transfer_id].append((int(message.key()), int(amount)))
