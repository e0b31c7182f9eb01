"""Puts our own message last in what a user reads when a query fails.

Spark wraps an error of a source or sink into its own, with codes before it and plans and stacks after it. Here our
message is found in that text; `show_last` makes Python print it again below everything else, where users
look first. `session()` sets that up.
"""

import re
import sys
from types import TracebackType

OWN_ERROR = re.compile(r"\bodradek\.[a-z_.]+\.[A-Z]\w+: (?P<sentence>[^\n]+)")
HINTS = {
    "odradek does not support Update mode": (
        "Spark does not allow update mode for Python sinks: use odradek.spark.write_updates(writer, options), which "
        "writes the updated rows batch by batch"
    ),
}


def sentence_of(error: BaseException) -> str | None:
    """Our message in a failure that Spark reports; None if it is not one of ours. Of an error and its cause, the error:
    Python tells it last."""
    text = str(error)
    found = OWN_ERROR.findall(text)
    if found:
        return str(found[-1]).removesuffix(" SQLSTATE: 38000").strip()
    return next((hint for mark, hint in HINTS.items() if mark in text), None)


def show_last() -> None:
    """Print the sentence of an uncaught error below its traceback; to be called once or often."""
    previous = sys.excepthook
    if getattr(previous, "shows_sentence", False):
        return

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        previous(kind, error, traceback)
        sentence = sentence_of(error)
        if sentence is not None:
            print(f"\nodradek: {sentence}", file=sys.stderr)

    hook.shows_sentence = True  # type: ignore[attr-defined]
    sys.excepthook = hook
