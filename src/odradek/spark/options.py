"""The options of the source and the sink: those of Spark's own Kafka connector, and a few more.

Spark passes option names in lower case and adds some of its own. Any other name is refused, with
the nearest known one: a misspelt `startingOfsets` would otherwise be a query that starts in the wrong
place. `kafka.*` are settings of the Java client (`odradek.client.properties`).

Nothing here looks at the cluster: data sources are constructed often, in processes that only plan.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from odradek.client.cluster import EARLIEST, LATEST
from odradek.client.properties import KNOWN, InvalidProperty, Properties, parse_properties
from odradek.model import TopicPartition
from odradek.spark.offsets import parse_offsets, parse_partitions
from odradek.spark.pattern import compile_java

SOURCE_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "valueFormat",
    "valueSchema",
    "valueFraming",
    "schemaRegistry",
    "timeZone",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "groupIdPrefix",
    "commitGroup",
    "outageTimeout",
    "archive",
)
ARCHIVE_PREFIX = "archive."  # settings of the storage that an archive is in
VALUE_FORMATS = ("raw", "json", "csv", "text", "avro")
SCHEMA_FORMATS = ("json", "csv", "avro")  # those that need `valueSchema`
REACHED_BEFORE = "reachedBefore"
SINK_OPTIONS = ("topic", "includeHeaders", "includeTimestamp", "outageTimeout", REACHED_BEFORE)
EXACTLY_ONCE_ID = "exactlyOnceId"
UNDECIDED = "undecided"  # the column with the bytes of values that are left to Spark
NOT_BY_FORMAT = (
    "Spark does not tell a Python sink which batch it writes, so format('odradek') writes at least once; "
    "use odradek.spark.write_exactly_once(writer, options) for a stream, or write_once(df, options, id=…) for a batch"
)
SPARK_OPTIONS = {"checkpointlocation", "queryname", "path"}
SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
CLIENT_PREFIX = "kafka."

DEFAULT_POLL_TIMEOUT_MS = 120_000
DEFAULT_TRIGGER_DELAY = "15m"
DEFAULT_OUTAGE_TIMEOUT = "10m"
DEFAULT_FETCH_OFFSET_ATTEMPTS = 3
COLUMNS_EXPECTED = "columns like 'id BIGINT, name STRING'"
SCHEMAS = {"json": COLUMNS_EXPECTED, "csv": COLUMNS_EXPECTED, "avro": "the Avro schema, as JSON"}
TIME_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
OFFSETS_EXPECTED = (
    "'earliest', 'latest', or an offset for every partition (-2 is earliest, -1 latest) like "
    '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
)
TIMESTAMPS_EXPECTED = 'milliseconds since 1970 for every partition like {"topicA":{"0":1700000000000}}'

T = TypeVar("T")


TABLES_KEEP_NONE = (
    "Spark does not store the options of CREATE TABLE … USING odradek; "
    "use CREATE TEMPORARY VIEW … USING odradek OPTIONS (…) instead"
)


class InvalidOption(ValueError):
    """The message names the option and says what to do."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"option '{name}': {problem}")


class InvalidColumn(ValueError):
    """The message names the column and what it should be."""


class NoTable(ValueError):
    """A table of the catalog was asked for, which could not be read."""

    def __init__(self) -> None:
        super().__init__(f"Spark could not read such a table: {TABLES_KEEP_NONE}")


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions: exactly one of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def option(self) -> str:
        if self.topics:
            return "subscribe"
        return "assign" if self.partitions else "subscribePattern"


@dataclass(frozen=True, slots=True)
class Limit:
    """A place where a range starts or ends: `earliest`, `latest`, or by offset or timestamp (ms)."""

    kind: str
    offsets: tuple[tuple[TopicPartition, int], ...] = ()
    timestamp_ms: int | None = None

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMPS = "timestamps"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """The options that turn values into typed columns; `raw` leaves them as they are."""

    form: str = "raw"
    schema: str = ""  # DDL, or Spark's JSON; for Avro, its own
    framing: str = "none"  # or "registry": Avro after five bytes that name the schema that wrote it
    registry: str = ""
    time_zone: str | None = None  # of the session, which workers cannot see

    @property
    def is_typed(self) -> bool:
        return self.form != "raw"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    properties: Properties
    subscription: Subscription
    start: Limit
    end: Limit
    latest_if_no_match: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_headers: bool
    fetch_offset_attempts: int
    fetch_offset_interval_ms: int
    poll_timeout_ms: int
    outage_in_task_ms: int | None  # None: as long as anywhere else
    commit_group: str | None
    values: ValueOptions = ValueOptions()
    archive: str | None = None
    archive_storage: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SinkOptions:
    properties: Properties
    topic: str | None
    include_timestamp: bool = True
    reached_before: bool = False  # by an earlier batch: an outage is waited out from the first contact on


