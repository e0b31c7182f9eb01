"""What Spark's plan of a frame says about the order of its rows."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

KEEP_ORDER = {
    "Project",
    "Filter",
    "Union",
    "SubqueryAlias",
    "View",
    "EventTimeWatermark",
    "CollectMetrics",
    "Generate",
    "Expand",
    "ResolvedHint",
    "MapInArrow",
    "MapInPandas",
    "ArrowEvalPython",
    "BatchEvalPython",
}


def may_shuffle(frame: DataFrame) -> bool:
    """True unless every task passes on the rows that it has read, in their order. A join may or may not shuffle."""
    plan = frame._jdf.queryExecution().analyzed()
    return any(str(node.getClass().getSimpleName()) not in KEEP_ORDER for node in _inner_nodes(plan))


def _inner_nodes(node: Any) -> Iterator[Any]:
    """The nodes between the frame and its sources."""
    children = node.children()
    if children.isEmpty():
        return
    yield node
    found = children.iterator()
    while found.hasNext():
        yield from _inner_nodes(found.next())
