"""Set up the broker's log: which lines it has (`--log-level`), and in which form (`--log-format`).

A line of text begins with its time; the whole message stays on that line, and the lines of a traceback that follow are
indented, so no client can fake one of our lines. As JSON a record is one object on one line.
"""

import importlib.util
import json
import logging
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from odradek.wording import one_line

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
DEFAULT_LEVEL = "info"
LEVEL_VARIABLE = "ODRADEK_LOG_LEVEL"
FORMAT_VARIABLE = "ODRADEK_LOG_FORMAT"
COLOURS = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31;1m"}
RESET = "\x1b[0m"


class LogLevel(NamedTuple):
    logger: str  # empty: all of them
    level: str


def parse_levels(text: str) -> list[LogLevel]:
    """Read `LEVEL`, or `LOGGER=LEVEL`, or several with commas between them. Raises ValueError."""
    return [_parse_level(item.strip()) for item in text.split(",")]


def _parse_level(text: str) -> LogLevel:
    name, equals, level = text.rpartition("=")
    level = level.strip().lower()
    if level not in LEVELS:
        raise ValueError(f"{level!r} is not a level: choose from {', '.join(LEVELS)}")
    name = name.strip()
    if equals and not _is_logger(name):
        if not _is_logger(f"odradek.{name}"):
            raise ValueError(f"{name!r} is not a logger: take a name from the log, such as odradek.net")
        name = f"odradek.{name}"  # as a terminal shows it
    return LogLevel(name, level)


def _is_logger(name: str) -> bool:
    """True for the name of a logger: loggers have the names of modules and packages."""
    if name.split(".")[0] not in ("odradek", "asyncio"):
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def parse_format(text: str) -> str:
    if text not in FORMATS:
        raise ValueError(f"{text!r} is not a log format: choose from {', '.join(FORMATS)}")
    return text


class LineFormatter(logging.Formatter):
    """2026-01-31 12:00:00.123 INFO    [node 1] odradek.broker  message

    Records carry `node` where a filter gave it to them, brackets and all. At a terminal, which has the colours, our
    loggers have short names: `broker`."""

    def __init__(self, coloured: bool) -> None:
        name = "%(short_name)s" if coloured else "%(name)s"
        line = f"%(asctime)s.%(msecs)03d %(levelname)-7s %(node)s{name}  %(message)s"
        super().__init__(line, "%Y-%m-%d %H:%M:%S", defaults={"node": ""})
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        colour = COLOURS.get(record.levelname, "") if self._coloured else ""
        return f"{colour}{line}{RESET}" if colour else line

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = one_line(record.message)
        record.short_name = record.name.removeprefix("odradek.")
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:
        return _indented(super().formatException(ei))  # type: ignore[arg-type]


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


class JsonFormatter(logging.Formatter):
    """{"time": "2026-01-31T12:00:00.123Z", "level": "INFO", "node": 1, "logger": …, "message": …, fields}

    Records carry `node_id` where a filter gave it to them, and `fields` where whoever logged them did."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "node": getattr(record, "node_id", None),
            "logger": record.name,
            "message": one_line(record.getMessage()),
        }
        if record.exc_info and record.exc_info[0] is not None:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(getattr(record, "fields", {}) | entry, default=str)


def configure_logging(
    levels: Sequence[LogLevel], record_filter: logging.Filter, log_format: str = "text"
) -> None:
    """`record_filter` sees every record before it is written. If a logger has several levels, the last one counts."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(record_filter)
    text = LineFormatter(coloured=sys.stderr is not None and sys.stderr.isatty())
    handler.setFormatter(JsonFormatter() if log_format == "json" else text)
    logging.basicConfig(level=DEFAULT_LEVEL.upper(), handlers=[handler])
    for name, level in levels:
        logging.getLogger(name).setLevel(level.upper())
