"""The broker's log lines: time, level, module, message; in colour where a person watches."""

import logging
import sys

LEVELS = ("debug", "info", "warning", "error")
COLOURS = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31;1m"}
RESET = "\x1b[0m"


class LineFormatter(logging.Formatter):
    """2026-01-31 12:00:00.123 INFO    odradek.broker  message"""

    def __init__(self, coloured: bool) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s  %(message)s", "%Y-%m-%d %H:%M:%S")
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        colour = COLOURS.get(record.levelname, "") if self._coloured else ""
        return f"{colour}{line}{RESET}" if colour else line


def configure_logging(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(coloured=sys.stderr.isatty()))
    logging.basicConfig(level=level.upper(), handlers=[handler])
