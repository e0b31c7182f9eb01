"""What Spark's own plan says about the state that a query keeps.

State is what a stream remembers between batches: groups, rows that wait for the other side of a join, keys already
seen. It is bounded if a watermark says when it may be forgotten. Spark refuses some unbounded queries and runs
others until memory ends; here all of them are refused, except where the file states that the keys are few.

The analysed logical plan is walked, not the SQL: it is the same plan whichever way a transform was written.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

WATERMARK = "spark.watermarkDelayMs"
EXPRESSION_ID = re.compile(r"#\d+L?(?:-T\d+ms)?")
SEEN_KEYS = ("Deduplicate", "Distinct", "DeduplicateWithinWatermark")
PROGRAMS = (
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
)


@dataclass(frozen=True)
class StatefulOperator:
    """`signature` changes if and only if old state can no longer be used; `problem` says why it is unbounded."""

    kind: str
    signature: str
    problem: str


def stateful_operators(frame: DataFrame) -> list[StatefulOperator]:
    plan = frame._jdf.queryExecution().analyzed()
    return [operator for node in _walk(plan) if (operator := _operator(node)) is not None]


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in _each(node.children()):
        yield from _walk(child)


def _each(sequence: Any) -> Iterator[Any]:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _operator(node: Any) -> StatefulOperator | None:
    if not node.isStreaming():
        return None
    kind = node.getClass().getSimpleName()
    if kind == "Aggregate":
        return _aggregate(node)
    if kind == "Join":
        return _join(node)
    if kind in SEEN_KEYS:
        return _seen_keys(node, kind)
    if kind in PROGRAMS:
        return StatefulOperator(kind, f"{kind}({_types(node.output())})", "")
    return None


def _aggregate(node: Any) -> StatefulOperator:
    grouping = list(_each(node.groupingExpressions()))
    bounded = any(_has_watermark(one) for one in grouping)
    by = ", ".join(_plain(one.toString()) for one in grouping)
    signature = f"Aggregate({by} | {_functions(node)})"
    problem = ""
    if not bounded:
        named = f"GROUP BY {by}" if by else "an aggregation without GROUP BY"
        problem = (
            f"{named} keeps a group for every key ever seen: group by a window, or by the column, of a source or "
            "transform with a watermark"
        )
    return StatefulOperator("Aggregate", signature, problem)


def _functions(node: Any) -> str:
    """The aggregate functions, in order: they decide what a group's state looks like."""
    text = ", ".join(_plain(one.toString()) for one in _each(node.aggregateExpressions()))
    return ", ".join(sorted(set(re.findall(r"\b[a-z_]+\([^()]*\)", text))))


def _join(node: Any) -> StatefulOperator | None:
    left, right = node.left(), node.right()
    if not (left.isStreaming() and right.isStreaming()):
        return None
    condition = node.condition()
    text = _plain(condition.get().toString()) if condition.isDefined() else ""
    sides = f"{_types(left.output())} with {_types(right.output())}"
    signature = f"Join({node.joinType().toString()}, {text}, {sides})"
    used = set()
    if condition.isDefined():
        used = {one.exprId().id() for one in _each(condition.get().references()) if _marked(one)}
    unbounded = [
        side
        for side, plan in (("left", left), ("right", right))
        if not any(one.exprId().id() in used for one in _each(plan.output()))
    ]
    problem = ""
    if unbounded:
        problem = (
            f"a join of two streams keeps the rows of its {' and '.join(unbounded)} side for ever: give both sides a "
            "watermark, and join on it: a window, or a range such as b.time BETWEEN a.time AND a.time + INTERVAL 1 HOUR"
        )
    return StatefulOperator("Join", signature, problem)


def _seen_keys(node: Any, kind: str) -> StatefulOperator:
    keys = list(_each(node.output() if kind == "Distinct" else node.keys()))
    names = ", ".join(_plain(one.toString()) for one in keys)
    problem = ""
    marked = keys if kind != "DeduplicateWithinWatermark" else list(_each(node.child().output()))
    if not any(_marked(one) for one in marked):
        problem = "removing duplicates keeps every key ever seen: have a column with a watermark among them"
    return StatefulOperator(kind, f"{kind}({names})", problem)


def _has_watermark(expression: Any) -> bool:
    """Only a column that carries the watermark itself lets Spark forget; not something computed from it."""
    if expression.getClass().getSimpleName() == "Alias":
        return _has_watermark(expression.child())
    return expression.getClass().getSimpleName() == "AttributeReference" and _marked(expression)


def _marked(attribute: Any) -> bool:
    return bool(attribute.metadata().contains(WATERMARK))


def _types(output: Any) -> str:
    return ", ".join(f"{one.name()} {one.dataType().simpleString()}" for one in _each(output))


def _plain(text: str) -> str:
    return EXPRESSION_ID.sub("", text)


SOURCE_NAME = re.compile(r'name="(\w+)"')


def streams_read(frame: DataFrame) -> list[str]:
    """Names of the streams in the plan, once for every place where they are read."""
    return SOURCE_NAME.findall(frame._jdf.queryExecution().analyzed().toString())
