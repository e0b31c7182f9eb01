"""Tests of what is shown of a failure: our sentence, found in Spark's, without a stack of ours."""

import logging
import os
import sys
import types

import pytest

from odradek.client.deadline import TimedOut
from odradek.spark import failures, worker
from odradek.spark.failures import sentence_of
from odradek.spark.options import InvalidOption

STREAM_FAILURE = """[STREAM_FAILED] Query [id = 2ec1, runId = 6592] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform latestOffset: \
odradek.client.deadline.TimedOut: could not describe topics t within 5 s: refused
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Logical Plan:
~StreamingDataSourceV2ScanRelation[key#6] odradek
"""
BATCH_FAILURE = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function \
in foreach batch sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback:
  File "/x/odradek/client/producing.py", line 151, in flush
odradek.errors.KafkaError: cannot write to a-7: NOT_ENOUGH_REPLICAS

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
odradek.client.deadline.TimedOut: could not write to a within 120 s: cannot write to a-7: NOT_ENOUGH_REPLICAS
 SQLSTATE: 39000
"""
UPDATE_MODE = (
    "[STREAM_FAILED] terminated with exception: requirement failed: odradek does not support Update mode."
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (STREAM_FAILURE, "could not describe topics t within 5 s: refused"),
        ("x: odradek.spark.options.InvalidOption: option 'a': no SQLSTATE: 38000", "option 'a': no"),
        (BATCH_FAILURE, "could not write to a within 120 s: cannot write to a-7: NOT_ENOUGH_REPLICAS"),
        (UPDATE_MODE, failures.HINTS["odradek does not support Update mode"]),
        ("ValueError: odradek is not to blame", None),
    ],
)
def test_the_sentence_is_found_in_what_spark_says(text, sentence):
    assert sentence_of(Exception(text)) == sentence


def test_an_uncaught_error_of_ours_is_told_last_and_others_as_ever(monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", lambda *_: print("a traceback", file=sys.stderr))
    failures.show_last()
    failures.show_last()
    sys.excepthook(Exception, Exception(STREAM_FAILURE), None)
    expected = "a traceback\n\nodradek: could not describe topics t within 5 s: refused\n"
    assert capsys.readouterr().err == expected
    sys.excepthook(Exception, Exception("another"), None)
    assert capsys.readouterr().err == "a traceback\n"


@pytest.fixture
def spark_process(monkeypatch):
    """Pretends that Spark started this process, in which nobody has set up logging."""
    main = types.SimpleNamespace(__spec__=types.SimpleNamespace(name="pyspark.daemon"))
    monkeypatch.setitem(sys.modules, "__main__", main)
    log = logging.getLogger("odradek")
    monkeypatch.setattr(log, "hasHandlers", lambda: False)  # pytest has some
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log, "level", log.level)
    monkeypatch.delenv(worker.HIDE_TRACEBACK, raising=False)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    worker.set_up_logging.cache_clear()
    yield log
    worker.set_up_logging.cache_clear()


def fail(error: Exception) -> None:
    raise error from OSError("the cause")


@pytest.mark.parametrize("error", [InvalidOption("a", "no"), TimedOut("never")])
def test_our_own_errors_are_raised_without_frames_and_causes(spark_process, error):
    with pytest.raises(type(error)) as raised:
        worker.called_by_spark(fail)(error)
    assert raised.value is error and error.__cause__ is None and error.__suppress_context__
    assert os.environ[worker.HIDE_TRACEBACK] == "1", "Spark prints no frames of this process"


def test_a_generator_too(spark_process):
    def rows():
        yield 1
        raise TimedOut("never")

    iterator = worker.iterated_by_spark(rows)()
    assert next(iterator) == 1
    with pytest.raises(TimedOut):
        next(iterator)
    assert os.environ[worker.HIDE_TRACEBACK] == "1"


def test_other_errors_keep_what_is_needed_to_find_them(spark_process):
    with pytest.raises(ZeroDivisionError) as raised:
        worker.called_by_spark(fail)(ZeroDivisionError())
    assert raised.value.__cause__ is not None
    assert worker.HIDE_TRACEBACK not in os.environ


def test_log_lines_have_time_and_level(spark_process, capsys):
    worker.called_by_spark(lambda: None)()
    worker.called_by_spark(lambda: None)()
    (handler,) = spark_process.handlers
    record = logging.LogRecord("odradek.spark", logging.WARNING, "", 0, "watch %s", ("out",), None)
    assert handler.format(record).partition(" WARNING odradek.spark: ")[2] == "watch out"
    assert spark_process.level == logging.INFO


def test_where_the_user_has_set_up_logging_it_stays(spark_process, monkeypatch):
    monkeypatch.setattr(spark_process, "hasHandlers", lambda: True)
    worker.set_up_logging()
    assert spark_process.handlers == []


def test_in_a_program_of_the_users_nothing_is_set_up(monkeypatch):
    worker.set_up_logging.cache_clear()
    assert not worker.is_spark_process()
    before = list(logging.getLogger("odradek").handlers)
    worker.set_up_logging()
    assert logging.getLogger("odradek").handlers == before