def parse_source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    reader = _Reader(given, SOURCE_OPTIONS)
    subscription = _subscription(reader)
    start = _limit(reader, "starting", Limit.LATEST if streaming else Limit.EARLIEST)
    if streaming:
        _refuse_ending(reader)
        end = Limit(Limit.LATEST)
    else:
        end = _limit(reader, "ending", Limit.LATEST)
        _check_batch_limits(start, end)
    lowest, highest = reader.number("minOffsetsPerTrigger"), reader.number("maxOffsetsPerTrigger")
    if lowest is not None and highest is not None and lowest > highest:
        raise InvalidOption("minOffsetsPerTrigger", f"{lowest} is more than maxOffsetsPerTrigger, {highest}")
    strategy = reader.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
    attempts = reader.number("fetchOffset.numRetries", lowest=1)
    poll_timeout_ms = reader.number("kafkaConsumer.pollTimeoutMs")
    return SourceOptions(
        properties=_patient(reader, _properties(reader), attempts),
        subscription=subscription,
        start=start,
        end=end,
        latest_if_no_match=strategy == "latest",
        max_offsets_per_trigger=highest,
        min_offsets_per_trigger=lowest,
        max_trigger_delay_ms=_duration_ms(reader, "maxTriggerDelay", DEFAULT_TRIGGER_DELAY),
        min_partitions=reader.number("minPartitions", lowest=1),
        max_records_per_partition=reader.number("maxRecordsPerPartition", lowest=1),
        fail_on_data_loss=reader.choice("failOnDataLoss", "true", ("true", "false")) == "true",
        include_headers=reader.choice("includeHeaders", "false", ("true", "false")) == "true",
        fetch_offset_attempts=attempts or DEFAULT_FETCH_OFFSET_ATTEMPTS,
        fetch_offset_interval_ms=_or(reader.number("fetchOffset.retryIntervalMs"), 1000),
        poll_timeout_ms=_or(poll_timeout_ms, DEFAULT_POLL_TIMEOUT_MS),
        outage_in_task_ms=poll_timeout_ms,
        commit_group=reader.text("commitGroup") or None,
        values=parse_value_options(given),
        archive=reader.text("archive") or None,
        archive_storage=_archive_storage(reader, start, end),
    )


def _archive_storage(reader: "_Reader", *limits: Limit) -> tuple[tuple[str, str], ...]:
    """Settings for the storage of an archive, which finds no offsets by their times."""
    given = {name: value for name, value in reader.given.items() if name.startswith(ARCHIVE_PREFIX)}
    if not reader.text("archive"):
        if given:
            raise InvalidOption(min(given), "it is for an archive: set the option 'archive', too")
        return ()
    if any(limit.kind in (Limit.TIMESTAMP, Limit.TIMESTAMPS) for limit in limits):
        raise InvalidOption(
            "archive",
            "with an archive, start at 'earliest' or at offsets, and filter by the column 'timestamp'",
        )
    return tuple(sorted((name.removeprefix(ARCHIVE_PREFIX), value) for name, value in given.items()))


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    if any(name.lower() == EXACTLY_ONCE_ID.lower() for name in given):
        raise InvalidOption(EXACTLY_ONCE_ID, NOT_BY_FORMAT)
    reader = _Reader(given, SINK_OPTIONS)
    return SinkOptions(
        properties=_patient(reader, _properties(reader), None),
        topic=reader.text("topic"),
        include_timestamp=reader.choice("includeTimestamp", "true", ("true", "false")) == "true",
        reached_before=reader.choice(REACHED_BEFORE, "false", ("true", "false")) == "true",
    )


