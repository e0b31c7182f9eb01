"""Transactions by Kafka's own clients and tools: on our broker, and on the files it leaves behind; and our commands
about transactions, on Apache Kafka."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.peer.exchange import Cluster, served_versions
from tests.peer.scripts import TIME_MS
from tests.peer.test_peer_tools import CONSUMER, dump, tool
from tests.peer.transaction_scripts import ABORT, COMMIT, Producer, find_coordinators, settled
from tests.support import RunningBroker, run_command, running_broker
from tools.peer.kafka import KafkaPeer

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"

COPIED = 300
COMPLETE_COMMIT = 4  # as the records say it
TIMEOUT_MS = 900_000  # of transactions: longer than these tests
LAST_VERSION_THAT_ADDS_NOTHING = 11  # of Produce

Row = dict[str, str]


def connect(bootstrap: str, **pinned: int) -> Cluster:
    versions = served_versions(bootstrap)
    produce_version = pinned.get("produce", versions[0][1])
    return Cluster(bootstrap, lambda key: produce_version if key == 0 else versions[key][1])


def copy(bootstrap: str, *options: str, source: str, target: str) -> list[dict[str, Any]]:
    """Consume, transform, produce, by the Java client: what the tool says."""
    output = tool(
        COPIER,
        *("--broker-list", bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--consumer-group", f"copies-to-{target}"),
        *("--transaction-size", "20", "--transactional-id", f"copier-to-{target}", *options),
    )
    return [json.loads(line) for line in output.splitlines()]


def consumed(bootstrap: str, topic: str, isolation: str) -> list[str]:
    """All of its only partition."""
    options = ("--from-beginning", "--exit-at-end", "--isolation", isolation)
    result = run_command("consume", topic, "-b", bootstrap, *options)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def fill(bootstrap: str, topic: str) -> list[str]:
    lines = [f"line {number}" for number in range(COPIED)]
    result = run_command("produce", topic, "-b", bootstrap, stdin="\n".join(lines) + "\n")
    assert result.returncode == 0, result.stderr
    return lines


# --- clients ---


@pytest.mark.parametrize(
    "options", [(), ("--group-mode", "--use-group-metadata")], ids=["assigned", "in a group"]
)
def test_the_java_client_copies_each_message_once(
    jars: Path, ours: RunningBroker, options: tuple[str, ...]
) -> None:
    source = "copied-in-a-group" if options else "copied"
    target = f"{source}-to"
    sent = fill(ours.bootstrap, source)
    assert run_command("topic", "create", target, "-b", ours.bootstrap).returncode == 0
    said = copy(ours.bootstrap, "--enable-random-aborts", *options, source=source, target=target)
    assert said[-1]["totalProcessed"] == COPIED
    assert consumed(ours.bootstrap, target, "read_committed") == sent
    by_java = tool(
        CONSUMER,
        *(
            "--bootstrap-server",
            ours.bootstrap,
            "--topic",
            target,
            "--partition",
            "0",
            "--offset",
            "earliest",
        ),
        *("--isolation-level", "read_committed", "--max-messages", str(COPIED)),
    )
    assert by_java.splitlines() == sent
    described = run_command("group", "describe", f"copies-to-{target}", "-b", ours.bootstrap, "--json")
    (group,) = json.loads(described.stdout)
    (place,) = group["partitions"]
    assert (place["current_offset"], place["lag"]) == (COPIED, 0)


def test_the_java_client_writes_in_transactions(jars: Path, ours: RunningBroker) -> None:
    tool(
        PERFORMANCE,
        *("--topic", "performed", "--num-records", "500", "--record-size", "20", "--throughput", "-1"),
        *("--transactional-id", "performer", "--transaction-duration-ms", "20"),
        *("--producer-props", f"bootstrap.servers={ours.bootstrap}"),
    )
    assert len(consumed(ours.bootstrap, "performed", "read_committed")) == 500


def test_the_java_client_without_transactions(jars: Path, ours: RunningBroker) -> None:
    said = tool(
        VERIFIABLE_PRODUCER,
        *("--bootstrap-server", ours.bootstrap, "--topic", "verifiable", "--max-messages", "100"),
    ).splitlines()
    results = [json.loads(line) for line in said]
    assert sum(result["name"] == "producer_send_success" for result in results) == 100
    assert len(consumed(ours.bootstrap, "verifiable", "read_committed")) == 100


# --- kafka-transactions ---


@dataclass
class Scene:
    """A broker that does not verify what clients of the older protocol write, so that a transaction can be left
    hanging."""

    bootstrap: str
    is_ours: bool
    prefix: str = "scene"
    connections: list[Cluster] = field(default_factory=list)

    def producer(self, name: str, **pinned: int) -> Producer:
        cluster = connect(self.bootstrap, **pinned)
        self.connections.append(cluster)
        return Producer(cluster, f"{self.prefix}-{name}", timeout_ms=TIMEOUT_MS)

    def set(self) -> None:
        """One transaction is open, one ended, one hangs."""
        self.hanging = self.producer("hanging", produce=LAST_VERSION_THAT_ADDS_NOTHING)
        find_coordinators(self.hanging.cluster, self.prefix)
        self.hanging.cluster.create(
            self.prefix, 2, message_timestamp_before_max_ms=str(2**63 - 1), retention_ms="-1"
        )
        self.hanging.begin()
        records = self.hanging.records(self.prefix, b"never to be ended", partition=1)
        response = settled(self.hanging.cluster, self.hanging.producing(self.prefix, records, 1))
        assert response.responses[0].partition_responses[0].error_code == 0, response
        self.open, self.ended = self.producer("open").begin(), self.producer("ended").begin()
        for producer in (self.open, self.ended):
            producer.cluster.await_topic(self.prefix, 2)
            producer.send(self.prefix, b"a", b"b")
        self.ended.end(COMMIT)

    def close(self) -> None:
        for cluster in self.connections:
            cluster.close()


UNVERIFIED = {"transaction_partition_verification_enable": "false"}


@pytest.fixture(scope="module")
def on_ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with running_broker(tmp_path_factory.mktemp("scene"), **UNVERIFIED) as broker:
        scene = Scene(broker.bootstrap, is_ours=True)
        scene.set()
        yield scene
        scene.close()


@pytest.fixture(scope="module")
def on_kafka(jars: Path) -> Iterator[Scene]:
    with KafkaPeer(**UNVERIFIED) as peer:
        scene = Scene(peer.bootstrap, is_ours=False)
        scene.set()
        yield scene
        scene.close()


@pytest.fixture(params=["ours", "kafka"])
def scene(request: pytest.FixtureRequest) -> Scene:
    found: Scene = request.getfixturevalue(f"on_{request.param}")
    return found


def transactions(scene: Scene, *arguments: str) -> list[Row]:
    """The table that Kafka's tool prints."""
    output = tool(TRANSACTIONS, "--bootstrap-server", scene.bootstrap, *arguments)
    lines = [line.split("\t") for line in output.splitlines() if "\t" in line]
    if not lines:
        return []
    header = [name.strip() for name in lines[0]]
    return [dict(zip(header, (cell.strip() for cell in line), strict=True)) for line in lines[1:]]


