"""Images and deltas: against a dumb oracle, and what they promise one by one."""

import random
from uuid import UUID

import pytest

from odradek.metadata.delta import MetadataCorrupt, apply_records, difference
from odradek.metadata.image import ConfigResource, MetadataImage, ResourceType
from odradek.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

EMPTY = MetadataImage("cluster")
A, B = UUID(int=0xA), UUID(int=0xB)


def partition_record(topic_id, index=0, **fields):
    settings = {"replicas": [1, 2], "isr": [1, 2], "leader": 1, "leader_epoch": 0, "partition_epoch": 0}
    return PartitionRecord(index, topic_id, **(settings | fields))


def apply(image, *records, offset=0):
    return apply_records(image, records, offset, 1)


ONE_TOPIC = apply(EMPTY, TopicRecord("a.b", A), partition_record(A), ConfigRecord(2, "a.b", "k", "v"))[0]


def test_a_topic_appears_under_name_id_and_metric_name():
    image, delta = apply(EMPTY, TopicRecord("a.b", A), partition_record(A), offset=9)
    assert image.topics["a.b"] is image.topics_by_id[A]
    assert image.metric_names == {"a_b": "a.b"}
    assert image.partition("a.b", 0).isr == (1, 2)
    assert image.partition("a.b", 1) is None and image.partition("c", 0) is None
    assert delta.created_topics == (image.topics["a.b"],)
    assert (image.offset, image.epoch) == (9, 1)
    assert EMPTY.topics == {}


def test_a_deleted_topic_takes_its_configuration_along():
    image, delta = apply(ONE_TOPIC, RemoveTopicRecord(A))
    assert not image.topics and not image.topics_by_id and not image.configs and not image.metric_names
    assert [topic.name for topic in delta.deleted_topics] == ["a.b"]
    assert delta.changed_configs == {ConfigResource(ResourceType.TOPIC, "a.b")}


def test_a_topic_that_comes_and_goes_is_not_named():
    image, delta = apply(EMPTY, TopicRecord("a", A), partition_record(A), RemoveTopicRecord(A))
    assert image.topics == {}
    assert not delta.created_topics and not delta.deleted_topics and not delta.changed_topics


def test_the_ids_of_removed_topics_are_named_also_of_one_that_came_and_went():
    image, delta = apply(ONE_TOPIC, RemoveTopicRecord(A), TopicRecord("b", B), RemoveTopicRecord(B))
    assert delta.removed_topic_ids == {A, B}
    assert apply(ONE_TOPIC, TopicRecord("b", B))[1].removed_topic_ids == frozenset()
    assert difference(ONE_TOPIC, image).removed_topic_ids == {A}


def test_a_topic_replaced_by_one_of_its_name_is_deleted_and_created():
    image, delta = apply(ONE_TOPIC, RemoveTopicRecord(A), TopicRecord("a.b", B), partition_record(B))
    assert [topic.id for topic in delta.deleted_topics] == [A]
    assert [topic.id for topic in delta.created_topics] == [B]
    assert image.topics["a.b"].id == B


def test_an_election_raises_both_epochs_and_another_change_only_one():
    image, delta = apply(ONE_TOPIC, PartitionChangeRecord(0, A, leader=2, isr=[2]))
    partition = image.partition("a.b", 0)
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (2, 1, 1)
    assert (partition.isr, partition.replicas) == ((2,), (1, 2))
    [change] = delta.changed_topics
    assert change.changed_partitions() == {0: partition}
    image, _ = apply(image, PartitionChangeRecord(0, A, isr=[2, 1]))
    partition = image.partition("a.b", 0)
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((2, 1), 1, 2)


def test_only_the_partitions_that_changed_are_named():
    image, _ = apply(ONE_TOPIC, partition_record(A, 1))
    _, delta = apply(image, PartitionChangeRecord(1, A, isr=[1]), partition_record(A, 2))
    [change] = delta.changed_topics
    assert sorted(change.changed_partitions()) == [1, 2]


def test_what_did_not_change_is_shared():
    image, _ = apply(ONE_TOPIC, FeatureLevelRecord("f", 1))
    assert image.topics is ONE_TOPIC.topics
    assert image.configs is ONE_TOPIC.configs
    image, _ = apply(ONE_TOPIC, TopicRecord("c", B))
    assert image.topics["a.b"] is ONE_TOPIC.topics["a.b"]


def test_setting_a_key_to_what_it_was_changes_nothing():
    _, delta = apply(ONE_TOPIC, ConfigRecord(2, "a.b", "k", "v"))
    assert not delta.changed_configs
    image, delta = apply(ONE_TOPIC, ConfigRecord(2, "a.b", "k", None))
    assert image.configs == {} and delta.changed_configs


def test_brokers():
    broker = RegisterBrokerRecord(
        1, broker_epoch=5, end_points=[BrokerEndpoint("PLAINTEXT", "h", 9)], rack="r"
    )
    image, delta = apply(EMPTY, broker)
    assert delta.changed_brokers == {1} and not image.brokers[1].is_active
    image, _ = apply(image, UnfenceBrokerRecord(1, 5))
    assert [item.id for item in image.active_brokers()] == [1]
    assert image.brokers[1].endpoint("PLAINTEXT").host == "h" and image.brokers[1].endpoint("SSL") is None
    image, _ = apply(image, BrokerRegistrationChangeRecord(1, 5, in_controlled_shutdown=1, log_dirs=[A]))
    assert not image.brokers[1].is_active and image.brokers[1].directories == (A,)
    image, _ = apply(image, BrokerRegistrationChangeRecord(1, 5, fenced=1))
    assert image.brokers[1].is_fenced
    image, delta = apply(image, UnregisterBrokerRecord(1, 5))
    assert image.brokers == {} and delta.changed_brokers == {1}


