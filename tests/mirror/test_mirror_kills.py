"""A mirror on real brokers that is killed at every request, with -9 under load, and together with the target's brokers.

After every kill the ledger is compared: what is in the copy is what the source has, each record once, in order, up to
where the copy has come.
"""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.client.cluster import Cluster as Client
from odradek.client.connection import Connection
from odradek.client.settings import ClientSettings, FetchSettings, ProduceSettings
from odradek.mirror import protocol as steps
from odradek.mirror.copying import CARRIED_OUT, Clients, Copier
from odradek.mirror.position import Copy
from odradek.mirror.positions import NAME, Positions
from odradek.testing import Cluster, Node, cluster
from tests.ledger.simulated_cluster import Crashed
from tests.mirror.lab import Process, client, fill, ledger, records_of, run_once, running, write_file
from tests.processes.nodes import until
from tests.spark.spark_topics import Topics

FETCH = FetchSettings(read_committed=True, max_wait_ms=50, max_bytes=1500)


class Requests:
    """The requests of one life to both clusters. The process dies at one of them, before it is sent or after its
    response.
    """

    def __init__(self, number: int = -1, *, after: bool = False) -> None:
        self.number, self.after = number, after
        self.sent: list[Any] = []
        self._lock = threading.Lock()

    def send(self, request: Any) -> None:
        with self._lock:
            self.sent.append(request)
            if not self.after and len(self.sent) == self.number + 1:
                raise Crashed

    def received(self) -> None:
        if self.after and len(self.sent) >= self.number + 1 > 0:
            raise Crashed


class MortalClient(Client):
    def __init__(self, bootstrap: str, requests: Requests) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        super().__init__(ClientSettings(bootstrap=((host, int(port)),)))
        self._requests = requests

    def _connection(self, host: str, port: int) -> Connection:
        connection = super()._connection(host, port)
        if not hasattr(connection, "watched"):
            send, receive, requests = connection.send, connection.receive, self._requests

            def watched_send(request, response_type):
                requests.send(request)
                send(request, response_type)

            def watched_receive():
                response = receive()
                requests.received()
                return response

            connection.send, connection.receive, connection.watched = watched_send, watched_receive, True
        return connection


def life(west: str, east: str, name: str, topic: str, requests: Requests) -> Copier:
    def new(bootstrap: str) -> MortalClient:
        return MortalClient(bootstrap, requests)

    positions = Positions(client(east))
    positions.prepare()
    with ThreadPoolExecutor(1) as executor:
        clients = Clients(new(west), new(west), new(east))
        copier = Copier(
            Copy(name, topic, 0),
            f"{name}.{topic}",
            clients,
            positions,
            executor,
            fetch=FETCH,
            produce=ProduceSettings(transaction_timeout_ms=60_000),
            once=True,
        )
        copier.run()
    return copier


def check_is_prefix(west: str, east: str, topic: str, copy: str) -> int:
    """Return the number of records that have arrived."""
    copied = ledger(east, copy)
    source = ledger(west, topic)  # later: the other process goes on
    for number, records in copied.items():
        assert records == source[number][: len(records)]
    return sum(map(len, copied.values()))


@pytest.mark.parametrize(
    "after", [pytest.param(False, id="before"), pytest.param(True, id="after", marks=pytest.mark.long)]
)
def test_killed_at_every_request(west, east, after):
    """Until a life has fewer requests than that."""
    topic = f"killed-{after}"
    Topics(west.bootstrap).create(1, topic)
    fill(west.bootstrap, topic, 40, partitions=1)
    source = ledger(west.bootstrap, topic)
    number = 0
    while True:
        name, requests = f"k{number}-{after}", Requests(number, after=after)
        Topics(east.bootstrap).create(1, f"{name}.{topic}")
        try:
            life(west.bootstrap, east.bootstrap, name, topic, requests)
            break
        except Crashed:
            number += 1
        assert life(west.bootstrap, east.bootstrap, name, topic, Requests()).progress.state == "finished"
        assert ledger(east.bootstrap, f"{name}.{topic}") == source, f"killed at {requests.sent[-1]}"
    assert number > 25


