"""Topics, partitions, settings and offsets, administered by each client that has an admin interface."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka import KafkaAdminClient

from tests.real_clients.adapters import Confluent, Kafkajs, Kcat, Message
from tests.support import RunningBroker

TIMEOUT_S = 60  # of what takes milliseconds, on a busy machine too


@pytest.fixture
def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def only(futures: dict[Any, Any]) -> Any:
    """The future of the one thing that was asked for."""
    (future,) = futures.values()
    return future


def error_of(call: Callable[[], object]) -> str:
    with pytest.raises(KafkaException) as caught:
        call()
    return str(caught.value.args[0].name())


def topic_settings(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found: dict[str, ConfigEntry] = only(admin.describe_configs([resource])).result(TIMEOUT_S)
    return found


class TestConfluent:
    def test_topics_come_grow_and_go(self, admin: AdminClient, topic: str) -> None:
        new = NewTopic(topic, 2, config={"retention.ms": "5000"})
        only(admin.create_topics([new])).result(TIMEOUT_S)
        assert error_of(lambda: only(admin.create_topics([new])).result()) == "TOPIC_ALREADY_EXISTS"
        assert len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) == 2
        only(admin.create_partitions([NewPartitions(topic, 5)])).result(TIMEOUT_S)
        fewer = [NewPartitions(topic, 3)]
        assert error_of(lambda: only(admin.create_partitions(fewer)).result()) == "INVALID_PARTITIONS"
        assert len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) == 5
        only(admin.delete_topics([topic])).result(TIMEOUT_S)
        assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics
        gone = [topic]
        assert error_of(lambda: only(admin.delete_topics(gone)).result()) == "UNKNOWN_TOPIC_OR_PART"

    def test_settings(self, admin: AdminClient, topic: str) -> None:
        only(admin.create_topics([NewTopic(topic, 1, config={"retention.ms": "5000"})])).result(TIMEOUT_S)
        settings = topic_settings(admin, topic)
        assert settings["retention.ms"].value == "5000"
        assert not settings["retention.ms"].is_default
        assert settings["cleanup.policy"].value == "delete"
        assert settings["cleanup.policy"].is_default
        changes = [
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
            ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET),
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        only(admin.incremental_alter_configs([resource])).result(TIMEOUT_S)
        settings = topic_settings(admin, topic)
        assert settings["retention.ms"].value == "604800000"
        assert settings["cleanup.policy"].value == "delete,compact"
        assert settings["max.message.bytes"].value == "2000"

    def test_a_bad_setting_is_refused(self, admin: AdminClient, topic: str) -> None:
        bad = [NewTopic(topic, 1, config={"retention.ms": "soon"})]
        assert error_of(lambda: only(admin.create_topics(bad)).result()) == "INVALID_CONFIG"
        illegal = [NewTopic("a topic", 1)]
        assert error_of(lambda: only(admin.create_topics(illegal)).result()) == "TOPIC_EXCEPTION"

    def test_broker_settings(self, admin: AdminClient) -> None:
        resource = ConfigResource(ResourceType.BROKER, "1")
        settings = only(admin.describe_configs([resource])).result(TIMEOUT_S)
        assert settings["num.partitions"].value == "3"
        assert settings["log.retention.hours"].value == "168"

    def test_delete_records_and_list_offsets(
        self, broker: RunningBroker, admin: AdminClient, topic: str
    ) -> None:
        messages = [Message(value=b"%d" % n, timestamp=1_000_000 + n) for n in range(10)]
        Confluent().produce(broker.bootstrap, topic, messages)
        deleted = only(admin.delete_records([TopicPartition(topic, 0, 4)])).result(TIMEOUT_S)
        assert deleted.low_watermark == 4
        partition = TopicPartition(topic, 0)

        def offset(spec: OffsetSpec) -> int:
            return int(only(admin.list_offsets({partition: spec})).result(TIMEOUT_S).offset)

        assert offset(OffsetSpec.earliest()) == 4
        assert offset(OffsetSpec.latest()) == 10
        assert offset(OffsetSpec.max_timestamp()) == 9
        assert offset(OffsetSpec.for_timestamp(1_000_006)) == 6
        beyond = [TopicPartition(topic, 0, 11)]
        assert error_of(lambda: only(admin.delete_records(beyond)).result()) == "OFFSET_OUT_OF_RANGE"

    def test_the_cluster(self, broker: RunningBroker, admin: AdminClient, topic: str) -> None:
        Confluent().produce(broker.bootstrap, topic, [Message(value=b"x")])
        cluster = admin.describe_cluster().result(TIMEOUT_S)
        assert [(node.id, f"{node.host}:{node.port}") for node in cluster.nodes] == [(1, broker.bootstrap)]
        described = only(admin.describe_topics(TopicCollection([topic]))).result(TIMEOUT_S)
        assert [partition.leader.id for partition in described.partitions] == [1, 1, 1]


def test_kafka_python(broker: RunningBroker, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics({topic: {"num_partitions": 2, "configs": {"retention.ms": "7000"}}})
    assert topic in admin.list_topics()
    admin.create_partitions({topic: 3})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()


def test_kafkajs(broker: RunningBroker, topic: str) -> None:
    client = Kafkajs()
    client.check_installed()
    assert client.run("administer", bootstrap=broker.bootstrap, topic=topic) == {
        "created": True,
        "partitions": 4,
        "retention": "12345",
        "brokers": 1,
        "offsets": 4,
        "deleted": True,
    }


def test_kcat_lists_the_cluster(broker: RunningBroker, topic: str) -> None:
    client = Kcat()
    client.check_installed()
    client.produce(broker.bootstrap, topic, [Message(value=b"x")])
    listing = subprocess.run(["kcat", "-b", broker.bootstrap, "-L", "-J"], capture_output=True, check=True)
    found = json.loads(listing.stdout)
    assert found["brokers"] == [{"id": 1, "name": broker.bootstrap}]
    (listed,) = (entry for entry in found["topics"] if entry["topic"] == topic)
    assert [partition["leader"] for partition in listed["partitions"]] == [1, 1, 1]


def test_a_topic_is_created_when_it_is_first_asked_for(
    broker: RunningBroker, admin: AdminClient, topic: str
) -> None:
    """The topic has `num.partitions` partitions, three here."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    failed: list[object] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed
    assert len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) == 3
