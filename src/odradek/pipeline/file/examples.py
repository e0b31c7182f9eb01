"""The files that `pipeline init` writes: a working example, or a first version for an existing topic.

A schema is inferred from a sample of the topic's records. It is a proposal: a field that was always a whole number
may not always be one.
"""

import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

EXAMPLE = '''\
# A pipeline: orders come in, good ones go to Parquet files, revenue per minute goes to a topic.
#
#   odradek topic create orders --partitions 2        (once; the other topics are declared below)
#   odradek pipeline test {file}
#   odradek pipeline run {file} --once
#
# Every key is described in docs/PIPELINES.md.

[pipeline]
name = "{name}"

[kafka]
"bootstrap.servers" = "{bootstrap}"

[sources.orders]
topic = "orders"
format = "json"
schema = "id BIGINT NOT NULL, item STRING, amount DOUBLE, at TIMESTAMP NOT NULL"
watermark = {{ column = "at", delay = "1 minute" }}

[transforms.good_orders]
sql = "SELECT * FROM orders"
require = {{ "an amount is positive" = "amount > 0" }}

[transforms.revenue]
sql = """
SELECT window(at, '1 minute').start AS minute, sum(amount) AS revenue, count(*) AS orders
FROM good_orders
GROUP BY window(at, '1 minute')
"""

[sinks.archive]
from = "good_orders"
path = "output/orders"
format = "parquet"  # or "delta", a table with versions: needs the extra odradek[delta]

[sinks.revenue]
from = "revenue"
topic = "revenue"
mode = "update"
key = "minute"
partitions = 1
config = {{ "cleanup.policy" = "compact" }}

[dead_letters]
topic = "orders-dead"
partitions = 1

[[tests]]
name = "revenue is summed by the minute, and bad orders become dead letters"
given.orders = [
    {{ id = 1, item = "spool", amount = 4.0, at = 2026-01-01T10:00:05Z }},
    {{ id = 2, item = "thread", amount = 2.5, at = 2026-01-01T10:00:55Z }},
    {{ id = 3, item = "button", amount = -1.0, at = 2026-01-01T10:01:00Z }},
    "this is not JSON",
]
expect.revenue = [{{ minute = 2026-01-01T10:00:00Z, revenue = 6.5, orders = 2 }}]
expect.dead_letters = [
    {{ stage = "transform", reason = "an amount is positive" }},
    {{ stage = "decode", value = "this is not JSON" }},
]
'''

FROM_TOPIC = """\
# A pipeline that reads the topic {topic}. Its schema was inferred from {count} records: check it.

[pipeline]
name = "{name}"

[kafka]
"bootstrap.servers" = "{bootstrap}"

[sources.{source}]
topic = "{topic}"
format = "{format}"
{schema}
[transforms.chosen]
sql = "SELECT * FROM {source}"

[sinks.shown]
from = "chosen"
console = true
"""

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
DATE = re.compile(r"\d{4}-\d\d-\d\d")


def example(name: str, file: str, bootstrap: str) -> str:
    return EXAMPLE.format(name=name, file=file, bootstrap=bootstrap)


def example_from_topic(name: str, topic: str, bootstrap: str, values: list[bytes]) -> str:
    form, schema = infer(values)
    text = f'schema = """\n{schema}\n"""\n' if schema else ""
    source = re.sub(r"\W", "_", topic)
    source = source if not source[:1].isdigit() else f"topic_{source}"
    return FROM_TOPIC.format(
        name=name,
        topic=topic,
        bootstrap=bootstrap,
        count=len(values),
        source=source,
        format=form,
        schema=text,
    )


def infer(values: Iterable[bytes]) -> tuple[str, str]:
    """Format and schema of a topic's values."""
    rows: list[Any] = []
    is_text = True
    for value in values:
        try:
            rows.append(json.loads(value.decode()))
        except UnicodeDecodeError:
            is_text = False
        except ValueError:
            rows.append(None)
    if not is_text:
        return "raw", ""
    objects = [row for row in rows if isinstance(row, dict)]
    if not rows or len(objects) < len(rows) / 2:
        return "text", ""
    fields: dict[str, list[Any]] = {}
    for row in objects:
        for name, value in row.items():
            fields.setdefault(name, []).append(value)
    columns = [
        f"{name if name.isidentifier() else f'`{name}`'} {type_of(found)}" for name, found in fields.items()
    ]
    return "json", ",\n".join(columns)


def type_of(values: list[Any]) -> str:
    """The narrowest type of Spark that takes all values; STRING takes everything."""
    found = [value for value in values if value is not None]
    if not found:
        return "STRING"
    if all(isinstance(value, bool) for value in found):
        return "BOOLEAN"
    if any(isinstance(value, bool) for value in found):
        return "STRING"
    if all(isinstance(value, int) and abs(value) < 1 << 63 for value in found):
        return "BIGINT"
    if all(isinstance(value, (int, float)) for value in found):
        return "DOUBLE"
    if all(isinstance(value, str) for value in found):
        if all(_is_time(value, TIMESTAMP) for value in found):
            return "TIMESTAMP"
        return "DATE" if all(DATE.fullmatch(value) and _is_time(value, DATE) for value in found) else "STRING"
    if all(isinstance(value, list) for value in found):
        return f"ARRAY<{type_of([one for value in found for one in value])}>"
    if all(isinstance(value, dict) for value in found):
        names: dict[str, list[Any]] = {}
        for value in found:
            for name, inner in value.items():
                names.setdefault(name, []).append(inner)
        fields = ", ".join(f"`{name}`: {type_of(inner)}" for name, inner in names.items())
        return f"STRUCT<{fields}>" if fields else "STRING"
    return "STRING"


def _is_time(text: str, pattern: re.Pattern[str]) -> bool:
    if not pattern.match(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