class Load:
    """Writes numbered records to two partitions, and now and then a transaction that is aborted."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": self._topic, "batch.size": 2000}
        )
        producer.init_transactions(60)
        number = 0
        while not self._over.is_set():
            producer.begin_transaction()
            for _ in range(40):
                producer.produce(self._topic, f"record {number}", partition=number % 2)
                number += 1
            if number % 3:
                producer.commit_transaction(60)
            else:
                producer.flush(60)
                producer.abort_transaction(60)
            self._over.wait(0.05)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.long
def test_processes_that_are_killed_under_load(west, east, tmp_path):
    Topics(west.bootstrap).create(2, "under-load")
    file = write_file(
        tmp_path, west.bootstrap, east.bootstrap, 'names = ["under-load"]', names=("load", "east")
    )
    processes = [Process(file), Process(file)]
    with running(*processes):
        with Load(west.bootstrap, "under-load"):
            until(lambda: "load.under-load" in client(east.bootstrap).topic_names(), "the copy is there")
            copied = 0
            for number in range(8):
                victim = processes[number % 2]
                before = copied

                def has_more(before: int = before) -> bool:
                    return sum(map(len, records_of(east.bootstrap, "load.under-load").values())) > before + 50

                until(has_more, "more is copied")
                victim.kill()
                copied = check_is_prefix(west.bootstrap, east.bootstrap, "under-load", "load.under-load")
                victim.start()
        for one in processes:
            until(lambda one=one: one.is_assigned, "each is a member again")
            assert one.end() == 0, one.log.read_text()[-3000:]
    run_once(file)
    assert ledger(east.bootstrap, "load.under-load") == ledger(west.bootstrap, "under-load")


@pytest.mark.long
def test_a_process_that_is_stopped_until_it_has_lost_its_partitions(west, east, tmp_path):
    """It is fenced, joins again, and gets its share back."""
    Topics(west.bootstrap).create(2, "stopped")
    file = write_file(tmp_path, west.bootstrap, east.bootstrap, 'names = ["stopped"]', names=("stop", "east"))
    one, two = Process(file), Process(file)
    with running(one, two):
        until(lambda: len(one.partitions or ()) == len(two.partitions or ()) == 1, "each has a partition")
        with Load(west.bootstrap, "stopped"):
            assert one.process is not None
            one.process.send_signal(signal.SIGSTOP)
            until(lambda: len(two.partitions or ()) == 2, "the other has both")
            one.process.send_signal(signal.SIGCONT)
            until(lambda: len(two.partitions or ()) == 1, "the first is back")
        until(
            lambda: ledger(east.bootstrap, "stop.stopped") == ledger(west.bootstrap, "stopped"),
            "everything is copied once",
        )
        assert one.end() == two.end() == 0


# A source or a target of three brokers, of which one is killed before each step


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with cluster(3) as three:
        three.create_topic("west.survivor", partitions=1, replicas=[[1, 2, 3]])
        yield three


def coordinator(three: Cluster) -> Node:
    return three.transaction_coordinator(Copy("west", "survivor", 0).transactional_id)


def leader_of_the_copy(three: Cluster) -> Node:
    return three.leader("west.survivor", 0)


def leader_of_the_positions(three: Cluster) -> Node:
    positions = Positions(client(three.bootstrap))
    positions.prepare()
    return three.leader(NAME, positions.partition_of(Copy("west", "survivor", 0)).partition)


@pytest.mark.long
@pytest.mark.parametrize("step", [steps.Write, steps.Record, steps.Commit])
def test_a_broker_of_the_target_is_killed_before_a_step(west, three, step, tmp_path: Path, monkeypatch):
    topics = Topics(west.bootstrap)
    if "survivor" not in client(west.bootstrap).topic_names():
        topics.create(1, "survivor")
    file = write_file(tmp_path, west.bootstrap, three.bootstrap, 'names = ["survivor"]')
    for find in (coordinator, leader_of_the_copy, leader_of_the_positions):
        fill(west.bootstrap, "survivor", 40, partitions=1)
        killed: list[Node] = []

        def carry_out(self, one, carried_out=CARRIED_OUT[step], find=find, killed=killed):
            if not killed:
                killed.append(find(three))
                killed[0].crash()
            return carried_out(self, one)

        with monkeypatch.context() as patch:
            patch.setitem(CARRIED_OUT, step, carry_out)
            run_once(file)
        assert killed
        killed[0].start()
        three.wait_until_in_sync()
        assert ledger(three.bootstrap, "west.survivor") == ledger(west.bootstrap, "survivor")


@pytest.mark.long
def test_the_leader_of_the_source_is_killed_before_fetches(east, three, tmp_path: Path, monkeypatch):
    three.create_topic("led", partitions=1, replicas=[[1, 2, 3]])
    file = write_file(tmp_path, three.bootstrap, east.bootstrap, 'names = ["led"]', names=("three", "east"))
    for _ in range(3):
        fill(three.bootstrap, "led", 200, partitions=1)  # half a dozen fetches
        fetches: list[Node] = []

        def fetch(self, one, carried_out=CARRIED_OUT[steps.Fetch], fetches=fetches):
            fetches.append(three.leader("led", 0))
            if len(fetches) == 3:
                fetches[-1].crash()
            return carried_out(self, one)

        with monkeypatch.context() as patch:
            patch.setitem(CARRIED_OUT, steps.Fetch, fetch)
            run_once(file)
        fetches[2].start()
        three.wait_until_in_sync()
        assert ledger(east.bootstrap, "three.led") == ledger(three.bootstrap, "led")
