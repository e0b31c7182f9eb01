"""Keys accept and refuse what Kafka's do, and their values survive the way to text and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.broker_definitions import BROKER_DEFINITIONS
from odradek.config.definition import MAX_DOUBLE, MAX_INT, ConfigError, ConfigType, Definition, to_text
from odradek.config.topic_definitions import SYNONYMS, TOPIC_DEFINITIONS

ALL_DEFINITIONS = [*BROKER_DEFINITIONS.values(), *TOPIC_DEFINITIONS.values()]


@pytest.mark.parametrize("definition", ALL_DEFINITIONS, ids=lambda definition: definition.name)
def test_a_default_is_accepted_by_its_own_definition(definition):
    assert definition.documentation
    if definition.default is not None:
        assert definition.parse(to_text(definition.default)) == definition.default


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("retention.ms", " -1 ", -1),
        ("retention.ms", "+5", 5),
        ("cleanup.policy", "compact , delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("preallocate", "TRUE", True),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("compression.gzip.level", "-1", -1),
        ("leader.replication.throttled.replicas", "0:1,2:3", ("0:1", "2:3")),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("follower.replication.throttled.replicas", "", ()),
        ("follower.replication.throttled.replicas", "0:1, 2:3,", ("0:1", "2:3", "")),
    ],
)
def test_accepted(key, text, value):
    assert TOPIC_DEFINITIONS[key].parse(text) == value


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("retention.ms", "-2", "must be at least -1"),
        ("retention.ms", "1_000", "must be a number of type LONG"),
        ("retention.ms", "", "must be a number of type LONG"),
        ("retention.ms", str(2**63), "must be a number of type LONG"),
        ("max.message.bytes", str(2**31), "must be a number of type INT"),
        ("preallocate", "yes", "must be true or false"),
        ("min.cleanable.dirty.ratio", "1.5", "must be at most 1"),
        ("min.cleanable.dirty.ratio", "half", "must be a number of type DOUBLE"),
        ("cleanup.policy", "shrink", "must be one of compact, delete"),
        (
            "compression.type",
            "brotli",
            "must be one of uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        ("compression.gzip.level", "0", "must be from 1 to 9, or -1"),
        ("leader.replication.throttled.replicas", "0:1,*", "must be '*'"),
        ("follower.replication.throttled.replicas", "0", "must be '*'"),
        ("follower.replication.throttled.replicas", "-1:1", "must be '*'"),
    ],
)
def test_refused_with_key_value_and_reason(key, text, reason):
    with pytest.raises(ConfigError) as refusal:
        TOPIC_DEFINITIONS[key].parse(text)
    assert f"Invalid value {text} for configuration {key}: {reason}" in str(refusal.value)


def test_a_password_is_not_in_the_message_that_refuses_it():
    definition = Definition("secret", ConfigType.PASSWORD, None, "", lambda value: "too short")
    with pytest.raises(ConfigError) as refusal:
        definition.parse("hunter2")
    assert "hunter2" not in str(refusal.value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_survive_text(value):
    definition = Definition("ratio", ConfigType.DOUBLE, None, "")
    assert definition.parse(to_text(value)) == value


def test_doubles_are_written_as_java_writes_them():
    assert to_text(MAX_DOUBLE) == "1.7976931348623157E308"
    assert to_text(0.5) == "0.5"


@given(st.lists(st.text("abcxyz.", min_size=1), max_size=5).map(tuple))
def test_lists_survive_text(value):
    assert Definition("names", ConfigType.LIST, None, "").parse(to_text(value)) == value


def test_broker_keys_behind_topic_keys_agree_with_them():
    for topic_name, synonyms in SYNONYMS.items():
        name, factor = synonyms[-1]
        assert BROKER_DEFINITIONS[name].default == (
            TOPIC_DEFINITIONS[topic_name].default // factor
            if factor > 1
            else TOPIC_DEFINITIONS[topic_name].default
        )
    assert BROKER_DEFINITIONS["log.retention.hours"].default == 168
    assert BROKER_DEFINITIONS["log.retention.ms"].default is None
    assert BROKER_DEFINITIONS["max.connections"].default == MAX_INT
