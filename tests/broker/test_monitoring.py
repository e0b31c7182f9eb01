"""Tests of what is told of a node on `metrics.listener`: by a real broker, and of each change in the cluster."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen
from uuid import UUID

import pytest

from odradek.archiving import metrics as archiver
from odradek.cli import mirror
from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigError
from odradek.host.metrics import SECONDS, Histogram, Metrics, Traffic
from odradek.metadata.delta import TopicChange
from odradek.metadata.image import Partition, Topic
from odradek.services.upkeep.monitoring import HELP, PREFIX, Exposition, Monitoring, Parts
from odradek.serving.turns import Turns
from tests.support import RunningBroker, run_command, running_broker

DOCUMENT = Path(__file__).parents[2] / "docs" / "METRICS.md"


def read(broker: RunningBroker, path: str) -> tuple[int, str]:
    found = re.search(r"metrics: (http://localhost:\d+)/metrics", broker.log)
    assert found is not None
    try:
        with urlopen(found[1] + path, timeout=30) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def values(text: str) -> dict[str, float]:
    samples = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name.removeprefix(PREFIX): float(value) for name, _, value in samples}


def test_a_broker_tells_what_it_does(tmp_path: Path) -> None:
    with running_broker(tmp_path, metrics_listener="localhost:0") as broker:
        assert read(broker, "/healthz") == (200, "alive\n")
        assert read(broker, "/readyz") == (200, "ready\n")
        assert read(broker, "/other")[0] == 404
        before = values(read(broker, "/metrics")[1])
        run_command("topic", "create", "t", "--partitions", "3", "-b", broker.bootstrap)
        run_command("topic", "create", "bad name", "-b", broker.bootstrap)
        run_command("produce", "t", "-b", broker.bootstrap, stdin="hello\n" * 100)
        run_command("consume", "t", "--group", "g", "--from-beginning", "-e", "-b", broker.bootstrap)
        after = values(read(broker, "/metrics")[1])
    assert before["active_controller"] == before["ready"] == 1
    assert (before["quorum_leader"], before["metadata_lag_records"], before["fenced_brokers"]) == (1, 0, 0)
    assert before["leaders"] == 0
    assert after["leaders"] == after["replicas"] >= 3
    assert after["log_size_bytes"] > 0
    assert after["groups"] == 1
    assert (
        after['requests_total{api="CreateTopics"}'] == 3
    )  # and that of the broker itself, for the group's offsets
    assert after['requests_total{api="Produce"}'] >= 1
    assert after['request_errors_total{api="CreateTopics",error="INVALID_TOPIC_EXCEPTION"}'] == 1
    for name in ("received_bytes", "sent_bytes", "connections"):
        assert after[f'{name}_total{{side="clients"}}'] > before[f'{name}_total{{side="clients"}}']
    assert after["sync_seconds_count"] > before["sync_seconds_count"]
    assert after["metadata_sync_seconds_count"] > before["metadata_sync_seconds_count"]
    assert after["metadata_offset"] > before["metadata_offset"]
    assert after['throttled_replication_bytes_total{role="follower"}'] == 0
    for name in ("under_replicated_partitions", "under_min_isr_partitions", "offline_partitions"):
        assert after[name] == 0


def test_a_node_that_waits_for_its_quorum_lives_and_is_not_ready(tmp_path: Path) -> None:
    """See `tests/cli/test_up_brokers.py` for how it waits."""
    waiting = monitoring(is_started=lambda: False)
    assert waiting.why_not_ready() == "the node has not started yet"


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        port = broker.bootstrap.rpartition(":")[2]
        result = run_command(
            *("up", "--port", "0", "--data-dir", str(tmp_path / "other")),
            *("--set", f"metrics.listener=localhost:{port}"),
        )
        pid = broker.process.pid
    assert result.returncode == 1
    assert f"error: port {port} is in use by process {pid} (" in result.stderr
    assert ": stop the process that listens there, or choose another in metrics.listener" in result.stderr


@pytest.mark.parametrize("text", ["9404", "localhost", "localhost:70000", "http://localhost:1"])
def test_a_listener_that_cannot_be(text: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.listener"):
        BrokerConfig({"metrics.listener": text})


@pytest.mark.parametrize(
    ("text", "place"),
    [("localhost:9404", ("localhost", 9404)), (":0", ("", 0)), ("[::1]:1", ("::1", 1)), ("", None)],
)
def test_where_it_listens(text: str, place: tuple[str, int] | None) -> None:
    assert BrokerConfig({"metrics.listener": text}).metrics_listener == place


# What changes in the cluster


def monitoring(is_active: bool = True, leader: int | None = 1, **parts: Any) -> Monitoring:
    broker = SimpleNamespace(is_fenced=False, in_controlled_shutdown=False)
    image = SimpleNamespace(brokers={1: broker}, topics={}, offset=0)
    quorum = SimpleNamespace(
        is_active=is_active, leader=None if leader is None else (leader, None), epoch=1, log=None
    )
    metadata = SimpleNamespace(quorum=quorum, image=image)
    given: dict[str, Any] = {
        "node_id": 1,
        "is_broker": True,
        "metadata": metadata,
        "replicas": [],
        "metrics": Metrics(),
        "traffic": {"clients": Traffic()},
        "throttled": {},
        "connection_count": lambda: 0,
        "group_count": lambda: 0,
        "failure": lambda: "",
        "is_started": lambda: True,
        "disk": SimpleNamespace(space=lambda: (200, 100), is_full=False, refused=0),
    }
    return Monitoring(Parts(**given | parts), Turns(lambda: 0.0))


def test_what_keeps_a_node_from_being_ready() -> None:
    assert monitoring().why_not_ready() == ""
    assert "knows no leader" in monitoring(leader=None).why_not_ready()
    assert "disk" in monitoring(failure=lambda: "the disk").why_not_ready()
    for change, reason in (
        ({"is_fenced": True}, "fenced"),
        ({"in_controlled_shutdown": True}, "shutting down"),
    ):
        node = monitoring()
        vars(node._of.metadata.image.brokers[1]).update(change)
        assert reason in node.why_not_ready()
    node = monitoring()
    node._of.metadata.image.brokers.clear()  # type: ignore[attr-defined]
    assert "not registered" in node.why_not_ready()
    assert monitoring(is_broker=False).why_not_ready() == ""


def partition(isr: tuple[int, ...], leader: int = 1, epoch: int = 0, recovery: int = 0) -> Partition:
    return Partition(leader, epoch, 0, isr, (1, 2, 3), (), leader_recovery_state=recovery)


def count(before: Partition | None, after: Partition, is_active: bool = True) -> tuple[int, int, int, int]:
    """Shrinks, expands, elections, unclean ones."""
    node = monitoring(is_active)
    topics = [Topic("t", UUID(int=1), {} if one is None else {0: one}) for one in (before, after)]
    change = TopicChange(topics[0], topics[1], (0,))
    node.apply(SimpleNamespace(changed_topics=(change,)))  # type: ignore[arg-type]
    found = node._metrics
    return (
        found.isr_shrinks,
        found.isr_expands,
        found.leader_elections,
        found.unclean_leader_elections,
    )


ALL = partition((1, 2, 3))


def test_changes_are_counted_where_they_belong() -> None:
    assert count(ALL, partition((1, 2))) == (1, 0, 0, 0)
    assert count(partition((1,)), ALL) == (0, 1, 0, 0)
    assert count(partition((1, 2)), partition((1, 3))) == (1, 1, 0, 0)
    assert count(ALL, partition((2, 3), leader=2)) == (0, 0, 0, 0), (
        "its leader counts, and the epoch is the same"
    )
    assert count(ALL, partition((2, 3), leader=2, epoch=1)) == (0, 0, 1, 0)
    assert count(ALL, partition((2, 3), leader=2, epoch=1), is_active=False) == (0, 0, 0, 0)
    assert count(ALL, partition((1, 2, 3), epoch=1)) == (0, 0, 0, 0), "the same leader in a new epoch"
    assert count(ALL, partition((1,), leader=-1, epoch=1)) == (0, 0, 0, 0), "nobody was elected"
    assert count(partition((), leader=-1), partition((1,), epoch=1, recovery=1)) == (0, 1, 1, 1)
    assert count(None, ALL) == (0, 0, 0, 0)


# The text


def test_a_histogram_counts_up() -> None:
    found = Histogram()
    for seconds in (0.0, SECONDS[0], 0.3, 100.0):
        found.observe(seconds)
    text = Exposition()
    text.histogram("sync_seconds", found)
    samples = values(str(text))
    assert samples[f'sync_seconds_bucket{{le="{SECONDS[0]}"}}'] == 2
    assert samples['sync_seconds_bucket{le="0.25"}'] == 2
    assert samples['sync_seconds_bucket{le="0.5"}'] == 3
    assert samples['sync_seconds_bucket{le="10.0"}'] == 3
    assert samples['sync_seconds_bucket{le="+Inf"}'] == samples["sync_seconds_count"] == 4
    assert samples["sync_seconds_sum"] == pytest.approx(100.3 + SECONDS[0])


def test_labels_are_escaped() -> None:
    text = Exposition()
    text.add("requests_total", [({"api": 'a"b\\c\n'}, 1)])
    assert str(text).splitlines()[1:] == [
        "# TYPE odradek_requests_total counter",
        'odradek_requests_total{api="a\\"b\\\\c\\n"} 1',
    ]


def test_every_metric_is_documented_and_no_other() -> None:
    """The metrics of mirrors and archivers are on the same page."""
    documented = {name.removeprefix(PREFIX) for name in re.findall(r"odradek_\w+", DOCUMENT.read_text())}
    others = {name.removeprefix(PREFIX) for name in (*mirror.METRICS, *archiver.HELP)}
    assert documented == HELP.keys() | others
