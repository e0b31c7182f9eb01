"""Log lines carry the id of their node, though several nodes may share a process.

A node enters its id into the context that it is built in. Callbacks, tasks and threads inherit the context of whoever
starts them, so everything that a node does knows whose doing it is, and nothing is paid for that but by a log line.
"""

import logging
from contextvars import ContextVar

node_id: ContextVar[int | None] = ContextVar("node_id", default=None)


class NodeIdFilter(logging.Filter):
    """Lets every record pass, and gives it `node`: "[node 1] ", or nothing outside of any node."""

    def filter(self, record: logging.LogRecord) -> bool:
        current = node_id.get()
        record.node = "" if current is None else f"[node {current}] "
        return True
