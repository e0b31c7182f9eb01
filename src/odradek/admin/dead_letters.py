"""Dead letters of pipelines as they are in topics: a record's own bytes, and headers that say what became of it.

Whoever reads them, a pipeline's command or a console, reads them by this module; it needs no Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odradek.model import TopicPartition
from odradek.records.record import Record

PREFIX = "odradek."
ORIGIN = ("topic", "partition", "offset", "timestamp", "file")
FACTS = ("pipeline", "version", "stage", "name", "content", "reason", *ORIGIN)
NUMBERS = ("partition", "offset", "timestamp")
WHOLE = "record"  # the content of a letter that can be sent again
Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Letter:
    """`place` is where the dead letter itself is; `headers` are the record's own."""

    place: str
    facts: Mapping[str, Any]
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def replayed_headers(self) -> Headers:
        """The headers of the record that is sent again: they say which letter it was."""
        return [*self.headers, (f"{PREFIX}replayed", self.place.encode())]


def letter_of_record(place: TopicPartition, record: Record) -> Letter:
    """Read a dead letter. Our headers come last; a record's own with our prefix are never kept."""
    headers = [(name.decode(errors="replace"), value) for name, value in record.headers]
    texts = {
        name.removeprefix(PREFIX): value.decode(errors="replace")
        for name, value in headers
        if name.startswith(PREFIX) and value is not None
    }
    own = [(name, value) for name, value in headers if not name.startswith(PREFIX)]
    where = f"{place.topic}/{place.partition}/{record.offset}"
    return Letter(where, facts_of(texts), record.key, record.value, own)


def facts_of(found: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {name: found.get(name) for name in FACTS}
    return facts | {name: int(facts[name]) for name in NUMBERS if facts[name] is not None}
