"""Tests of what a decision changes, in words: values before and after, and no secrets."""

from uuid import UUID

from odradek.controller.changes import changes
from odradek.metadata.image import ConfigResource, MetadataImage, Partition, ResourceType, Topic
from odradek.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

ID = UUID(int=7)
TOPIC = Topic("foo", ID, {0: Partition(1, 0, 0, (1,), (1,), ())})
IMAGE = MetadataImage(
    "cluster",
    topics={"foo": TOPIC},
    topics_by_id={ID: TOPIC},
    configs={
        ConfigResource(ResourceType.TOPIC, "foo"): {"retention.ms": "1"},
        ConfigResource(ResourceType.BROKER, "1"): {"ssl.key.password": "old secret"},
    },
)


def texts(*records: object) -> list[str]:
    return [change.text for change in changes(IMAGE, records)]  # type: ignore[arg-type]


def test_topics() -> None:
    other = UUID(int=8)
    assert texts(
        TopicRecord("bar", other),
        ConfigRecord(ResourceType.TOPIC, "bar", "segment.ms", "5"),
        PartitionRecord(0, other, [1, 2]),
        PartitionRecord(1, other, [2, 1]),
        PartitionRecord(1, ID, [1]),
    ) == [
        "created topic bar (id AAAAAAAAAAAAAAAAAAAACA) with 2 partitions, replication factor 2, segment.ms=5",
        "added 1 partition to topic foo, which has 2 now",
    ]
    assert texts(RemoveTopicRecord(ID)) == ["deleted topic foo (id AAAAAAAAAAAAAAAAAAAABw) with 1 partition"]


def test_settings() -> None:
    assert texts(
        ConfigRecord(ResourceType.TOPIC, "foo", "retention.ms", "2"),
        ConfigRecord(ResourceType.GROUP, "a\nb", "consumer.session.timeout.ms", "50000"),
        ConfigRecord(ResourceType.BROKER, "", "log.retention.ms", "x" * 1_000),
    ) == [
        "set retention.ms of topic foo from 1 to 2",
        r'set consumer.session.timeout.ms of group "a\nb" from its default to 50000',
        f"set log.retention.ms of all brokers from its default to {'x' * 200}… (800 more characters)",
    ]


def test_secrets_are_not_shown() -> None:
    assert texts(
        ConfigRecord(ResourceType.BROKER, "1", "ssl.key.password", "new secret"),
        ConfigRecord(ResourceType.BROKER, "1", "unknown.setting", "may be a secret"),
    ) == [
        "set ssl.key.password of broker 1 from [hidden] to [hidden]",
        "set unknown.setting of broker 1 from its default to [hidden]",
    ]


def test_what_nobody_asked_for_is_left_out() -> None:
    assert texts(ProducerIdsRecord(1, 1, 1_000)) == []
