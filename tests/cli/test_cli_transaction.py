"""`odradek transaction`, run as a user runs it, beside producers with open transactions."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from subprocess import CompletedProcess
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.client import connection
from odradek.model import OFFSETS_TOPIC
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.peer.exchange import served_versions
from tests.protocol.raw import Raw, batch
from tests.support import running_broker

Odradek = Callable[..., CompletedProcess[str]]
HOUR_MS = 3_600_000
STRANGER = 987_654_321  # a producer that no coordinator knows
BEFORE_VERIFICATION = 11  # of Produce: the client adds its partitions itself


@pytest.fixture(autouse=True)
def transactions(bootstrap: str) -> None:
    if ListTransactionsRequest.API_KEY not in served_versions(bootstrap):
        pytest.skip("this cluster has no transactions")


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that takes what claims to be part of a transaction, as all brokers did before KIP-890."""
    directory = tmp_path_factory.mktemp("trusting")
    settings = {"transaction_partition_verification_enable": "false", "offsets_topic_num_partitions": "1"}
    with running_broker(directory, **settings) as broker:
        yield broker.bootstrap


@pytest.fixture
def there(trusting: str, run_here: Odradek) -> Odradek:
    """The command, for that broker."""
    return partial(run_here, environ={"ODRADEK_BOOTSTRAP_SERVER": trusting})


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)


@contextmanager
def open_transaction(bootstrap: str, topic: str, transactional_id: str) -> Iterator[Producer]:
    """Keep a transaction open, with one record in partition 0, for the length of a block."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    assert producer.flush(30) == 0
    yield producer
    producer.abort_transaction(30)


def leave_hanging(
    bootstrap: str, topic: str, partition: int = 0, *, producer_id: int = STRANGER, age_ms: int = HOUR_MS
) -> None:
    """A record of a transaction that this partition is no part of."""
    timestamp = time.time_ns() // 1_000_000 - age_ms
    data = batch(
        b"hanging",
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    topics = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, data)])]
    with Raw(bootstrap) as raw:
        response = raw.ask(ProduceRequest("stranger", -1, 30_000, topics), BEFORE_VERIFICATION)
    assert response.responses[0].partition_responses[0].error_code == 0


def read(odradek: Odradek, *arguments: str) -> Any:
    result = odradek("transaction", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def hanging(odradek: Odradek, *arguments: str) -> list[tuple[str, int, int, int]]:
    """Topic, partition, producer and start offset of each."""
    return [
        (one["topic"], one["partition"], one["producer_id"], one["start_offset"])
        for one in read(odradek, "find-hanging", *arguments)
    ]


def committed_values(bootstrap: str, topic: str) -> list[bytes | None]:
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while (message := consumer.poll(30)) is not None and not message.error():
        values.append(message.value())
    consumer.close()
    return values


def read_once_over(odradek: Odradek, *arguments: str) -> list[dict[str, Any]]:
    """A coordinator responds to EndTxn before all partitions have the markers."""
    while True:
        found: list[dict[str, Any]] = read(odradek, *arguments)
        if not any(one["state"].startswith("Prepare") for one in found):
            return found


# --- list and describe ---


def test_transactions_are_listed(odradek: Odradek, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    with open_transaction(bootstrap, topic, f"{topic}-id"):
        (listed,) = read(odradek, "list", "--id-pattern", f"{topic}.*")
        assert (listed["transactional_id"], listed["state"]) == (f"{topic}-id", "Ongoing")
        by_producer = read(odradek, "list", "--producer-id", str(listed["producer_id"]))
        assert by_producer == [listed]
        assert listed in read(odradek, "list", "--state", "ongoing")
        assert listed not in read(odradek, "list", "--state", "CompleteCommit")
        assert listed in read(odradek, "list", "--longer-than", "0ms")
        assert listed not in read(odradek, "list", "--longer-than", "1h")
        header, row = odradek(
            "transaction", "list", "--producer-id", str(listed["producer_id"])
        ).stdout.splitlines()
        assert header.split() == ["TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"]
        assert row.split()[0] == f"{topic}-id"
    assert listed["state"] == "Ongoing"
    (later,) = read_once_over(odradek, "list", "--producer-id", str(listed["producer_id"]))
    assert later["state"] == "CompleteAbort"


def test_a_transaction_is_described(odradek: Odradek, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    before_ms = time.time_ns() // 1_000_000
    with open_transaction(bootstrap, topic, f"{topic}-id"):
        (view,) = read(odradek, "describe", f"{topic}-id")
        header, row = odradek("transaction", "describe", f"{topic}-id").stdout.splitlines()
    assert (view["state"], view["timeout_ms"], view["partitions"]) == ("Ongoing", 60_000, [[topic, 0]])
    assert view["started_ms"] >= before_ms
    assert header.split() == [
        *("TRANSACTIONAL-ID", "COORDINATOR", "STATE", "PRODUCER-ID", "EPOCH"),
        *("TIMEOUT", "RUNNING", "PARTITIONS"),
    ]
    assert row.split()[-1] == f"{topic}-0"
    (over,) = read_once_over(odradek, "describe", "--transactional-id", f"{topic}-id")
    assert (over["state"], over["started_ms"], over["partitions"]) == ("CompleteAbort", None, [])


def test_an_id_that_nobody_knows_is_a_failure(odradek: Odradek, topic: str) -> None:
    result = odradek("transaction", "describe", topic)
    assert (result.returncode, result.stderr) == (1, f"error: no coordinator knows {topic}\n")


def test_bad_usage(odradek: Odradek) -> None:
    for arguments in (
        ("list", "--state", "unheard-of"),
        ("list", "--longer-than", "soon"),
        ("describe",),
        ("find-hanging", "--partition", "0"),
        ("abort", "t", "--partition", "0", "--yes"),
        ("abort", "t", "--partition", "0", "--producer-id", "1", "--yes"),
        ("abort", "--partition", "0", "--start-offset", "0", "--yes"),
    ):
        assert odradek("transaction", *arguments).returncode == 2, arguments


def test_a_broker_that_is_too_old_for_a_filter_says_so(
    odradek: Odradek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older request could not name the filter, and the broker would list everything."""
    monkeypatch.setitem(connection.HIGHEST_VERSIONS, "ListTransactions", 0)
    assert odradek("transaction", "list").returncode == 0
    for filter_ in (("--longer-than", "1s"), ("--id-pattern", "a")):
        result = odradek("transaction", "list", *filter_)
        assert result.returncode == 1
        assert "is too old: it serves ListTransactions in version 0" in result.stderr


