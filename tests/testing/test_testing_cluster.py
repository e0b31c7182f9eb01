"""`odradek.testing.cluster()`: three real brokers, what can be done to each, and that it is undone."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.errors import KafkaError
from odradek.testing import BrokerFailed, Cluster, Node, NotInTime, cluster
from odradek.testing.asking import ask
from odradek.testing.patience import until
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.testing.test_testing_broker import is_alive, wait_for_end

PATIENCE_S = 120


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with cluster(num_partitions=2) as kafka:
        yield kafka


@pytest.fixture
def kafka(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    shared.heal()


def new_producer(kafka: Cluster, **settings: object) -> Producer:
    common = {"bootstrap.servers": kafka.bootstrap, "reconnect.backoff.max.ms": 200, "linger.ms": 0}
    return Producer({**common, "log_level": 0, **settings})


def send(kafka: Cluster, topic: str, *values: str) -> None:
    """Store messages, on all in-sync replicas."""
    producer = new_producer(kafka)
    failures: list[object] = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert not any(failures), failures


def ends(kafka: Cluster, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "test", "log_level": 0})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)  # type: ignore[no-any-return]
    finally:
        consumer.close()


def serves(node: Node, timeout_s: float = 1.0) -> bool:
    """True if a client that knows only this broker gets a response."""
    client = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    try:
        client.list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return True


def stored(node: Node, topic: str) -> str:
    """Return what a broker has written of the first partition."""
    logs = (node._directory / "data" / f"{topic}-0").glob("*.log")
    return "".join(path.read_bytes().decode(errors="replace") for path in logs)


def others(kafka: Cluster, node: Node) -> list[Node]:
    return [one for one in kafka if one is not node]


# --- a healthy one ---


def test_it_has_three_brokers_in_three_racks_and_topics_on_all_of_them(kafka: Cluster) -> None:
    assert [node.id for node in kafka] == [1, 2, 3]
    assert len(kafka) == 3
    assert kafka.settings["num.partitions"] == "2"
    assert kafka.bootstrap == ",".join(node.bootstrap for node in kafka)
    topic = kafka.create_topic(replicas=[[2, 3, 1], [3, 1, 2]], config={"retention_ms": 1_000_000})
    assert kafka.leader(topic, 0) is kafka[2]
    assert kafka.leader(topic, 1) is kafka[3]
    described = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(topic, 30)
    assert sorted(described.topics[topic].partitions[0].replicas) == [1, 2, 3]
    assert kafka.controller() in list(kafka)
    assert f"broker {kafka[3].id} of cluster" in kafka.log
    assert kafka[2].rack == "rack-2"


def test_coordinators_are_found_before_anybody_has_used_one(kafka: Cluster) -> None:
    assert kafka.coordinator("a-group") in list(kafka)
    assert kafka.transaction_coordinator("an-id") in list(kafka)


def test_what_a_broker_refuses_is_told(kafka: Cluster) -> None:
    with pytest.raises(KafkaError, match="already exists"):
        kafka.create_topic(kafka.create_topic())
    with pytest.raises(ValueError, match="cannot be cut off from 4, only from 2, 3, 'brokers', 'clients'"):
        kafka[1].cut_off(4)


def test_bad_settings_are_told_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ValueError, match=r"every broker of a cluster has its own broker\.rack"):
        Cluster(settings={"broker_rack": "here"})
    with pytest.raises(ValueError, match="1 to 9 brokers, not 0"):
        Cluster(0)
    with pytest.raises(BrokerFailed, match=r"did you mean num\.partitions"), cluster(1, num_partition=3):
        pass
    assert list(tmp_path.iterdir()) == []


def test_brokers_end_with_their_owner() -> None:
    code = "\n".join(
        [
            "import os, signal",
            "from odradek.testing import Cluster",
            "kafka = Cluster(2); kafka.start()",
            "kafka[2].cut_off()",
            "for node in kafka: print(node.pid, node._directory, flush=True)",
            "os.kill(os.getpid(), signal.SIGKILL)",
        ]
    )
    owner = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert owner.returncode == -9, owner.stderr
    for line in owner.stdout.splitlines():
        pid, directory = line.split()
        wait_for_end(int(pid))
        assert "stopped" in (Path(directory) / "broker.log").read_text()
        shutil.rmtree(directory)


def test_another_replica_leads_on_demand(kafka: Cluster) -> None:
    topic = kafka.create_topic(replicas=[[1, 2]])
    kafka.move_leader(topic, 0, kafka[2])
    assert kafka.leader(topic) is kafka[2]
    kafka.move_leader(topic, 0, kafka[1])
    assert kafka.leader(topic) is kafka[1]
    with pytest.raises(ValueError, match=r"replicas on brokers \[1, 2\], and none on 3"):
        kafka.move_leader(topic, 0, kafka[3])


# --- processes ---


def test_a_killed_leader_is_replaced_and_comes_back_in_sync(kafka: Cluster) -> None:
    topic = kafka.create_topic()
    first = kafka.leader(topic)
    pid = first.pid
    assert pid is not None
    first.crash()
    assert not is_alive(pid)
    second = kafka.leader(topic, other_than=first)
    send(kafka, topic, "without the first")
    with pytest.raises(NotInTime, match=f"broker {first.id}.* does not respond|broker {first.id} is fenced"):
        kafka.wait_until_in_sync(topic, timeout=0.1)
    first.restart()
    kafka.wait_until_in_sync(topic)
    assert kafka.leader(topic) is second


def test_a_power_cut_of_a_follower_loses_nothing_that_was_acknowledged(kafka: Cluster) -> None:
    topic = kafka.create_topic()
    follower = others(kafka, kafka.leader(topic))[0]
    producer = new_producer(kafka)
    with follower.faults.hold_syncs() as held:
        producer.produce(topic, "on two disks", partition=0)
        held.wait()
        follower.power_cut()
    assert producer.flush(PATIENCE_S) == 0  # it is no longer in sync, so the other two are enough
    follower.start()
    kafka.wait_until_in_sync(topic)
    assert ends(kafka, topic) == (0, 1)


def test_a_paused_broker_loses_its_partitions_until_it_goes_on(kafka: Cluster) -> None:
    topic = kafka.create_topic()
    first = kafka.leader(topic)
    with first.paused():
        kafka.leader(topic, other_than=first)
        send(kafka, topic, "meanwhile")
    kafka.wait_until_in_sync(topic)


def test_a_stopped_controller_hands_over(kafka: Cluster) -> None:
    first = kafka.controller()
    first.stop()
    assert not first.is_running
    second = kafka.controller(other_than=first)
    first.start()
    assert kafka.controller() is second


def test_all_of_them_are_killed_and_started_together(kafka: Cluster) -> None:
    topic = kafka.create_topic()
    send(kafka, topic, "kept")
    for node in kafka:
        node.crash()
    kafka.start()
    send(kafka, topic, "added")


def test_a_death_that_nobody_asked_for_is_told_once(kafka: Cluster) -> None:
    assert kafka[2].pid is not None
    os.kill(kafka[2].pid, signal.SIGKILL)
    wait_for_end(kafka[2].pid)
    with pytest.raises(BrokerFailed, match="died with status -9"):
        kafka.heal()
    kafka.heal()
    kafka.create_topic()


# --- wires ---


def test_a_broker_that_is_cut_off_is_replaced_and_knows_nothing_of_it(kafka: Cluster) -> None:
    topic = kafka.create_topic()
    first = kafka.leader(topic)
    with first.cut_off("brokers"):
        second = kafka.leader(topic, other_than=first)
        request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        (described,) = ask(first.bootstrap, request, MetadataResponse).topics  # of this broker, and no other
        assert described.partitions[0].leader_id == first.id
    kafka.wait_until_in_sync(topic)
    assert kafka.leader(topic) is second


def test_a_broker_that_clients_cannot_reach_stays_in_sync(kafka: Cluster) -> None:
    """The broker carries out late what they sent meanwhile."""
    topic = kafka.create_topic()
    leader = kafka.leader(topic)
    producer = new_producer(kafka)
    producer.produce(topic, "before", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    with leader.cut_off("clients"):
        assert not serves(leader)
        producer.produce(topic, "late", partition=0)
        assert producer.flush(0.5) == 1
        assert kafka.leader(topic) is leader
    assert producer.flush(PATIENCE_S) == 0
    assert ends(kafka, topic) == (0, 2)


def test_a_silenced_broker_carries_out_what_it_cannot_confirm(kafka: Cluster) -> None:
    topic = kafka.create_topic()
    leader = kafka.leader(topic)
    producer = new_producer(kafka)
    producer.produce(topic, "before", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    with leader.silence("clients"):
        producer.produce(topic, "stored, and not confirmed", partition=0)
        until(lambda: "not confirmed" in stored(leader, topic) or None, lambda: "it is stored", PATIENCE_S)
        assert producer.flush(0) == 1
    assert producer.flush(PATIENCE_S) == 0
    assert ends(kafka, topic) == (0, 2)


def test_a_deaf_controller_is_replaced(kafka: Cluster) -> None:
    """Its heartbeats arrive, and those of others do not arrive there."""
    first = kafka.controller()
    with first.deafen("brokers"):
        kafka.controller(other_than=first)


def test_a_broker_that_starts_while_it_is_cut_off_stays_cut_off(kafka: Cluster) -> None:
    node = others(kafka, kafka.controller())[0]
    node.crash()
    cut = node.cut_off("brokers")
    size = node.log_size
    node.launch()
    until(lambda: "waiting for" in node.log_since(size) or None, lambda: "it waits for others", PATIENCE_S)
    with pytest.raises(NotInTime, match=f"broker {node.id} (at .* does not respond|is fenced)"):
        kafka.wait_until_in_sync(timeout=2)
    cut.undo()
    node.await_started()
    kafka.wait_until_in_sync()


def test_a_broker_is_cut_off_while_it_is_paused(kafka: Cluster) -> None:
    node = kafka[1]
    node.pause()
    cut = node.cut_off("clients")
    node.resume()
    assert not serves(node)
    cut.undo()
    cut.undo()
    assert serves(node, PATIENCE_S)


# --- faults ---


def test_faults_of_one_broker_happen_to_clients_and_not_to_followers(kafka: Cluster) -> None:
    topic = kafka.create_topic()
    leader = kafka.leader(topic)
    with leader.faults.answer("Fetch", error="NOT_LEADER_OR_FOLLOWER", times=None, topic=topic) as fault:
        send(kafka, topic, "all followers fetch it")
        assert not fault.happened
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic})
        consumer.assign([TopicPartition(topic, 0, 0)])
        consumer.poll(0)
        fault.wait(timeout=PATIENCE_S)
    (message,) = consumer.consume(1, PATIENCE_S)
    assert message.value() == b"all followers fetch it"
    consumer.close()


def test_a_follower_can_be_named_by_its_client_id(kafka: Cluster) -> None:
    """So acks=all waits."""
    topic = kafka.create_topic()
    leader = kafka.leader(topic)
    follower = others(kafka, leader)[0]
    producer = new_producer(kafka)
    with leader.faults.hold("Fetch", times=None, client_id=f"broker-{follower.id}") as held:
        held.wait(timeout=PATIENCE_S)
        producer.produce(topic, "waits for a follower", partition=0)
        assert producer.flush(0.5) == 1
    assert producer.flush(PATIENCE_S) == 0
