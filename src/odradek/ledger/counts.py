"""Counts of the requirements of pipelines, for whoever shows pipelines that run elsewhere: a compacted topic with one
record for each sink, by pipeline and sink.

A record has totals since the sink's last reset, so the newest one says it all, and one that was sent twice or not at
all changes nothing in the end. The checkpoint of the pipeline knows best; nothing is decided by these records.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from odradek.client.cluster import Cluster
from odradek.client.producing import Producer
from odradek.client.settings import ProduceSettings
from odradek.ledger.compacted import CompactedTopic
from odradek.ledger.record import UnreadableRecord

NAME = "_odradek-pipelines"
PARTITIONS = 1
FORMAT = 1


@dataclass(frozen=True)
class Unmet:
    """A requirement of a transform, what happens to rows that do not meet it, and how many those were."""

    stage: str
    requirement: str
    action: str
    rows: int


@dataclass(frozen=True)
class SinkCounts:
    """The counts of rows on their way to one sink."""

    pipeline: str
    sink: str
    unmet: tuple[Unmet, ...]
    counted_at_ms: int = 0

    @property
    def key(self) -> str:
        return f"{self.pipeline}/{self.sink}"


def sink_counts(pipeline: str, sink: str, unmet: Iterable[Mapping[str, Any]]) -> SinkCounts:
    """Count as of now. `unmet` is in the words of the checkpoint."""
    return SinkCounts(pipeline, sink, tuple(Unmet(**one) for one in unmet), time.time_ns() // 1_000_000)


def encode_counts(counts: SinkCounts) -> bytes:
    return json.dumps({"format": FORMAT, **asdict(counts)}, separators=(",", ":")).encode()


def decode_counts(key: str, value: bytes) -> SinkCounts:
    """Fields that this version does not know are ignored."""
    try:
        found = json.loads(value)
        if found["format"] != FORMAT:
            raise UnreadableRecord(
                f"the record of {key} in {NAME} has format {found['format']}, this version reads {FORMAT}"
            )
        unmet = (
            Unmet(one["stage"], one["requirement"], one["action"], one["rows"]) for one in found["unmet"]
        )
        return SinkCounts(found["pipeline"], found["sink"], tuple(unmet), found["counted_at_ms"])
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableRecord(f"the record of {key} in {NAME} cannot be read: {error}") from None


class CountsTopic(CompactedTopic):
    """The counts on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, NAME, PARTITIONS)

    def entries(self) -> list[SinkCounts]:
        return [decode_counts(key, value) for key, value in self.values().items()]

    def write(self, counts: Iterable[SinkCounts], timeout_s: float) -> None:
        producer = Producer(self._cluster, ProduceSettings(delivery_timeout_s=timeout_s))
        for one in counts:
            producer.send([self.encoded_value(one.key, encode_counts(one), one.counted_at_ms)])
        producer.close()
