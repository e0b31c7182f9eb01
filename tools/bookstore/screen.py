"""Write to the demo's terminal: headings, commands, a line of progress that is rewritten in place.

Elsewhere than at a terminal there are no colours, and nothing is rewritten.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from typing import TextIO

from .drawing import cut

WIDEST = 100
BOLD, DIM, GREEN, RED, CYAN = "1", "2", "32", "31", "36"
PROGRESS_S = 0.05
TICKS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Screen:
    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out or sys.stdout
        self._is_terminal = self._out.isatty()
        self._has_colours = self._is_terminal and "NO_COLOR" not in os.environ
        self.width = min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)
        self._has_progress = False
        self._ticks = 0
        self._clock, self._next_progress_s = clock, 0.0

    def paint(self, text: str, *styles: str) -> str:
        return f"\033[{';'.join(styles)}m{text}\033[0m" if self._has_colours and styles and text else text

    def line(self, text: str = "", *styles: str) -> None:
        self.clear_progress()
        self._out.write(self.paint(text, *styles) + "\n")
        self._out.flush()

    def heading(self, text: str) -> None:
        rule = "─" * max(self.width - len(text) - 4, 0)
        self.line()
        self.line(f"── {text} {rule}", BOLD)

    def lines(self, texts: Iterable[str], *styles: str) -> None:
        """Indented, and cut to the screen."""
        for text in texts:
            self.line(f"  {cut(text, self.width - 2)}", *styles)

    def command(self, text: str) -> None:
        self.clear_progress()
        self._out.write(f"  {self.paint('$', DIM)} {self.paint(text, CYAN)}\n")
        self._out.flush()

    def verdict(self, agrees: bool) -> str:
        return self.paint("✓", GREEN) if agrees else self.paint("✗ differs", RED, BOLD)

    def progress(self, text: str) -> None:
        """Shown until something else is, and not more often than eyes can follow."""
        now_s = self._clock()
        if not self._is_terminal or now_s < self._next_progress_s:
            return
        self._next_progress_s = now_s + PROGRESS_S
        self._ticks += 1
        tick = self.paint(TICKS[self._ticks % len(TICKS)], CYAN)
        self._out.write(f"\r\033[K  {tick} {cut(text, self.width - 5)}")
        self._out.flush()
        self._has_progress = True

    def clear_progress(self) -> None:
        if self._has_progress:
            self._out.write("\r\033[K")
            self._has_progress = False
