"""Tests of what a Python worker does once for all its tasks."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from odradek.model import TopicPartition
from odradek.spark import writing
from odradek.spark.offsets import OffsetRange
from odradek.spark.options import parse_sink_options, parse_source_options
from odradek.spark.reading import RangePartition, read_rows
from odradek.spark.schema import source_schema
from odradek.spark.worker import spare_what_stays
from odradek.spark.writing import write_rows

SERVERS = {"kafka.bootstrap.servers": "localhost:1"}  # tasks with no rows talk to nobody


def read_nothing() -> None:
    options = parse_source_options({**SERVERS, "subscribe": "t"}, streaming=False)
    task = RangePartition(OffsetRange(TopicPartition("t", 0), 5, 5))
    assert list(read_rows(task, options, source_schema(False))) == []


def write_nothing() -> None:
    assert write_rows(iter(()), parse_sink_options({**SERVERS, "topic": "t"})).rows == 0


@pytest.mark.parametrize("task", [read_nothing, write_nothing])
def test_what_the_first_task_brought_in_is_not_searched_for_garbage(
    task: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    spare_what_stays.cache_clear()
    task()
    task()
    assert len(frozen) == 1


@pytest.mark.parametrize(
    ("given", "batch_id", "waits"),
    [({}, None, False), ({}, 0, False), ({}, 1, True), ({"reachedBefore": "true"}, None, True)],
)
def test_a_sink_waits_for_brokers_that_an_earlier_batch_has_reached(
    given: dict[str, str], batch_id: int | None, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    @contextmanager
    def borrow(settings: object, *, was_reached: bool) -> Iterator[None]:
        asked.append(was_reached)
        yield None

    monkeypatch.setattr(writing, "borrow_cluster", borrow)
    monkeypatch.setattr(writing, "task_identity", lambda: writing.TaskIdentity("q", batch_id, 0, 0))
    write_rows(iter(()), parse_sink_options({**SERVERS, "topic": "t", **given}))
    assert asked == [waits]
