"""Shows work that takes a while on standard error: steps as lines, progress as a bar, at a terminal only."""

import sys

from odradek.admin.watching import Watcher
from odradek.cli.output import note

BAR_WIDTH = 30
CLEAR_LINE = "\r\x1b[K"


class TerminalWatcher(Watcher):
    def __init__(self) -> None:
        self._has_bar = sys.stderr.isatty()

    def note(self, text: str) -> None:
        note(text)

    def progress(self, done: float, text: str) -> None:
        if self._has_bar:
            full = round(BAR_WIDTH * min(max(done, 0.0), 1.0))
            sys.stderr.write(f"{CLEAR_LINE}[{'#' * full}{'.' * (BAR_WIDTH - full)}] {text}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._has_bar:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()
