"""The broker's log lines: time, level, node, module, message; in colour where a person watches."""

import logging
import sys

LEVELS = ("debug", "info", "warning", "error")
COLOURS = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31;1m"}
RESET = "\x1b[0m"


class LineFormatter(logging.Formatter):
    """2026-01-31 12:00:00.123 INFO    [node 1] odradek.broker  message

    Records carry `node` where a filter gave it to them, brackets and all."""

    def __init__(self, coloured: bool) -> None:
        line = "%(asctime)s.%(msecs)03d %(levelname)-7s %(node)s%(name)s  %(message)s"
        super().__init__(line, "%Y-%m-%d %H:%M:%S", defaults={"node": ""})
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        colour = COLOURS.get(record.levelname, "") if self._coloured else ""
        return f"{colour}{line}{RESET}" if colour else line


def configure_logging(level: str, record_filter: logging.Filter) -> None:
    """`record_filter` sees every record before it is written."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(record_filter)
    handler.setFormatter(LineFormatter(coloured=sys.stderr.isatty()))
    logging.basicConfig(level=level.upper(), handlers=[handler])
