"""Tests of how far queries are behind: to the log, and to Prometheus."""

import json
import logging
import urllib.request
from types import SimpleNamespace

import pytest

from odradek.model import TopicPartition
from odradek.spark.lag import LagListener, describe_lag, lag_of

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def progress(end: object, latest: object, name: str | None = "copy", run: str = "run-1") -> SimpleNamespace:
    source = SimpleNamespace(endOffset=json.dumps(end), latestOffset=json.dumps(latest))
    return SimpleNamespace(
        progress=SimpleNamespace(id="query-1", runId=run, name=name, sources=[source]),
    )


def test_lag_is_what_lies_between_the_end_of_a_batch_and_of_the_partition():
    assert lag_of({A0: 5, A1: 9}, {A0: 8, A1: 9, B0: 4}) == {A0: 3, A1: 0, B0: 4}
    assert lag_of({A0: 9}, {A0: 8}) == {A0: 0}, "the end was asked for before the batch was planned"


@pytest.mark.parametrize(
    ("lag", "text"),
    [
        ({A0: 0}, "not behind"),
        ({}, "not behind"),
        ({A0: 3, A1: 10}, "13 records behind: a-1 by 10, a-0 by 3"),
        (
            {TopicPartition("t", number): number for number in range(1, 6)},
            "15 records behind: t-5 by 5, t-4 by 4, t-3 by 3 and 2 more partitions",
        ),
    ],
)
def test_lag_in_words(lag, text):
    assert describe_lag(lag) == text


def test_progress_is_logged_now_and_then_and_served_to_prometheus(caplog):
    now_s = [100.0]
    listener = LagListener(log_interval_s=10, clock=lambda: now_s[0])
    with caplog.at_level(logging.INFO, "odradek.spark.lag"):
        listener.onQueryProgress(progress({"(start)": {}, "a": {"0": 5}}, {"a": {"0": 8}}))
        now_s[0] += 9
        listener.onQueryProgress(progress({"a": {"0": 6}}, {"a": {"0": 8}}))
        now_s[0] += 1
        listener.onQueryProgress(progress({"a": {"0": 8}}, {"a": {"0": 8}}))
    assert caplog.messages == ["query copy is 3 records behind: a-0 by 3", "query copy is not behind"]
    listener.onQueryProgress(progress({"a": {"1": 1}}, {"a": {"1": 3}}, name=None, run="run-2"))
    port = listener.serve()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        text = response.read().decode()
    assert text == (
        "# HELP odradek_spark_lag_records Records that a streaming query has not read yet, "
        "by partition.\n"
        "# TYPE odradek_spark_lag_records gauge\n"
        'odradek_spark_lag_records{query="copy",topic="a",partition="0"} 0\n'
        'odradek_spark_lag_records{query="query-1",topic="a",partition="1"} 2\n'
    )


def test_a_query_that_ended_has_no_lag_and_other_sources_have_none():
    listener = LagListener()
    listener.onQueryProgress(progress({"a": {"0": 5}}, {"a": {"0": 8}}))
    listener.onQueryProgress(progress(17, 20, name="rates", run="run-2"))
    listener.onQueryProgress(progress(None, None, name="files", run="run-3"))
    assert listener.lags == {"copy": {A0: 3}, "rates": {}, "files": {}}
    listener.onQueryTerminated(SimpleNamespace(runId="run-1"))
    listener.onQueryTerminated(SimpleNamespace(runId="never seen"))
    assert set(listener.lags) == {"rates", "files"}


def test_names_are_escaped_for_prometheus():
    listener = LagListener()
    listener.update('the "first"\nquery\\', "run-1", {A0: 1})
    assert 'query="the \\"first\\"\\nquery\\\\",topic="a"' in listener.metrics()