def parse_value_options(given: Mapping[str, str]) -> ValueOptions:
    """Parse the options that, with `includeHeaders`, decide the columns of the source."""
    reader = _Reader(given, SOURCE_OPTIONS)
    form = reader.choice("valueFormat", "raw", VALUE_FORMATS)
    schema = reader.text("valueSchema") or ""
    if form in SCHEMA_FORMATS and not schema:
        raise InvalidOption("valueSchema", f"valueFormat {form} needs it: {SCHEMAS[form]}")
    if form not in SCHEMA_FORMATS and schema:
        raise InvalidOption("valueSchema", f"valueFormat {form} has no schema; leave it out")
    framing = reader.choice("valueFraming", "none", ("none", "registry"))
    registry = reader.text("schemaRegistry") or ""
    if form != "avro" and (framing != "none" or registry):
        name = "schemaRegistry" if registry else "valueFraming"
        raise InvalidOption(name, f"it is for valueFormat avro, not {form}")
    return ValueOptions(form, schema, framing, registry, reader.text("timeZone") or None)


def includes_headers(given: Mapping[str, str]) -> bool:
    return (given.get("includeheaders") or "false").strip().lower() == "true"


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


class _Reader:
    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self.given = {name.lower(): value for name, value in given.items()}
        self.is_source = known is SOURCE_OPTIONS
        if not self.given.keys() - SPARK_OPTIONS:
            raise InvalidOption(
                f"{CLIENT_PREFIX}bootstrap.servers", f"no options were given. {TABLES_KEEP_NONE}"
            )
        names = {name.lower(): name for name in known}
        for name in self.given:
            if name in names or name in SPARK_OPTIONS or name.startswith(CLIENT_PREFIX):
                continue
            if self.is_source and name.startswith(ARCHIVE_PREFIX):
                continue
            raise InvalidOption(name, f"no such option; {_hint(name, names)}")

    def text(self, name: str) -> str | None:
        value = self.given.get(name.lower())
        return None if value is None else value.strip()

    def number(self, name: str, lowest: int = 0) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            raise InvalidOption(name, f"{value!r} is not a whole number") from None
        if number < lowest:
            raise InvalidOption(name, f"{number} is less than {lowest}")
        return number

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise InvalidOption(name, f"{value!r} is not one of {', '.join(choices)}")
        return value


def _hint(name: str, names: Mapping[str, str]) -> str:
    """The nearest option, by its full name; one of Kafka's own settings may just lack its prefix."""
    if name in KNOWN:
        return f"did you mean '{CLIENT_PREFIX}{name}'?"
    candidates = [*names, *(CLIENT_PREFIX + one for one in KNOWN), *KNOWN]
    close = difflib.get_close_matches(name, candidates, n=1)
    if not close:
        return f"known are {', '.join(names.values())}, and Kafka's own settings after '{CLIENT_PREFIX}'"
    nearest = names.get(close[0], close[0])
    return f"did you mean '{CLIENT_PREFIX if nearest in KNOWN else ''}{nearest}'?"


def _patient(reader: _Reader, properties: Properties, attempts: int | None) -> Properties:
    """Set how long to wait for brokers that have been reached before.

    `outageTimeout` says it. Without it the corresponding settings of Spark's connector decide, if one is
    given: that many attempts, of the API timeout each.
    """
    client = properties.client
    is_limited = attempts is not None or f"{CLIENT_PREFIX}default.api.timeout.ms" in reader.given
    if reader.text("outageTimeout") is None and is_limited:
        outage_s = client.api_timeout_s * (attempts or _default_attempts(reader))
    else:
        outage_s = _duration_ms(reader, "outageTimeout", DEFAULT_OUTAGE_TIMEOUT) / 1000
    produce = properties.produce
    if f"{CLIENT_PREFIX}delivery.timeout.ms" not in reader.given:
        produce = replace(produce, delivery_timeout_s=outage_s)
    return replace(properties, client=replace(client, api_timeout_s=outage_s), produce=produce)


def _default_attempts(reader: _Reader) -> int:
    return DEFAULT_FETCH_OFFSET_ATTEMPTS if reader.is_source else 1


