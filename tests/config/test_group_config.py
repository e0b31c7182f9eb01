"""Groups: overrides over broker keys, within the broker's limits."""

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigSource
from odradek.config.describe import Synonym, describe_group
from odradek.config.group import check_group_overrides, group_values
from odradek.errors import ErrorCode, KafkaError

DEFAULT, STATIC, GROUP = (
    ConfigSource.DEFAULT_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_GROUP_CONFIG,
)


def test_a_group_takes_what_it_does_not_set_from_the_broker():
    broker = BrokerConfig({"group.share.delivery.count.limit": "7"})
    values = group_values({"consumer.heartbeat.interval.ms": "6000"}, broker)
    assert values["share.delivery.count.limit"] == 7
    assert values["consumer.heartbeat.interval.ms"] == 6000
    assert values["share.auto.offset.reset"] == "latest"


def test_an_override_beyond_a_limit_that_came_later_is_not_used():
    broker = BrokerConfig({"group.consumer.max.session.timeout.ms": "50000"})
    assert (
        group_values({"consumer.session.timeout.ms": "55000"}, broker)["consumer.session.timeout.ms"] == 45000
    )


@pytest.mark.parametrize(
    "overrides",
    [
        {"consumer.session.timeout.ms": "60000"},
        {"share.auto.offset.reset": "by_duration:PT1H"},
        {"share.isolation.level": "read_committed", "share.delivery.count.limit": "10"},
    ],
)
def test_accepted(overrides):
    check_group_overrides(overrides, BrokerConfig())


@pytest.mark.parametrize(
    "overrides",
    [
        {"session.timeout.ms": "60000"},
        {"consumer.session.timeout.ms": "60001"},
        {"consumer.session.timeout.ms": "44999"},
        {"share.delivery.count.limit": "11"},
        {"share.auto.offset.reset": "none"},
        {"share.isolation.level": "dirty"},
    ],
)
def test_refused(overrides):
    with pytest.raises(KafkaError) as refusal:
        check_group_overrides(overrides, BrokerConfig())
    assert refusal.value.code is ErrorCode.INVALID_CONFIG


def test_heartbeats_come_within_a_session():
    limits = {"group.share.min.session.timeout.ms": "1", "group.share.max.heartbeat.interval.ms": "90000"}
    with pytest.raises(KafkaError):
        check_group_overrides({"share.session.timeout.ms": "5000"}, BrokerConfig(limits))


@pytest.mark.parametrize(
    ("overrides", "key", "synonyms"),
    [
        ({}, "consumer.session.timeout.ms", [("group.consumer.session.timeout.ms", "45000", DEFAULT)]),
        ({}, "share.isolation.level", [("share.isolation.level", "read_uncommitted", DEFAULT)]),
        (
            {"consumer.session.timeout.ms": "50000"},
            "consumer.session.timeout.ms",
            [
                ("consumer.session.timeout.ms", "50000", GROUP),
                ("group.consumer.session.timeout.ms", "45000", DEFAULT),
            ],
        ),
    ],
)
def test_described(overrides, key, synonyms):
    [entry] = describe_group(overrides, BrokerConfig(), [key])
    assert list(entry.synonyms) == [Synonym(*synonym) for synonym in synonyms]
    assert (entry.value, entry.source) == synonyms[0][1:]
    assert not entry.read_only