def our_command(scene: Scene, *arguments: str) -> Any:
    result = run_command("transaction", *arguments, "-b", scene.bootstrap, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_list_by_kafkas_tool(jars: Path, on_ours: Scene) -> None:
    rows = {row["TransactionalId"]: row for row in transactions(on_ours, "list")}
    assert {name: row["TransactionState"] for name, row in rows.items()} == {
        "scene-open": "Ongoing",
        "scene-ended": "CompleteCommit",
        "scene-hanging": "Empty",
    }
    assert rows["scene-open"]["ProducerId"] == str(on_ours.open.id)
    assert rows["scene-open"]["Coordinator"] == "1"
    (row,) = transactions(on_ours, "list", "--duration-filter", "1", "--transactional-id-pattern", ".*-op.n")
    assert row["TransactionalId"] == "scene-open"
    rows_of_an_hour = transactions(on_ours, "list", "--duration-filter", "3600000")
    assert [row["TransactionState"] for row in rows_of_an_hour] == ["Empty"]  # Kafka has it run for ever


def test_describe_by_kafkas_tool(jars: Path, on_ours: Scene) -> None:
    (row,) = transactions(on_ours, "describe", "--transactional-id", "scene-open")
    assert (row["ProducerId"], row["ProducerEpoch"]) == (str(on_ours.open.id), str(on_ours.open.epoch))
    assert (row["TransactionState"], row["TransactionTimeoutMs"]) == ("Ongoing", str(TIMEOUT_MS))
    assert row["TopicPartitions"] == "scene-0"
    (row,) = transactions(on_ours, "describe", "--transactional-id", "scene-ended")
    assert (row["TransactionState"], row["TopicPartitions"]) == ("CompleteCommit", "")


def test_describe_producers_by_kafkas_tool(jars: Path, on_ours: Scene) -> None:
    rows = transactions(on_ours, "describe-producers", "--topic", "scene", "--partition", "0")
    found = {int(row["ProducerId"]): row for row in rows}
    assert found.keys() == {on_ours.open.id, on_ours.ended.id}
    assert found[on_ours.open.id]["CurrentTransactionStartOffset"] == "0"
    assert found[on_ours.ended.id]["CurrentTransactionStartOffset"] == "None"
    assert found[on_ours.ended.id]["LatestCoordinatorEpoch"] == "0"
    assert found[on_ours.open.id]["LastTimestamp"] == str(TIME_MS + 1000)


# --- our commands on Apache Kafka, as on ours ---


def test_our_list(scene: Scene) -> None:
    found = {each["transactional_id"]: each for each in our_command(scene, "list")}
    assert {name: each["state"] for name, each in found.items()} == {
        "scene-open": "Ongoing",
        "scene-ended": "CompleteCommit",
        "scene-hanging": "Empty",
    }
    assert found["scene-open"]["producer_id"] == scene.open.id
    (picked,) = our_command(scene, "list", "--state", "ongoing", "--id-pattern", "scene-.*")
    assert picked == found["scene-open"]
    assert our_command(scene, "list", "--longer-than", "1h", "--state", "ongoing") == []


def test_our_describe(scene: Scene) -> None:
    (described,) = our_command(scene, "describe", "scene-open")
    assert described.pop("started_ms") > 0 and described.pop("running_ms") >= 0
    assert described == {
        "transactional_id": "scene-open",
        "coordinator": 1,
        "state": "Ongoing",
        "producer_id": scene.open.id,
        "producer_epoch": scene.open.epoch,
        "timeout_ms": TIMEOUT_MS,
        "partitions": [["scene", 0]],
    }
    missing = run_command("transaction", "describe", "nobody", "-b", scene.bootstrap)
    assert missing.returncode == 1 and "no coordinator knows nobody" in missing.stderr


def test_what_hangs_is_found_by_both_and_aborted(jars: Path, scene: Scene) -> None:
    """Whose tool aborts: Kafka's on ours, ours on Kafka."""
    (hanging,) = our_command(scene, "find-hanging")
    (theirs,) = transactions(scene, "find-hanging", "--broker-id", "1")
    assert (hanging["topic"], hanging["partition"], hanging["start_offset"]) == ("scene", 1, 0)
    assert (theirs["Topic"], theirs["Partition"], theirs["StartOffset"]) == ("scene", "1", "0")
    assert str(hanging["producer_id"]) == theirs["ProducerId"] == str(scene.hanging.id)
    if scene.is_ours:
        tool(
            TRANSACTIONS,
            *("--bootstrap-server", scene.bootstrap, "abort"),
            *("--topic", "scene", "--partition", "1", "--start-offset", "0"),
        )
    else:
        where = ("scene", "--partition", "1", "--start-offset", "0", "--yes")
        aborted = run_command("transaction", "abort", *where, "-b", scene.bootstrap)
        assert aborted.returncode == 0, aborted.stderr
    assert our_command(scene, "find-hanging") == []


# --- the files ---


@dataclass
class Left:
    """The files that a broker that has worked has left behind."""

    data_dir: Path
    sent: list[str]

    def logs(self, topic: str, suffix: str = "log") -> list[Path]:
        return [path for path in sorted(self.data_dir.glob(f"{topic}-*/*.{suffix}")) if path.stat().st_size]


@pytest.fixture(scope="module")
def left(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Left:
    with running_broker(tmp_path_factory.mktemp("left")) as broker:
        sent = fill(broker.bootstrap, "source")
        assert run_command("topic", "create", "target", "-b", broker.bootstrap).returncode == 0
        copy(broker.bootstrap, source="source", target="target")
        cluster = connect(broker.bootstrap)
        cluster.await_topic("target", 1)
        producer = Producer(cluster, "by-hand").begin()
        for is_commit, offset in ((ABORT, 7), (COMMIT, 8)):
            producer.send("target", b"aborted" if is_commit is ABORT else b"committed")
            producer.commit_offset("group-by-hand", "target", offset)
            producer.end(is_commit)
        cluster.close()
        assert broker.stop() == 0
        return Left(broker.data_dir, sent)


def test_markers_are_read(left: Left) -> None:
    output = dump(*left.logs("target"), options=("--print-data-log",))
    assert output.count("endTxnMarker: COMMIT") >= COPIED // 20 + 1
    assert output.count("endTxnMarker: ABORT") == 1
    assert output.count("coordinatorEpoch: 0") == output.count("endTxnMarker")
    assert re.search(r"isTransactional: true isControl: true", output)
    assert output.count("payload: line ") == COPIED


def test_the_transaction_index_is_read(left: Left) -> None:
    files = left.logs("target", "txnindex")
    assert files
    output = dump(*files)
    entries = [line for line in output.splitlines() if "producerId: " in line]
    assert len(entries) == 1
    first, last = (int(re.search(rf"{name}: (\d+)", entries[0])[1]) for name in ("firstOffset", "lastOffset"))  # type: ignore[index]
    assert last == first + 1 > COPIED


def test_producer_snapshots_of_transactions_are_read(left: Left) -> None:
    output = dump(*left.logs("target", "snapshot"))
    assert output.count("producerId: ") == 2
    assert output.count("currentTxnFirstOffset: OptionalLong.empty") == 2
    assert "coordinatorEpoch: 0" in output


def test_each_transaction_of_the_java_client_has_its_own_epoch(left: Left) -> None:
    """This is new in transaction.version 2. What else is in these records is compared with Kafka's, see
    `test_peer_transactions`."""
    output = dump(*left.logs("__transaction_state"), options=("--transaction-log-decoder",))
    found = re.findall(r'"transactionalId":"copier-to-target"\}\} payload: (\{.*\})', output)
    values = [json.loads(payload)["data"] for payload in found]
    ended = [value for value in values if value["transactionStatus"] == COMPLETE_COMMIT]
    assert len(ended) >= COPIED // 20
    assert {value["clientTransactionVersion"] for value in ended} == {2}
    assert len({value["producerEpoch"] for value in ended}) == len(ended)