def _properties(reader: _Reader) -> Properties:
    given = {
        name.removeprefix(CLIENT_PREFIX): value
        for name, value in reader.given.items()
        if name.startswith(CLIENT_PREFIX)
    }
    if reader.text("archive"):
        given.setdefault("isolation.level", "read_committed")  # as what is archived
    try:
        return parse_properties(given)
    except InvalidProperty as error:
        raise InvalidOption(CLIENT_PREFIX + error.name, error.problem) from None


def _subscription(reader: _Reader) -> Subscription:
    given = [name for name in SUBSCRIPTIONS if reader.text(name) is not None]
    if len(given) != 1:
        problem = "exactly one of them must be given" + (f", not {' and '.join(given)}" if given else "")
        raise InvalidOption("', '".join(SUBSCRIPTIONS), problem)
    (name,) = given
    text = reader.text(name) or ""
    if name == "assign":
        partitions = _parsed(name, lambda: tuple(parse_partitions(text)))
        if not partitions:
            raise InvalidOption(name, "it names no partitions")
        return Subscription(partitions=partitions)
    if name == "subscribePattern":
        if not text:
            raise InvalidOption(name, "the pattern is empty")
        _parsed(name, lambda: compile_java(text))
        return Subscription(pattern=text)
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not topics:
        raise InvalidOption(name, "it names no topics")
    return Subscription(topics=topics)


def _parsed(name: str, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except ValueError as error:
        raise InvalidOption(name, str(error)) from None


def _limit(reader: _Reader, side: str, default: str) -> Limit:
    """In the order in which Spark's connector prefers them: timestamp, timestamps, offsets."""
    name = f"{side}Timestamp"
    if reader.text(name) is not None:
        return Limit(Limit.TIMESTAMP, timestamp_ms=reader.number(name))
    name = f"{side}OffsetsByTimestamp"
    if (text := reader.text(name)) is not None:
        return Limit(Limit.TIMESTAMPS, _entries(name, text, TIMESTAMPS_EXPECTED))
    name = f"{side}Offsets"
    text = reader.text(name)
    if text is None:
        return Limit(default)
    if text.lower() in (Limit.EARLIEST, Limit.LATEST):
        return Limit(text.lower())
    return Limit(Limit.OFFSETS, _entries(name, text, OFFSETS_EXPECTED))


def _entries(name: str, text: str, expected: str) -> tuple[tuple[TopicPartition, int], ...]:
    return tuple(sorted(_parsed(name, lambda: parse_offsets(text, expected)).items()))


def _refuse_ending(reader: _Reader) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if reader.text(name) is not None:
            raise InvalidOption(name, "a stream has no end; use a batch query, or leave it out")


def _check_batch_limits(start: Limit, end: Limit) -> None:
    if start.kind == Limit.LATEST:
        raise InvalidOption("startingOffsets", "a batch query cannot start at 'latest'")
    if end.kind == Limit.EARLIEST:
        raise InvalidOption("endingOffsets", "a batch query cannot end at 'earliest'")
    for partition, offset in start.offsets if start.kind == Limit.OFFSETS else ():
        if offset == LATEST:
            raise InvalidOption("startingOffsets", f"{partition} cannot start at latest (-1) in a batch")
    for partition, offset in end.offsets if end.kind == Limit.OFFSETS else ():
        if offset == EARLIEST:
            raise InvalidOption("endingOffsets", f"{partition} cannot end at earliest (-2) in a batch")
    if start.kind == end.kind and start.kind in (Limit.OFFSETS, Limit.TIMESTAMPS):
        _check_same_partitions(start, end)


def _check_same_partitions(start: Limit, end: Limit) -> None:
    name = "Offsets" if start.kind == Limit.OFFSETS else "OffsetsByTimestamp"
    first, last = dict(start.offsets), dict(end.offsets)
    if first.keys() != last.keys():
        raise InvalidOption(f"ending{name}", f"its partitions differ from those of starting{name}")
    for partition in first:
        if first[partition] > last[partition] >= 0:
            raise InvalidOption(
                f"starting{name}",
                f"{partition} begins at {first[partition]}, after {last[partition]}",
            )


def _duration_ms(reader: _Reader, name: str, default: str) -> int:
    text = reader.text(name) or default
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
    if match is None or match[2] not in TIME_UNITS_MS:
        raise InvalidOption(name, f"{text!r} is not a duration like '30s' or '15m'")
    return int(match[1]) * TIME_UNITS_MS[match[2]]
