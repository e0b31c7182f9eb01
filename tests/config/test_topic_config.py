"""Topics: overrides over broker keys, what is refused, and what DescribeConfigs shows of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigSource, ConfigType, to_text
from odradek.config.describe import Synonym, describe_broker, describe_broker_defaults, describe_topic
from odradek.config.topic import (
    check_topic_overrides,
    log_config,
    throttled_partitions,
    topic_rules,
    topic_values,
)
from odradek.config.topic_definitions import TOPIC_DEFINITIONS
from odradek.errors import ErrorCode, KafkaError
from odradek.records.compression import Codec
from odradek.records.record import TimestampType
from odradek.records.validation import TopicRules
from odradek.storage.config import LogConfig

DEFAULT, STATIC = ConfigSource.DEFAULT_CONFIG, ConfigSource.STATIC_BROKER_CONFIG
TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG


def test_without_any_setting_a_log_has_its_own_defaults():
    assert log_config(topic_values({}, BrokerConfig())) == LogConfig()


@pytest.mark.parametrize(
    ("broker", "overrides", "key", "value"),
    [
        ({"log.retention.hours": "1"}, {}, "retention.ms", 3600000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, {}, "retention.ms", 120000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, {}, "retention.ms", 3),
        ({"log.retention.hours": "-1"}, {}, "retention.ms", -1),
        ({"log.retention.ms": "3"}, {"retention.ms": "4"}, "retention.ms", 4),
        ({"log.flush.scheduler.interval.ms": "9"}, {}, "flush.ms", 9),
        ({"message.max.bytes": "5"}, {}, "max.message.bytes", 5),
        ({"log.cleanup.policy": "compact"}, {}, "cleanup.policy", ("compact",)),
        ({}, {"retention.ms": "not a number any more"}, "retention.ms", 604800000),
    ],
)
def test_resolution(broker, overrides, key, value):
    assert topic_values(overrides, BrokerConfig(broker))[key] == value


def test_a_log_config_of_overrides():
    values = topic_values({"cleanup.policy": "compact", "internal.segment.bytes": "100"}, BrokerConfig())
    config = log_config(values)
    assert (config.compact, config.delete, config.segment_bytes) == (True, False, 100)


def test_without_any_setting_produce_has_its_own_defaults():
    assert topic_rules(topic_values({}, BrokerConfig()), full_validation=False) == TopicRules()


@pytest.mark.parametrize(
    ("overrides", "codec", "level"),
    [
        ({"compression.type": "zstd", "compression.zstd.level": "7"}, Codec.ZSTD, 7),
        ({"compression.type": "gzip", "compression.zstd.level": "7"}, Codec.GZIP, None),
        ({"compression.type": "uncompressed"}, Codec.NONE, None),
        ({"compression.type": "snappy"}, Codec.SNAPPY, None),
    ],
)
def test_rules_of_overrides(overrides, codec, level):
    overrides |= {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}
    rules = topic_rules(topic_values(overrides, BrokerConfig()), full_validation=True)
    assert (rules.compression_type, rules.compression_level) == (codec, level)
    assert rules.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert rules.compact and rules.full_validation


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention": "1"}, "Unknown topic config name: retention"),
        ({"retention.ms": None}, "no value given for topic config: retention.ms"),
        (
            {"retention.ms": "x"},
            "Invalid value x for configuration retention.ms: must be a number of type LONG",
        ),
        (
            {"segment.bytes": "1000"},
            "Invalid value 1000 for configuration segment.bytes: must be at least",
        ),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "min.compaction.lag.ms (9) is more"),
        ({"remote.storage.enable": "true"}, "tiered storage"),
    ],
)
def test_refused(overrides, message):
    with pytest.raises(KafkaError) as refusal:
        check_topic_overrides(overrides, BrokerConfig())
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert message in refusal.value.message


def test_an_override_is_checked_together_with_the_brokers_values():
    broker = BrokerConfig({"log.cleaner.max.compaction.lag.ms": "5"})
    with pytest.raises(KafkaError):
        check_topic_overrides({"min.compaction.lag.ms": "6"}, broker)


def entry_of(entries, name):
    return next(entry for entry in entries if entry.name == name)


def test_every_topic_key_is_described():
    entries = describe_topic({}, BrokerConfig())
    assert {entry.name for entry in entries} == {
        n for n in TOPIC_DEFINITIONS if not n.startswith("internal.")
    }
    assert all(entry.source is DEFAULT and not entry.read_only and entry.documentation for entry in entries)


@pytest.mark.parametrize(
    ("broker", "overrides", "key", "source", "synonyms"),
    [
        ({}, {}, "retention.ms", DEFAULT, []),
        ({"log.retention.hours": "1"}, {}, "retention.ms", DEFAULT, []),
        ({}, {}, "cleanup.policy", DEFAULT, [("log.cleanup.policy", "delete", DEFAULT)]),
        ({}, {}, "remote.storage.enable", DEFAULT, []),
        (
            {"log.retention.ms": "3"},
            {"retention.ms": "4"},
            "retention.ms",
            TOPIC,
            [
                ("retention.ms", "4", TOPIC),
                ("log.retention.ms", "3", STATIC),
                ("log.retention.hours", "168", DEFAULT),
            ],
        ),
        (
            {"message.max.bytes": "5"},
            {},
            "max.message.bytes",
            STATIC,
            [("message.max.bytes", "5", STATIC), ("message.max.bytes", "1048588", DEFAULT)],
        ),
    ],
)
def test_sources_and_synonyms(broker, overrides, key, source, synonyms):
    entry = entry_of(describe_topic(overrides, BrokerConfig(broker)), key)
    assert entry.source is source
    assert list(entry.synonyms) == [Synonym(*synonym) for synonym in synonyms]


def test_dynamic_sources():
    broker = BrokerConfig({"message.max.bytes": "1"}).with_dynamic(
        {"message.max.bytes": "3"}, {"message.max.bytes": "2"}
    )
    [entry] = describe_topic({}, broker, ["max.message.bytes"])
    assert entry.value == "3"
    assert [(item.value, item.source.name) for item in entry.synonyms] == [
        ("3", "DYNAMIC_BROKER_CONFIG"),
        ("2", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("1", "STATIC_BROKER_CONFIG"),
        ("1048588", "DEFAULT_CONFIG"),
    ]
    [default] = describe_broker_defaults(broker)
    assert (default.name, default.value, default.read_only) == ("message.max.bytes", "2", False)


def test_brokers_are_described_without_their_secrets():
    entries = describe_broker(BrokerConfig({"ssl.key.password": "hunter2", "node.id": "4"}))
    secret, node_id = entry_of(entries, "ssl.key.password"), entry_of(entries, "node.id")
    assert secret.is_sensitive and secret.value is None and secret.type is ConfigType.PASSWORD
    assert "hunter2" not in repr(entries)
    assert (node_id.value, node_id.source, node_id.read_only) == ("4", STATIC, True)
    assert entry_of(entries, "log.retention.ms").read_only is False


def test_of_a_setting_that_nobody_knows_only_the_name_is_shown():
    broker = BrokerConfig().with_dynamic({"nope": "hunter2", "message.max.bytes": "3"}, {"nope": "hunter3"})
    assert broker["message.max.bytes"] == 3
    assert broker.warnings == ["unknown setting nope", "unknown setting nope"]
    entry = entry_of(describe_broker(broker), "nope")
    assert (entry.value, entry.is_sensitive, entry.read_only, entry.documentation) == (None, True, True, None)
    assert (entry.type, entry.source) == (ConfigType.UNKNOWN, ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [(item.value, item.source.name) for item in entry.synonyms] == [
        (None, "DYNAMIC_BROKER_CONFIG"),
        (None, "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    ]
    [default] = describe_broker_defaults(broker)
    assert (default.name, default.value, default.synonyms) == ("nope", None, entry.synonyms[1:])
    assert describe_broker(broker, ["message.max.bytes"])[0].name == "message.max.bytes"
    assert [found.name for found in describe_broker(broker, ["nope"])] == ["nope"]


@pytest.mark.parametrize(("static", "value"), [({}, "3"), ({"default.replication.factor": "2"}, "2")])
def test_a_default_may_follow_the_cluster(static, value):
    key = "default.replication.factor"
    (entry,) = describe_broker(BrokerConfig(static), [key], {key: 3})
    assert (entry.value, entry.synonyms[0].value, entry.synonyms[-1].value) == (value, value, "3")


@given(st.data())
def test_a_described_topic_can_be_created_again_from_its_description(data):
    numbers = st.integers(2**21, 2**31 - 1).map(str)
    keys = [name for name, d in TOPIC_DEFINITIONS.items() if d.type in (ConfigType.INT, ConfigType.LONG)]
    keys = [name for name in keys if "level" not in name and "compaction" not in name]
    overrides = data.draw(st.dictionaries(st.sampled_from(keys), numbers))
    check_topic_overrides(overrides, BrokerConfig())
    entries = describe_topic(overrides, BrokerConfig())
    assert {entry.name: entry.value for entry in entries if entry.source is TOPIC} == {
        name: value for name, value in overrides.items() if not name.startswith("internal.")
    }
    values = topic_values({entry.name: entry.value for entry in entries}, BrokerConfig())
    assert {entry.name: entry.value for entry in entries} == {
        name: to_text(value) for name, value in values.items() if not name.startswith("internal.")
    }


@pytest.mark.parametrize(
    ("listed", "throttled"),
    [
        ((), set()),
        (("0:1", "2:3", "4:1", ""), {0, 4}),
        (("0:11", "1:2"), set()),
        (("*",), {0, 4, 2**31 - 1}),
    ],
)
def test_a_broker_throttles_the_partitions_for_which_it_is_named(listed, throttled):
    found = throttled_partitions(listed, 1)
    assert {index for index in (*range(10), 2**31 - 1) if index in found} == (
        {*range(10), 2**31 - 1} if listed == ("*",) else throttled
    )
    assert bool(found) == bool(throttled)