# --- hanging transactions ---


def test_a_transaction_that_will_end_does_not_hang(odradek: Odradek, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    with open_transaction(bootstrap, topic, f"{topic}-id"):
        assert hanging(odradek, "--topic", topic, "--max-transaction-timeout", "0") == []


def test_a_hanging_transaction_is_found_and_aborted(there: Odradek, trusting: str, topic: str) -> None:
    create(trusting, topic)
    before = Producer({"bootstrap.servers": trusting})
    before.produce(topic, "before")
    assert before.flush(30) == 0
    leave_hanging(trusting, topic)
    offset = 1
    found = [(topic, 0, STRANGER, offset)]
    assert hanging(there, "--topic", topic) == found
    assert hanging(there, "--topic", topic, "--partition", "0") == found
    assert found[0] in hanging(there)
    assert found[0] in hanging(there, "--broker", "1")
    assert hanging(there, "--broker", "2") == []
    table = there("transaction", "find-hanging", "--topic", topic)
    assert table.stdout.splitlines()[1].split()[:3] == [topic, "0", str(STRANGER)]
    assert f"odradek transaction abort {topic} --partition 0 --start-offset {offset}\n" in table.stderr
    wrong = there(
        "transaction", "abort", topic, "--partition", "0", "--start-offset", str(offset + 1), "--yes"
    )
    assert wrong.stderr == f"error: no open transaction of {topic}-0 begins at {offset + 1}\n"
    done = there("transaction", "abort", topic, "--partition", "0", "--start-offset", str(offset), "--yes")
    assert (done.returncode, done.stdout) == (
        0,
        f"Aborted the transaction of producer {STRANGER} in {topic}-0.\n",
    )
    assert hanging(there, "--topic", topic) == []
    assert committed_values(trusting, topic) == [b"before"]


def test_a_partition_that_is_not_in_its_producers_transaction_hangs(
    there: Odradek, trusting: str, topic: str
) -> None:
    create(trusting, topic, partitions=2)
    with open_transaction(trusting, topic, f"{topic}-id"):
        (view,) = read(there, "describe", f"{topic}-id")
        leave_hanging(trusting, topic, 1, producer_id=view["producer_id"])
        found = hanging(there, "--topic", topic, "--max-transaction-timeout", "0")
        assert found == [(topic, 1, view["producer_id"], 0)]


def test_what_was_written_a_moment_ago_does_not_hang_yet(there: Odradek, trusting: str, topic: str) -> None:
    create(trusting, topic)
    leave_hanging(trusting, topic, age_ms=60_000)
    assert hanging(there, "--topic", topic) == []
    assert len(hanging(there, "--topic", topic, "--max-transaction-timeout", "0")) == 1


def test_a_transaction_is_aborted_by_its_producer(there: Odradek, trusting: str, topic: str) -> None:
    """The tool does so for brokers that cannot describe producers. Kafka's flag names the topic."""
    create(trusting, topic)
    leave_hanging(trusting, topic)
    abort = ("transaction", "abort", "--topic", topic, "--partition", "0", "--yes")
    epochs = ("--producer-epoch", "0", "--coordinator-epoch", "-1")
    result = there(*abort, "--producer-id", str(STRANGER), *epochs)
    assert result.returncode == 0, result.stderr
    assert hanging(there, "--topic", topic) == []


def test_what_is_not_there_cannot_be_aborted(there: Odradek, trusting: str, topic: str) -> None:
    abort = ("--start-offset", "0", "--yes")
    missing = there("transaction", "abort", topic, "--partition", "0", *abort)
    assert missing.stderr == f"error: topic '{topic}' does not exist\n"
    create(trusting, topic)
    assert there("transaction", "abort", topic, "--partition", "7", *abort).stderr == (
        f"error: {topic} has no partition 7\n"
    )
    internal = there("transaction", "abort", OFFSETS_TOPIC, "--partition", "0", *abort)
    assert "add --force" in internal.stderr


def test_it_asks_before_it_aborts(there: Odradek, trusting: str, topic: str) -> None:
    create(trusting, topic)
    leave_hanging(trusting, topic)
    refused = there("transaction", "abort", topic, "--partition", "0", "--start-offset", "0")
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    assert len(hanging(there, "--topic", topic)) == 1


def test_a_transaction_that_its_coordinator_has_open_needs_force(
    odradek: Odradek, bootstrap: str, topic: str
) -> None:
    create(bootstrap, topic)
    abort = ("transaction", "abort", topic, "--partition", "0", "--start-offset", "0", "--yes")
    with open_transaction(bootstrap, topic, f"{topic}-id"):
        refused = odradek(*abort)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert f"as Ongoing (transactional id {topic}-id)" in refused.stderr
        assert "may still commit it" in refused.stderr
        assert "--force" in refused.stderr
        forced = odradek(*abort, "--force")
        assert forced.returncode == 0, forced.stderr
        assert "Aborted the transaction" in forced.stdout


def test_only_open_transactions_take_long(odradek: Odradek, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    with open_transaction(bootstrap, topic, f"{topic}-over"):
        pass
    Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-empty"}).init_transactions(30)
    with open_transaction(bootstrap, topic, f"{topic}-open"):
        named = ("list", "--id-pattern", f"{topic}.*")
        assert len(read(odradek, *named)) == 3
        (listed,) = read(odradek, *named, "--longer-than", "0ms")
    assert listed["transactional_id"] == f"{topic}-open"
