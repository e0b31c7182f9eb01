"""The pytest plugin, from the outside: a small suite is written, run by a pytest of its own, and its report read."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import os

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

pids = {}


def describe(broker):
    return AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30)


@pytest.fixture(scope="session")
def of_the_whole_session(odradek_broker):
    return odradek_broker.bootstrap


def test_a_fresh_topic(odradek_broker, odradek_topic, of_the_whole_session):
    assert of_the_whole_session == odradek_broker.bootstrap
    assert len(describe(odradek_broker).topics[odradek_topic].partitions) == 1
    pids["default"] = odradek_broker.pid


@pytest.mark.odradek_topic(partitions=3, config={"cleanup.policy": "compact"})
def test_a_topic_as_marked(odradek_broker, odradek_topic):
    assert len(describe(odradek_broker).topics[odradek_topic].partitions) == 3
    assert odradek_broker.pid == pids.setdefault("default", odradek_broker.pid)


@pytest.mark.odradek(num_partitions=4)
class TestSettings:
    def test_of_the_class(self, odradek_broker):
        assert odradek_broker.settings == {"num.partitions": "4"}

    @pytest.mark.odradek(auto_create_topics_enable=False)
    def test_of_the_function_over_those_of_the_class(self, odradek_broker, odradek_topic):
        assert odradek_broker.settings == {"num.partitions": "4", "auto.create.topics.enable": "false"}


def test_faults_are_undone(odradek_broker):
    odradek_broker.crash()


def test_after_a_crash(odradek_broker, odradek_topic):
    assert odradek_topic in describe(odradek_broker).topics
    odradek_broker.pause()


def test_after_a_pause(odradek_broker, odradek_topic):
    assert odradek_topic in describe(odradek_broker).topics


@pytest.fixture
def uses_the_broker_at_its_end(odradek_broker):
    yield
    describe(odradek_broker)


def test_fixtures_end_with_a_broker_that_works(odradek_broker, uses_the_broker_at_its_end):
    odradek_broker.crash()


def test_that_asks_for_faults(odradek_broker, odradek_topic):
    odradek_broker.faults.lose_response("Metadata", times=None)
    odradek_broker.faults.hold("CreateTopics", times=None)
    odradek_broker.faults.hold_syncs()


def test_after_faults(odradek_broker, odradek_topic):
    producer = Producer({"bootstrap.servers": odradek_broker.bootstrap})
    producer.produce(odradek_topic, "hello")
    assert producer.flush(30) == 0


def test_that_cuts_the_power(odradek_broker, odradek_topic):
    odradek_broker.power_cut()


def test_after_a_power_cut(odradek_broker, odradek_topic):
    assert odradek_topic in describe(odradek_broker).topics


def test_no_broker():
    pass
"""

CLUSTER_SUITE = """
import pytest

pytestmark = pytest.mark.odradek_cluster(brokers=2, num_partitions=4)
pids = []


@pytest.mark.odradek_topic(partitions=2)
def test_a_topic_on_all_brokers(odradek_cluster, odradek_cluster_topic):
    assert len(odradek_cluster) == 2
    assert odradek_cluster.settings["num.partitions"] == "4"
    assert odradek_cluster.leader(odradek_cluster_topic, 0) is not odradek_cluster.leader(odradek_cluster_topic, 1)
    pids.append(odradek_cluster[1].pid)


def test_that_breaks_it(odradek_cluster):
    odradek_cluster[1].cut_off()
    odradek_cluster[1].faults.hold("Metadata", times=None)
    odradek_cluster[2].crash()


def test_after_it(odradek_cluster, odradek_cluster_topic):
    assert odradek_cluster[1].pid == pids[0]
    odradek_cluster.wait_until_in_sync(timeout=0)


def test_that_fails(odradek_cluster):
    odradek_cluster[2].restart()
    assert False
"""

FAILING_SUITE = """
def test_early(odradek_broker):
    odradek_broker.restart()


def test_that_fails(odradek_broker):
    odradek_broker.crash()
    odradek_broker.start()
    odradek_broker.faults.hold("CreateTopics", times=None)
    assert False


def test_after_it(odradek_broker, odradek_topic):
    pass


def test_without_broker():
    assert False
"""


@pytest.fixture
def run_suite(tmp_path: Path):
    def run(suite: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_suite.py").write_text(suite)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--strict-markers",
            *options,
            "test_suite.py",
        ]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    return run


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_fixtures_markers_and_undone_faults(run_suite, options: tuple[str, ...]) -> None:
    result = run_suite(SUITE, *options)
    assert result.returncode == 0, result.stdout
    assert "13 passed" in result.stdout


def test_the_log_is_attached_to_a_test_that_fails(run_suite) -> None:
    result = run_suite(FAILING_SUITE)
    assert result.returncode == 1
    assert "2 failed, 2 passed" in result.stdout
    assert result.stdout.count("Odradek broker log") == 1
    section = result.stdout.partition("Odradek broker log")[2]
    assert len(re.findall(r"broker 1 of cluster \S+ started", section)) == 1, "only what this test has seen"


def test_a_cluster_is_whole_again_after_every_test(run_suite) -> None:
    result = run_suite(CLUSTER_SUITE)
    assert "1 failed, 3 passed" in result.stdout, result.stdout
    section = result.stdout.partition("Odradek broker log")[2]
    assert len(re.findall(r"broker 2 of cluster \S+ started", section)) == 1, "only what this test has seen"


def test_the_plugin_costs_nothing_until_it_is_used(run_suite) -> None:
    """It is loaded by every pytest in the environment."""
    suite = "import sys\ndef test_it():\n    assert 'odradek.testing.plugin' in sys.modules\n"
    suite += "    assert not {'confluent_kafka', 'odradek.client', 'odradek.wire'} & set(sys.modules)\n"
    assert run_suite(suite).returncode == 0
