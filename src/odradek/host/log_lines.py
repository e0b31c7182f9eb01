"""The common part of a node's log lines: their node, their fields, and how often they are written.

A node enters its id, and its `Repeats`, into the context that it is built in. Callbacks, tasks and threads inherit the
context of the code that starts them, so every log line knows its node, at no cost for anything else.

Lines carry fields besides their text (`fields`): api, client, topic, group. `--log-format json` writes them; the text
says the same in words. Strings from clients go through `wording.shown`.
"""

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from odradek.host.repeats import Repeats

if TYPE_CHECKING:
    from odradek.host.interface import Host

node_id: ContextVar[int | None] = ContextVar("node_id", default=None)
_repeats: ContextVar[Repeats | None] = ContextVar("repeats", default=None)


def enter(node: int, host: "Host") -> Repeats:
    """Let log lines in this context belong to this node from now on. Close the result when the node stops."""
    node_id.set(node)
    repeats = Repeats(host.loop_time, host.call_later)
    _repeats.set(repeats)
    return repeats


class NodeIdFilter(logging.Filter):
    """Lets every record pass, and gives it `node`: "[node 1] ", or nothing outside of any node; and `node_id`."""

    def filter(self, record: logging.LogRecord) -> bool:
        current = node_id.get()
        record.node = "" if current is None else f"[node {current}] "
        record.node_id = current
        return True


def fields(**named: Any) -> dict[str, Any]:
    """Return named fields for `extra` of a log call. A field that is None is left out."""
    return {"fields": {name: value for name, value in named.items() if value is not None}}


def counted(
    logger: logging.Logger, level: int, source: str, what: str, message: str, *arguments: Any, **named: Any
) -> None:
    """Log a line that the same `source` may cause again and again: the first is written, repeats are counted.

    `what` distinguishes the lines of a source, and names them in the count."""
    repeats = _repeats.get()
    if not logger.isEnabledFor(level):
        return
    if repeats is None or repeats.is_new(logger, level, source, what):
        logger.log(level, message, *arguments, extra=fields(**named), stacklevel=2)
