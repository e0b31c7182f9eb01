"""Reads from Spark's plan of a frame whether its rows have an order, and whether each is made of one row alone."""

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


def is_grouped(frame: DataFrame) -> bool:
    """True if the rows are groups: a batch has one row of each, if nothing multiplies them afterwards."""
    node = frame._jdf.queryExecution().analyzed()
    while str(node.getClass().getSimpleName()) in KEEP_NUMBER and node.children().size() == 1:
        node = node.children().head()
    return str(node.getClass().getSimpleName()) == "Aggregate"


KEEP_NUMBER = {"Project", "Filter", "SubqueryAlias", "View", "EventTimeWatermark", "CollectMetrics"}
ROW_BY_ROW = KEEP_ORDER - {"MapInPandas"}
STREAM_SIDE = {"Inner": "any", "LeftOuter": "left", "LeftSemi": "left", "RightOuter": "right"}


def is_row_by_row(frame: DataFrame) -> bool:
    """True if every row of a stream is treated by itself, so that the plan means the same over a stream and over each
    of its batches. A join with a static side is allowed where Spark allows it in a stream."""
    plan = frame._jdf.queryExecution().analyzed()
    return all(_treats_rows_alone(node) for node in _inner_nodes(plan) if node.isStreaming())


def _treats_rows_alone(node: Any) -> bool:
    if not node.subqueries().isEmpty():
        return False
    kind = str(node.getClass().getSimpleName())
    if kind != "Join":
        return kind in ROW_BY_ROW
    left, right = node.left().isStreaming(), node.right().isStreaming()
    side = STREAM_SIDE.get(str(node.joinType().toString()))
    return left != right and (side == "any" or side == ("left" if left else "right"))


def _inner_nodes(node: Any) -> Iterator[Any]:
    """The nodes between the frame and its sources."""
    children = node.children()
    if children.isEmpty():
        return
    yield node
    found = children.iterator()
    while found.hasNext():
        yield from _inner_nodes(found.next())
