"""The form of the broker's log: one record is one line, whatever is in it; levels by logger; JSON."""

import json
import logging
import sys

import pytest

from odradek.cli.logs import JsonFormatter, LineFormatter, LogLevel, parse_levels
from odradek.host.log_lines import NodeIdFilter, fields, node_id


def record_of(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    record = logging.LogRecord("odradek.net", logging.INFO, __file__, 1, message, arguments, None)
    record.created, record.msecs = 1_700_000_000.125, 125.0
    for name, value in extra.items():
        setattr(record, name, value)
    NodeIdFilter().filter(record)
    return record


def failure() -> logging.LogRecord:
    record = record_of("it failed")
    try:
        raise ValueError("two\n2026-01-31 12:00:00.123 INFO lines")
    except ValueError:
        record.exc_info = sys.exc_info()
    return record


def test_a_message_stays_on_its_line() -> None:
    line = LineFormatter(coloured=False).format(record_of("client %s", "x\n2026-01-31 INFO forged\x1b[0m\r"))
    assert line.endswith(r"client x\n2026-01-31 INFO forged\x1b[0m\r")
    assert len(line.splitlines()) == 1


def test_a_terminal_shows_short_names_of_loggers_which_options_accept() -> None:
    assert " net  hello" in LineFormatter(coloured=True).format(record_of("hello"))
    assert " odradek.net  hello" in LineFormatter(coloured=False).format(record_of("hello"))
    assert (
        parse_levels("net=debug") == parse_levels("odradek.net=debug") == [LogLevel("odradek.net", "debug")]
    )


def test_a_long_message_is_cut() -> None:
    line = LineFormatter(coloured=False).format(record_of("x" * 10_000))
    assert line.endswith("x… (6000 more characters)")


def test_a_traceback_is_indented_so_that_it_cannot_look_like_a_line() -> None:
    first, *others = LineFormatter(coloured=False).format(failure()).splitlines()
    assert first.endswith("it failed")
    assert others and all(line.startswith("    ") for line in others)


def test_json_has_the_fields_and_the_exception() -> None:
    token = node_id.set(7)
    try:
        record = record_of("refused %s", "it", **fields(api="CreateTopics", client="x\n", topic=None))
        failed = failure()
    finally:
        node_id.reset(token)
    assert json.loads(JsonFormatter().format(record)) == {
        "time": "2023-11-14T22:13:20.125Z",
        "level": "INFO",
        "node": 7,
        "logger": "odradek.net",
        "message": "refused it",
        "api": "CreateTopics",
        "client": "x\n",
    }
    text = JsonFormatter().format(failed)
    assert "\n" not in text
    assert "ValueError: two" in json.loads(text)["exception"]


def test_fields_cannot_hide_what_every_line_has() -> None:
    record = record_of("true", **fields(message="forged", level="DEBUG"))
    entry = json.loads(JsonFormatter().format(record))
    assert (entry["message"], entry["level"]) == ("true", "INFO")


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("debug", [LogLevel("", "debug")]),
        ("WARNING", [LogLevel("", "warning")]),
        ("odradek.net=debug", [LogLevel("odradek.net", "debug")]),
        (
            "error, odradek.serving.dispatch=info",
            [LogLevel("", "error"), LogLevel("odradek.serving.dispatch", "info")],
        ),
    ],
)
def test_levels(text: str, levels: list[LogLevel]) -> None:
    assert parse_levels(text) == levels


@pytest.mark.parametrize("text", ["loud", "odradek.nett=debug", "nett=debug", "odradek.net=", "=debug", ""])
def test_a_level_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_levels(text)
