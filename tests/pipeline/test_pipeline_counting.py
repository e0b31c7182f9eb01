"""Consoles are told what requirements have counted; a cluster that does not take it holds nothing up."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.client.deadline import TimedOut
from odradek.errors import ErrorCode, KafkaError
from odradek.ledger.counts import (
    CountsTopic,
    SinkCounts,
    Unmet,
    decode_counts,
    encode_counts,
)
from odradek.ledger.record import UnreadableRecord
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.file.reading import load
from odradek.pipeline.run import counting
from odradek.pipeline.run.counting import PAUSE_S, Counting, counting_cluster

SHOP = """
[kafka]
"bootstrap.servers" = "localhost:1"
[sources.prices]
path = "prices"
format = "parquet"
static = true
[sources.orders]
topic = "orders"
schema = "id BIGINT"
kafka = { "bootstrap.servers" = "localhost:2" }
[sinks.out]
from = "orders"
console = true
"""
DROPPED = {"stage": "good", "requirement": "it is there", "action": "drop", "rows": 2}


class Cluster:
    """Takes what is written, or fails."""

    def __init__(self) -> None:
        self.problem: Exception | None = None
        self.attempts = 0
        self.taken: list[SinkCounts] = []

    def write(self, _: CountsTopic, counts: Any, timeout_s: float) -> None:
        self.attempts += 1
        if self.problem is not None:
            raise self.problem
        self.taken += counts


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    found = Cluster()
    monkeypatch.setattr(counting.CountsTopic, "write", lambda topic, *rest: found.write(topic, *rest))
    yield found


@pytest.fixture
def pipeline(write: Callable[..., Path]) -> Pipeline:
    return load(write(SHOP))


def test_the_cluster_of_the_first_topic_is_told(write, pipeline: Pipeline) -> None:
    assert (counting_cluster(pipeline) or {})["bootstrap.servers"] == "localhost:2"
    (own,) = [line for line in SHOP.splitlines() if line.startswith("kafka")]
    files = SHOP.replace('topic = "orders"', 'path = "in"').replace(own, "")
    without = load(write(files, "files.toml"))
    assert counting_cluster(without) is None
    to_topic = load(write(files.replace("console = true", 'topic = "out"'), "to_topic.toml"))
    assert (counting_cluster(to_topic) or {})["bootstrap.servers"] == "localhost:1"


def test_totals_are_told_once_they_have_changed(pipeline: Pipeline, cluster: Cluster) -> None:
    told: list[str] = []
    found = Counting(pipeline, told.append, lambda: 0.0)
    found.take("out")
    found.send(is_last=True)
    assert cluster.attempts == 0, "nothing was counted"
    Checkpoint(pipeline).add_unmet("sink", "out", 0, [DROPPED])
    Checkpoint(pipeline).add_unmet("sink", "out", 1, [DROPPED])
    found.take("out")
    found.send()
    found.send()
    (one,) = cluster.taken
    assert (one.key, one.unmet) == ("pipe/out", (Unmet("good", "it is there", "drop", 4),))
    assert one.counted_at_ms > 0 and told == []


def test_a_cluster_that_does_not_take_them_is_told_later(pipeline: Pipeline, cluster: Cluster) -> None:
    told: list[str] = []
    now_s = [0.0]
    found = Counting(pipeline, told.append, lambda: now_s[0])
    Checkpoint(pipeline).add_unmet("sink", "out", 0, [DROPPED])
    found.take("out")
    cluster.problem = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed; grant WRITE")
    for now_s[0] in (0.0, 1.0, PAUSE_S - 1, PAUSE_S):
        found.send()
    assert cluster.attempts == 2
    assert len(told) == 1 and "status does: not allowed; grant WRITE" in told[0], "and said once"
    cluster.problem = TimedOut("away")
    found.send(is_last=True)
    assert cluster.attempts == 3 and len(told) == 2
    cluster.problem = None
    now_s[0] = 3 * PAUSE_S
    found.send()
    assert [one.unmet[0].rows for one in cluster.taken] == [2]


def test_a_record_survives_its_bytes_and_says_when_it_is_not_understood() -> None:
    counts = SinkCounts("shop", "out", (Unmet("good", "ä", "warn", 3),), 7)
    assert decode_counts(counts.key, encode_counts(counts)) == counts
    for value in (b"{", b"{}", b'{"format": 2}', b"[]", b'{"format":1,"unmet":[{}]}'):
        with pytest.raises(UnreadableRecord, match="shop/out"):
            decode_counts("shop/out", value)