def test_quotas_features_and_producer_ids():
    image, delta = apply(
        EMPTY,
        ClientQuotaRecord([QuotaEntity("user", "u"), QuotaEntity("client-id", None)], "rate", 2.0),
        FeatureLevelRecord("metadata.version", 25),
        ProducerIdsRecord(1, 5, 1000),
        NoOpRecord(),
    )
    key = (("client-id", None), ("user", "u"))
    assert (image.quotas, image.features, image.next_producer_id) == (
        {key: {"rate": 2.0}},
        {"metadata.version": 25},
        1000,
    )
    assert (delta.changed_quotas, delta.changed_features) == ({key}, {"metadata.version"})
    image, _ = apply(
        image,
        ClientQuotaRecord([QuotaEntity("client-id", None), QuotaEntity("user", "u")], "rate", 0.0, True),
        FeatureLevelRecord("metadata.version", 0),
    )
    assert image.quotas == {} and image.features == {}


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord("a.b", B),
        TopicRecord("c", A),
        RemoveTopicRecord(B),
        partition_record(B),
        PartitionChangeRecord(7, A),
        FenceBrokerRecord(1, 1),
        UnregisterBrokerRecord(1, 1),
        ProducerIdsRecord(1, 1, 0),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_does_not_fit_is_refused(record):
    with pytest.raises(MetadataCorrupt):
        apply(ONE_TOPIC, record)


class Oracle:
    """The same facts in plain dictionaries, changed in place, with no thought of speed."""

    def __init__(self):
        self.topics, self.partitions, self.configs = {}, {}, {}

    def facts(self):
        return {
            **{("topic", topic_id): name for topic_id, name in self.topics.items()},
            **{("partition", *key): dict(value) for key, value in self.partitions.items()},
            **{("config", *key): value for key, value in self.configs.items()},
        }

    def random_record(self, rng):
        """A record that fits, applied here in the most obvious way."""
        topic_ids = list(self.topics)
        kind = rng.choice(["topic", "partition", "change", "remove", "config"])
        if kind == "topic" or not topic_ids:
            return self.create(UUID(int=rng.getrandbits(64)), f"t{rng.getrandbits(40)}")
        topic_id = rng.choice(topic_ids)
        indexes = [index for owner, index in self.partitions if owner == topic_id]
        if kind == "remove":
            return self.remove(topic_id)
        if kind == "config":
            return self.configure(self.topics[topic_id], rng.choice("xyz"), rng.choice([None, "1", "2"]))
        if kind == "partition" or not indexes:
            return self.add(topic_id, len(indexes))
        return self.change(
            topic_id, rng.choice(indexes), rng.choice([1, 2, 3, -2]), rng.choice([None, [1], [1, 2]])
        )

    def create(self, topic_id, name):
        self.topics[topic_id] = name
        return TopicRecord(name, topic_id)

    def remove(self, topic_id):
        name = self.topics.pop(topic_id)
        self.partitions = {key: value for key, value in self.partitions.items() if key[0] != topic_id}
        self.configs = {key: value for key, value in self.configs.items() if key[0] != name}
        return RemoveTopicRecord(topic_id)

    def configure(self, name, key, value):
        self.configs[name, key] = value
        if value is None:
            del self.configs[name, key]
        return ConfigRecord(2, name, key, value)

    def add(self, topic_id, index):
        self.partitions[topic_id, index] = {
            "leader": 1,
            "leader_epoch": 0,
            "partition_epoch": 0,
            "isr": (1, 2),
        }
        return partition_record(topic_id, index)

    def change(self, topic_id, index, leader, isr):
        partition = self.partitions[topic_id, index]
        partition["partition_epoch"] += 1
        if leader != -2:
            partition["leader"] = leader
            partition["leader_epoch"] += 1
        if isr is not None:
            partition["isr"] = tuple(isr)
        return PartitionChangeRecord(index, topic_id, isr, leader)


def facts_of(image):
    facts = {("topic", topic.id): topic.name for topic in image.topics_by_id.values()}
    for topic in image.topics.values():
        for index, item in topic.partitions.items():
            names = ("leader", "leader_epoch", "partition_epoch", "isr")
            facts["partition", topic.id, index] = {name: getattr(item, name) for name in names}
    for resource, settings in image.configs.items():
        facts.update({("config", resource.name, key): value for key, value in settings.items()})
    return facts


def difference_named_by(delta):
    """The facts that the delta says have changed."""
    named = set()
    for topic in (*delta.created_topics, *delta.deleted_topics):
        named |= {("topic", topic.id)} | {("partition", topic.id, index) for index in topic.partitions}
    for change in delta.changed_topics:
        named |= {("partition", change.after.id, index) for index in change.changed_partitions()}
    for resource in delta.changed_configs:
        old, new = delta.before.configs.get(resource, {}), delta.after.configs.get(resource, {})
        named |= {
            ("config", resource.name, key) for key in old.keys() | new.keys() if old.get(key) != new.get(key)
        }
    return named


@pytest.mark.parametrize("seed", range(30))
def test_random_records_against_the_oracle(seed):
    rng, oracle, image, offset = random.Random(seed), Oracle(), EMPTY, -1
    for _ in range(40):
        before = oracle.facts()
        records = [oracle.random_record(rng) for _ in range(rng.randint(1, 8))]
        offset += len(records)
        image, delta = apply_records(image, records, offset, 1)
        after = oracle.facts()
        assert facts_of(image) == after
        assert facts_of(delta.before) == before
        assert difference_named_by(delta) == {
            key for key in before.keys() | after.keys() if before.get(key) != after.get(key)
        }
