"""Faults on demand, as a test asks for them of a broker in a process of its own."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.testing import Broker, BrokerFailed, Fault, NotHappened, broker
from tests.testing.test_testing_broker import consume, wait_for_end

PATIENCE_S = 60


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with broker() as kafka:
        yield kafka


@pytest.fixture
def kafka(shared: Broker) -> Iterator[Broker]:
    yield shared
    shared.heal()


def producer_of(kafka: Broker, **settings: object) -> Producer:
    return Producer(
        {"bootstrap.servers": kafka.bootstrap, "linger.ms": 0, "retry.backoff.ms": 10, **settings}
    )


def send(producer: Producer, topic: str, value: str) -> KafkaError | None:
    """Return what the application hears of the message."""
    heard: list[KafkaError | None] = []
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: heard.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return heard[0]


# --- asking ---


def test_a_fault_lasts_as_long_as_its_block_and_says_how_often_it_happened(kafka: Broker) -> None:
    topic = kafka.create_topic()
    producer = producer_of(kafka, retries=0)
    with kafka.faults.answer("Produce", error="INVALID_REQUIRED_ACKS", times=None, topic=topic) as fault:
        assert not fault.happened
        for _ in range(2):
            error = send(producer, topic, "refused")
            assert error is not None
            assert error.name() == "INVALID_REQUIRED_ACKS"
        assert (fault.fired, fault.happened) == (2, True)
    assert send(producer, topic, "stored") is None
    assert fault.fired == 2
    assert consume(kafka, topic, 1) == ["stored"]


def test_what_cannot_be_asked_for_is_refused_with_a_guess_at_what_was_meant(kafka: Broker) -> None:
    with pytest.raises(ValueError, match="did you mean Produce"):
        kafka.faults.answer("Produces", error="REQUEST_TIMED_OUT")
    with pytest.raises(ValueError, match="did you mean REQUEST_TIMED_OUT"):
        kafka.faults.answer("Produce", error="REQUEST_TIMEOUT")
    with pytest.raises(ValueError, match="cannot be for one topic, but for one group"):
        kafka.faults.hold("JoinGroup", topic="t")
    with pytest.raises(TypeError, match="a fault cannot be narrowed down by topics, only by times, topic, "):
        kafka.faults.cut("Produce", topics=["t"])  # type: ignore[call-arg]


def test_a_fault_that_does_not_happen_fails_the_test_that_waits_for_it(kafka: Broker) -> None:
    fault = kafka.faults.cut("Produce")
    with pytest.raises(NotHappened, match="a connection cut at Produce happened 0 times in 1e-05 s, not 1"):
        fault.wait(timeout=0.00001)
    assert issubclass(NotHappened, AssertionError)


def test_another_thread_may_wait_while_this_one_asks(kafka: Broker) -> None:
    topic = kafka.create_topic()
    held = kafka.faults.hold("Produce", topic=topic)
    released: list[Fault] = []

    def release_when_held() -> None:
        held.wait(timeout=PATIENCE_S)
        released.append(held)
        held.release()

    thread = threading.Thread(target=release_when_held)
    thread.start()
    assert kafka.faults.delay("Heartbeat", seconds=1).fired == 0
    assert send(producer_of(kafka), topic, "x") is None
    thread.join(PATIENCE_S)
    assert released == [held]


# --- a broker that is paused, stops, dies ---


def test_a_paused_broker_cannot_be_asked_and_undoes_faults_once_it_goes_on(kafka: Broker) -> None:
    topic = kafka.create_topic()
    with kafka.faults.answer("Produce", error="KAFKA_STORAGE_ERROR", times=None) as fault:
        kafka.pause()
        with pytest.raises(BrokerFailed, match="is paused"):
            kafka.faults.cut("Fetch")
        with pytest.raises(BrokerFailed, match="is paused"):
            kafka.power_cut()
        assert fault.fired == 0
    kafka.resume()
    assert send(producer_of(kafka), topic, "x") is None


def test_faults_end_with_the_broker_that_they_were_asked_of() -> None:
    with broker() as kafka:
        topic = kafka.create_topic()
        producer = producer_of(kafka)
        with (
            kafka.faults.hold_syncs() as syncs,
            kafka.faults.hold("Produce") as held,
            kafka.faults.delay("Produce", seconds=3600, times=None),
        ):
            producer.produce(topic, "held")
            held.wait()
            kafka.restart()  # which waits for neither
            assert held.fired == 1
            held.release()
            syncs.release()
        assert producer.flush(PATIENCE_S) == 0
        kafka.crash()
        with pytest.raises(BrokerFailed, match="is not running"):
            kafka.faults.cut("Fetch")
        assert "Traceback" not in kafka.log


def test_what_happened_is_known_after_a_crash() -> None:
    with broker() as kafka:
        topic = kafka.create_topic()
        producer = producer_of(kafka)
        lost = kafka.faults.lose_response("Produce")
        producer.produce(topic, "x")
        lost.wait()
        kafka.crash()
        assert lost.fired == 1
        with pytest.raises(NotHappened, match="happened 1 times"):
            lost.wait(times=2)


def test_a_broker_whose_owner_dies_stops_though_faults_hold_it_up(tmp_path: Path) -> None:
    code = "\n".join(
        [
            "import os, signal, tempfile",
            f"tempfile.tempdir = {str(tmp_path)!r}",
            "from confluent_kafka import Producer",
            "from odradek.testing import Broker",
            "kafka = Broker(); kafka.start()",
            "topic = kafka.create_topic()",
            "kafka.faults.hold_syncs()",
            "held = kafka.faults.hold('Produce', times=None)",
            "producer = Producer({'bootstrap.servers': kafka.bootstrap})",
            "producer.produce(topic, 'x')",
            "held.wait()",
            "print(kafka.pid, flush=True)",
            "os.kill(os.getpid(), signal.SIGKILL)",
        ]
    )
    owner = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert owner.returncode == -9, owner.stderr
    wait_for_end(int(owner.stdout))


def test_no_other_broker_knows_of_faults() -> None:
    """`odradek up` cannot be asked for any: it does not even have the code."""
    code = (
        "import sys, odradek.cli.up, odradek.broker.main, odradek.services.coordination.groups\n"
        "print([name for name in sys.modules if 'faults' in name or 'lossy' in name or 'testing' in name])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout == "[]\n", result.stderr


def test_healing_undoes_faults_and_leaves_the_data_alone(kafka: Broker) -> None:
    topic = kafka.create_topic()
    producer = producer_of(kafka)
    kafka.faults.hold_syncs()
    lost = kafka.faults.lose_response("Produce")
    kafka.faults.answer("Produce", error="KAFKA_STORAGE_ERROR", times=None)
    producer.produce(topic, "x")
    kafka.heal()
    assert producer.flush(PATIENCE_S) == 0
    assert lost.fired <= 1
    assert consume(kafka, topic, 1) == ["x"]


# --- power cuts ---


def end_of(kafka: Broker, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "test"})
    end: int = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)[1]
    consumer.close()
    return end


def test_a_power_cut_loses_what_was_not_synced_and_nothing_else() -> None:
    with broker() as kafka:
        topic = kafka.create_topic()
        assert send(producer_of(kafka, acks="all"), topic, "kept") is None
        impatient = producer_of(kafka, acks=1)
        with kafka.faults.hold_syncs():
            assert send(impatient, topic, "lost") is None
            fresh = kafka.create_topic()
            assert send(impatient, fresh, "lost with the first segment") is None
            kafka.power_cut()
        assert not kafka.is_running
        kafka.start()
        assert consume(kafka, topic, 1) == ["kept"]
        assert (end_of(kafka, topic), end_of(kafka, fresh)) == (1, 0)
        assert send(impatient, fresh, "again") is None
        assert consume(kafka, fresh, 1) == ["again"]


def test_a_power_cut_keeps_what_a_crash_keeps_where_all_was_synced() -> None:
    """Topics, offsets of groups, sequences of producers; and what was deleted stays deleted."""
    with broker() as kafka:
        topic, gone = kafka.create_topic(config={"segment_bytes": 1 << 20}), kafka.create_topic()
        producer = producer_of(kafka, **{"enable.idempotence": True})
        for number in range(30):
            assert send(producer, topic, f"{number}" * 50_000) is None
        group = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
        group.commit(offsets=[TopicPartition(topic, 0, 17)], asynchronous=False)
        delete_topic(kafka, gone)
        for _ in range(2):
            kafka.power_cut()
            kafka.restart()
        assert group.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)[0].offset == 17
        assert gone not in group.list_topics(timeout=PATIENCE_S).topics
        group.close()
        assert send(producer, topic, "last") is None
        assert len(consume(kafka, topic, 31)) == 31
        assert (end_of(kafka, topic), "Traceback" in kafka.log) == (31, False)


def delete_topic(kafka: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)


def test_what_was_acknowledged_by_all_survives_power_cuts_in_the_middle_of_the_work() -> None:
    with broker() as kafka:
        topic = kafka.create_topic(config={"segment_bytes": 1 << 20})
        producer = producer_of(kafka, acks="all", **{"enable.idempotence": True})
        acknowledged: list[str] = []
        for life in range(3):
            for number in range(40):
                value = f"{life}-{number}".ljust(50_000)
                producer.produce(
                    topic,
                    value,
                    on_delivery=lambda error, message: error or acknowledged.append(message.value().decode()),
                )
                producer.poll(0)
            while len(acknowledged) < 40 * life + 5:
                producer.poll(1)
            kafka.power_cut()
            kafka.restart()
        assert producer.flush(PATIENCE_S) == 0
        assert len(acknowledged) == 120
        stored = [value.strip() for value in consume(kafka, topic, 120)]
        assert stored == [f"{life}-{number}" for life in range(3) for number in range(40)]


def test_compacted_segments_survive_a_power_cut() -> None:
    """They are made by another process, of which the lossy disk knows nothing until they are renamed."""
    with broker(log_cleaner_backoff_ms=50) as kafka:
        config = {"cleanup_policy": "compact", "segment_bytes": 1 << 20, "min_cleanable_dirty_ratio": 0.01}
        topic = kafka.create_topic(config=config)
        producer = producer_of(kafka, acks="all")
        for number in range(60):
            producer.produce(topic, f"{number}".ljust(100_000), key=f"{number % 3}")
            producer.flush(PATIENCE_S)
        directory = kafka._directory / "data" / f"{topic}-0"
        deadline = time.monotonic() + PATIENCE_S
        while not any("deleted" in name for name in os.listdir(directory)):
            assert time.monotonic() < deadline, os.listdir(directory)
            time.sleep(0.01)
        kafka.power_cut()
        kafka.restart()
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "test"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        latest = {}
        while sorted(latest.values()) != [57, 58, 59]:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, latest
            latest[message.key()] = int(message.value())
        consumer.close()
        assert "Traceback" not in kafka.log
