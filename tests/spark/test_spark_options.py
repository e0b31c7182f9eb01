"""Options: read as Spark's connector reads them, refused by name where they cannot be meant."""

import re

import pytest

from odradek.model import TopicPartition
from odradek.spark.options import InvalidOption, Limit, parse_sink_options, parse_source_options
from odradek.spark.pattern import compile_java

SERVERS = {"kafka.bootstrap.servers": "here:9092"}
TOPIC = SERVERS | {"subscribe": "t"}


def batch(**given: str):
    return parse_source_options(TOPIC | given, streaming=False)


def stream(**given: str):
    return parse_source_options(TOPIC | given, streaming=True)


def test_a_batch_begins_at_the_earliest_and_a_stream_at_the_latest():
    assert (batch().start.kind, batch().end.kind) == (Limit.EARLIEST, Limit.LATEST)
    assert stream().start.kind == Limit.LATEST


def test_names_come_in_lower_case_with_some_of_sparks_own():
    options = parse_source_options(
        TOPIC | {"startingoffsets": "earliest", "checkpointlocation": "/x", "queryname": "q"}, streaming=True
    )
    assert options.start.kind == Limit.EARLIEST


def test_a_timestamp_goes_before_timestamps_and_those_before_offsets():
    by_timestamp = '{"t":{"0":5}}'
    given = {"startingOffsets": '{"t":{"0":9}}', "startingOffsetsByTimestamp": by_timestamp}
    assert batch(**given).start == Limit(Limit.TIMESTAMPS, ((TopicPartition("t", 0), 5),))
    assert batch(startingTimestamp="77", **given).start == Limit(Limit.TIMESTAMP, timestamp_ms=77)


def test_subscriptions():
    options = parse_source_options(SERVERS | {"subscribe": " a , b,,a"}, streaming=False)
    assert options.subscription.topics == ("a", "b")
    options = parse_source_options(SERVERS | {"assign": '{"t":[1,0]}'}, streaming=False)
    assert options.subscription.partitions == (TopicPartition("t", 0), TopicPartition("t", 1))
    options = parse_source_options(SERVERS | {"subscribePattern": "a.*"}, streaming=False)
    assert options.subscription.pattern == "a.*"


