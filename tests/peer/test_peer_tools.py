"""Kafka's own tools on our broker and on the files it leaves behind."""

import re
import subprocess
from pathlib import Path

import pytest

from odradek.wire.messages.join_group import JoinGroupRequest
from tests.peer.exchange import served_versions
from tests.support import RunningBroker, run_command, running_broker
from tools.peer.kafka import run_tool

DUMP = "org.apache.kafka.tools.DumpLogSegments"
TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"

# What the dump tool says of a damaged file; its exit status is 0 all the same. A gap "-1 is followed by" is
# its own: it says so of every segment but the first.
COMPLAINT = re.compile(
    r"Mismatches in|^\s+\d+ is followed by|timestamp mismatch|out of order|Could not|Invalid|isvalid: false"
    r"|corrupt|Exception|found bytes|trailing"
)


def dump(*files: Path, options: tuple[str, ...] = ()) -> str:
    names = ",".join(map(str, sorted(files)))
    result = run_tool(DUMP, *options, "--files", names)
    assert result.returncode == 0, result.stderr
    output = result.stdout + result.stderr
    found = [line for line in output.splitlines() if COMPLAINT.search(line)]
    assert not found, "\n".join(found[:20])
    return output


@pytest.fixture(scope="module")
def stopped(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker that has worked, over several segments, and was stopped."""
    small_segments = {"log_segment_bytes": "1048576", "log_index_interval_bytes": "4096"}
    with running_broker(tmp_path_factory.mktemp("stopped"), **small_segments) as broker:
        lines = "".join(f"key-{number % 50}:{'value ' * 20}{number}\n" for number in range(20_000))
        assert run_command("topic", "create", "dumped", "-b", broker.bootstrap).returncode == 0
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            options = ("-b", broker.bootstrap, "-K", ":", "-z", codec, "--idempotent", "-H", "codec=" + codec)
            produced = run_command("produce", "dumped", *options, stdin=lines)
            assert produced.returncode == 0, produced.stderr
        assert broker.stop() == 0
        return broker.data_dir


def test_segments(stopped: Path) -> None:
    files = list((stopped / "dumped-0").glob("*.log"))
    assert len(files) > 1
    output = dump(*files, options=("--deep-iteration", "--print-data-log"))
    assert output.count("| offset: ") == 100_000


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_indexes(stopped: Path, suffix: str) -> None:
    files = list((stopped / "dumped-0").glob(f"*.{suffix}"))
    assert files
    assert "passed sanity check" in dump(*files, options=("--index-sanity-check",))
    dump(*files, options=("--verify-index-only",))
    dump(*files)


def test_producer_snapshots(stopped: Path) -> None:
    files = list((stopped / "dumped-0").glob("*.snapshot"))
    assert files
    assert "producerId: " in dump(*files)


def test_the_metadata_log(stopped: Path) -> None:
    directory = stopped / "__cluster_metadata-0"
    files = [*directory.glob("*.log"), *directory.glob("*.checkpoint")]
    output = dump(*files, options=("--cluster-metadata-decoder", "--skip-record-metadata"))
    for record in ("TOPIC_RECORD", "PARTITION_RECORD", "REGISTER_BROKER_RECORD", "FEATURE_LEVEL_RECORD"):
        assert f'"type":"{record}"' in output
    assert '"name":"dumped"' in output


@pytest.fixture(scope="module")
def snapshotted(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The metadata log of a broker that has written snapshots of it, and cut it below them."""
    settings = {
        "metadata_log_max_record_bytes_between_snapshots": "1000",
        "metadata_max_retention_bytes": "0",
        "replica_high_watermark_checkpoint_interval_ms": "50",
    }
    with running_broker(tmp_path_factory.mktemp("snapshotted"), **settings) as broker:
        server = ("-b", broker.bootstrap)
        produced = run_command("produce", "snapped-idempotently", "--idempotent", *server, stdin="x\n")
        assert produced.returncode == 0, produced.stderr
        directory = broker.data_dir / "__cluster_metadata-0"
        for number in range(200):
            topic = (f"snapped-{number}", "--config", "retention.ms=5000")
            assert run_command("topic", "create", *topic, *server).returncode == 0
            if number > 10 and not (directory / f"{0:020d}.log").exists():
                break
        assert broker.stop() == 0
        return directory


def test_the_metadata_snapshot(snapshotted: Path) -> None:
    (snapshot,) = snapshotted.glob("*.checkpoint")
    decoder = ("--cluster-metadata-decoder",)
    output = dump(snapshot, options=decoder)
    end_offset, epoch = int(snapshot.name[:20]), int(snapshot.name[21:31])
    assert f"Snapshot end offset: {end_offset}, epoch: {epoch}" in output
    for record in ("FEATURE_LEVEL", "REGISTER_BROKER", "TOPIC", "PARTITION", "CONFIG", "PRODUCER_IDS"):
        assert f'"type":"{record}_RECORD"' in output, record
    assert "SnapshotHeader {" in output and "SnapshotFooter {" in output
    logs = list(snapshotted.glob("*.log"))
    assert min(int(path.stem) for path in logs) == end_offset, "it goes on where the snapshot ends"
    output += dump(*logs, options=decoder)
    for number in range(10):
        assert f'"name":"snapped-{number}"' in output


def tool(main_class: str, *arguments: str, stdin: str = "") -> str:
    result = run_tool(main_class, *arguments, stdin=stdin)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_topics_by_kafkas_tool(jars: Path, ours: RunningBroker) -> None:
    server = ("--bootstrap-server", ours.bootstrap)
    tool(
        TOPICS,
        *server,
        "--create",
        "--topic",
        "by-java",
        "--partitions",
        "3",
        "--config",
        "retention.ms=5000",
    )
    theirs = tool(TOPICS, *server, "--describe", "--topic", "by-java")
    own = run_command("topic", "describe", "by-java", "-b", ours.bootstrap).stdout
    assert [_columns(line) for line in own.splitlines()] == [_columns(line) for line in theirs.splitlines()]
    tool(TOPICS, *server, "--alter", "--topic", "by-java", "--partitions", "4")
    assert tool(TOPICS, *server, "--list").splitlines().count("by-java") == 1
    tool(TOPICS, *server, "--delete", "--topic", "by-java")
    assert "by-java" not in tool(TOPICS, *server, "--list").splitlines()


def _columns(line: str) -> dict[str, str]:
    """The columns both print; Kafka adds replicas that may lead again without being in sync."""
    columns = dict(part.split(":", 1) for part in line.strip().split("\t"))
    wanted = {
        "Topic",
        "TopicId",
        "PartitionCount",
        "ReplicationFactor",
        "Partition",
        "Leader",
        "Replicas",
        "Isr",
    }
    return {name: value.strip() for name, value in columns.items() if name in wanted}


def test_console_producer_and_consumer(jars: Path, ours: RunningBroker) -> None:
    server = ("--bootstrap-server", ours.bootstrap)
    run_command("topic", "create", "console", "--partitions", "2", "-b", ours.bootstrap)
    sent = [f"line {number}" for number in range(100)]
    tool(PRODUCER, *server, "--topic", "console", stdin="\n".join(sent) + "\n")
    read = [line for partition in ("0", "1") for line in _read_partition(server, "console", partition)]
    assert sorted(read) == sorted(sent)
    ends = tool(OFFSETS, *server, "--topic", "console").split()
    assert sum(int(line.rpartition(":")[2]) for line in ends) == len(sent)


def _read_partition(server: tuple[str, str], topic: str, partition: str) -> list[str]:
    """All of a partition, without a group; the timeout is how this tool knows that nothing more comes."""
    where = ("--topic", topic, "--partition", partition, "--offset", "earliest")
    result: subprocess.CompletedProcess[str] = run_tool(CONSUMER, *server, *where, "--timeout-ms", "5000")
    assert "Processed a total of" in result.stderr, result.stderr
    return result.stdout.splitlines()


def test_console_consumer_in_a_group(jars: Path, ours: RunningBroker) -> None:
    if JoinGroupRequest.API_KEY not in served_versions(ours.bootstrap):
        pytest.skip("our broker has no consumer groups")
    server = ("--bootstrap-server", ours.bootstrap)
    run_command("produce", "grouped", "-b", ours.bootstrap, stdin="one\ntwo\nthree\n")
    wanted = ("--topic", "grouped", "--group", "readers", "--from-beginning", "--max-messages", "3")
    read = tool(CONSUMER, *server, *wanted, "--timeout-ms", "30000").splitlines()
    assert sorted(read) == ["one", "three", "two"]