@pytest.mark.parametrize(
    ("java", "matching", "others"),
    [
        ("a.*|b", ["a", "abc", "b"], ["ba", "bb"]),
        (r"\Qa.b\E\d", ["a.b1"], ["axb1", "a.b"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"\p{Alpha}+-[\p{Digit}_]\p{L}\pL", ["orders-1ab", "o-_ab"], ["1-1ab", "o-aab"]),
        (r"\P{Upper}*", ["abc"], ["aBc"]),
        (r"[^\p{Punct}]*", ["abc1"], ["a-c", "a.c", "a_c"]),
        (r"(?<word>\w+)-\k<word>", ["a-a"], ["a-b"]),
        (r"a(?<=a)b(?<!a)\z", ["ab"], ["b"]),
        (r"(?i)ORDERS", ["orders"], []),
        (r"a++b(?>c|cd)e", ["aabce"], ["abcde"]),
        (r"[]a]\[[(?<b>]", ["a[b", "][("], ["b[b"]),
    ],
)
def test_a_pattern_is_javas(java, matching, others):
    pattern = compile_java(java)
    assert [name for name in matching + others if pattern.fullmatch(name)] == matching


@pytest.mark.parametrize("java", ["[a-z&&[^b]]", "[a[bc]]", r"[\P{Upper}]", r"\R", "a(?i)b", "*"])
def test_a_pattern_that_python_cannot_read_is_refused_and_not_misread(java):
    with pytest.raises(ValueError, match=r"class|Java"):
        compile_java(java)


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("15m", 900_000), ("2s", 2_000), ("7", 7), ("1h", 3_600_000)]
)
def test_durations(text, milliseconds):
    assert stream(maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


@pytest.mark.parametrize(
    ("given", "streaming", "message"),
    [
        ({}, False, "option 'subscribe', 'subscribePattern', 'assign': exactly one of them must be given"),
        ({"subscribe": "a", "assign": "{}"}, False, "not subscribe and assign"),
        ({"subscribe": " , "}, False, "option 'subscribe': it names no topics"),
        ({"subscribePattern": "("}, False, "option 'subscribePattern': '(' is not a Java regular expression"),
        (
            {"subscribePattern": r"\p{IsGreek}"},
            False,
            r"option 'subscribePattern': \p{IsGreek} is not supported",
        ),
        ({"assign": "t"}, False, "option 'assign': expected for example"),
        ({"subscribe": "t", "startingOfsets": "x"}, False, "did you mean 'startingOffsets'?"),
        ({"subscribe": "t", "bootstrap.servers": "x"}, False, "did you mean 'kafka.bootstrap.servers'?"),
        ({"subscribe": "t", "bootstrap.server": "x"}, False, "did you mean 'kafka.bootstrap.servers'?"),
        ({"subscribe": "t", "kafk.isolation.level": "x"}, False, "did you mean 'kafka.isolation.level'?"),
        ({"subscribe": "t", "linger.ms": "5"}, False, "did you mean 'kafka.linger.ms'?"),
        (
            {"subscribe": "t", "something": "5"},
            False,
            "known are subscribe, subscribePattern, assign,",
        ),
        (
            {"subscribe": "t", "startingOffsets": "earliset"},
            True,
            "option 'startingOffsets': expected 'earliest', 'latest', or an offset for every partition (-2 is "
            'earliest, -1 latest) like {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}; got earliset',
        ),
        ({"subscribe": "t", "startingOffsets": "latest"}, False, "cannot start at 'latest'"),
        ({"subscribe": "t", "startingOffsets": '{"t":{"0":-1}}'}, False, "t-0 cannot start at latest"),
        ({"subscribe": "t", "endingOffsets": "earliest"}, False, "cannot end at 'earliest'"),
        ({"subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'}, False, "t-0 cannot end at earliest"),
        ({"subscribe": "t", "endingOffsets": "latest"}, True, "option 'endingOffsets': a stream has no end"),
        ({"subscribe": "t", "endingTimestamp": "1"}, True, "option 'endingTimestamp': a stream has no end"),
        (
            {"subscribe": "t", "startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":3}}'},
            False,
            "option 'startingOffsets': t-0 begins at 9, after 3",
        ),
        (
            {"subscribe": "t", "startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"1":3}}'},
            False,
            "option 'endingOffsets': its partitions differ from those of startingOffsets",
        ),
        ({"subscribe": "t", "minPartitions": "0"}, False, "option 'minPartitions': 0 is less than 1"),
        ({"subscribe": "t", "failOnDataLoss": "maybe"}, False, "'maybe' is not one of true, false"),
        ({"subscribe": "t", "maxTriggerDelay": "soon"}, True, "'soon' is not a duration"),
        (
            {"subscribe": "t", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"},
            True,
            "option 'minOffsetsPerTrigger': 9 is more than maxOffsetsPerTrigger, 3",
        ),
        (
            {"subscribe": "t", "kafka.auto.offset.reset": "latest"},
            False,
            "option 'kafka.auto.offset.reset': not supported: set the source option 'startingOffsets'",
        ),
    ],
)
def test_a_wrong_option_is_named_with_what_to_do(given, streaming, message):
    with pytest.raises(InvalidOption, match=re.escape(message)):
        parse_source_options(SERVERS | given, streaming=streaming)


def test_the_brokers_must_be_named():
    with pytest.raises(InvalidOption, match=re.escape("option 'kafka.bootstrap.servers': must be given")):
        parse_source_options({"subscribe": "t"}, streaming=False)


def test_without_any_options_there_must_be_a_table():
    with pytest.raises(
        InvalidOption,
        match=r"no options were given\. Spark does not store the options of CREATE TABLE",
    ):
        parse_source_options({"path": "/warehouse/t"}, streaming=False)
    with pytest.raises(InvalidOption, match="no options were given"):
        parse_sink_options({})


@pytest.mark.parametrize(
    ("given", "outage_s", "delivery_s"),
    [
        ({}, 600, 600),
        ({"outageTimeout": "3m"}, 180, 180),
        ({"kafka.default.api.timeout.ms": "20000"}, 60, 60),  # three attempts, as with Spark's connector
        ({"fetchOffset.numRetries": "5"}, 300, 300),
        ({"fetchOffset.numRetries": "5", "kafka.default.api.timeout.ms": "20000"}, 100, 100),
        ({"fetchOffset.numRetries": "5", "outageTimeout": "10s"}, 10, 10),
        ({"kafka.delivery.timeout.ms": "7000"}, 600, 7),
    ],
)
def test_how_long_an_outage_is_waited_out(given, outage_s, delivery_s):
    properties = stream(**given).properties
    assert properties.client.api_timeout_s == outage_s
    assert properties.produce.delivery_timeout_s == delivery_s


def test_how_long_the_sink_waits():
    def outage_s(**given: str) -> float:
        return parse_sink_options(SERVERS | {"topic": "t"} | given).properties.client.api_timeout_s

    assert outage_s() == 600
    assert outage_s(**{"kafka.default.api.timeout.ms": "20000"}) == 20
    assert outage_s(outageTimeout="1h") == 3_600


@pytest.mark.parametrize(
    ("given", "message"),
    [("0", "0 is less than 1"), ("2147483648", "2147483648 is more than 2147483647"), ("2147483647", None)],
)
def test_how_long_a_transaction_may_take(given, message):
    options = SERVERS | {"topic": "t", "kafka.transaction.timeout.ms": given}
    if message is None:
        assert parse_sink_options(options).properties.produce.transaction_timeout_ms == int(given)
        return
    with pytest.raises(InvalidOption, match=f"option 'kafka.transaction.timeout.ms': {message}"):
        parse_sink_options(options)


def test_a_sink_may_be_told_that_its_brokers_were_reached_before():
    assert not parse_sink_options(SERVERS | {"topic": "t"}).reached_before
    assert parse_sink_options(SERVERS | {"topic": "t", "reachedbefore": "true"}).reached_before


def test_a_task_waits_as_long_unless_its_poll_timeout_says_otherwise():
    assert (stream().poll_timeout_ms, stream().outage_in_task_ms) == (120_000, None)
    given = stream(**{"kafkaConsumer.pollTimeoutMs": "9000"})
    assert (given.poll_timeout_ms, given.outage_in_task_ms) == (9_000, 9_000)


def test_the_sink_knows_its_own_options_only():
    assert parse_sink_options(SERVERS | {"topic": " t "}).topic == "t"
    with pytest.raises(InvalidOption, match="option 'subscribe': no such option"):
        parse_sink_options(SERVERS | {"subscribe": "t"})
