"""The state that a query keeps, according to Spark's own plan.

State is what a stream remembers between batches: groups, rows that wait for the other side of a join, keys that it has
seen. It is bounded if a watermark says when it may be dropped. Spark refuses some unbounded queries and runs
others until memory runs out; here all of them are refused, unless the file says that there are only few keys.

We walk the analysed logical plan, not the SQL: it is the same however a transform was written.

**Old state under a new query.** Spark compares only the types of the state in a checkpoint: if it takes a maximum
for a minimum, the result is wrong, without an error. So a run stores the meaning of its state (`state_layout`), and
the next one compares. Unused columns and functions are not in the state; Spark's optimiser tells which.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from odradek.pipeline.file.definition import Sink, fingerprint
from odradek.pipeline.rows.decoding import ROW

WATERMARK = "spark.watermarkDelayMs"
EXPRESSION_ID = re.compile(r"#\d+L?(?:-T\d+ms)?")
COLUMN = re.compile(r"(\w+)#(\d+)L?(?:-T\d+ms)?")
LAMBDA_NUMBER = re.compile(r"(?<=lambda )(\w+?)_\d+")  # PySpark counts its variables
READABLE_CHARACTERS = 60
SEEN_KEYS = ("Deduplicate", "Distinct", "DeduplicateWithinWatermark")
PROGRAMS = (
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
)


@dataclass(frozen=True)
class StatefulOperator:
    """`problem` says why it is unbounded."""

    kind: str
    problem: str


def stateful_operators(frame: DataFrame) -> list[StatefulOperator]:
    plan = frame._jdf.queryExecution().analyzed()
    return [operator for node in _walk(plan) if (operator := _operator(node)) is not None]


def output_mode(sink: Sink, operators: Sequence[StatefulOperator]) -> str:
    """The mode of Spark's query. An upsert takes groups whenever they change; Spark joins streams only to append."""
    kinds = {one.kind for one in operators}
    if sink.mode != "upsert":
        return sink.mode
    return "update" if "Aggregate" in kinds and "Join" not in kinds else "append"


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in _each(node.children()):
        yield from _walk(child)


def _each(sequence: Any) -> Iterator[Any]:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _operator(node: Any) -> StatefulOperator | None:
    kind = _stateful_kind(node)
    if kind == "Aggregate":
        return StatefulOperator(kind, _problem_of_groups(node))
    if kind == "Join":
        return StatefulOperator(kind, _problem_of_join(node))
    if kind in SEEN_KEYS:
        return StatefulOperator(kind, _problem_of_keys(node, kind))
    return StatefulOperator(kind, "") if kind else None


def _stateful_kind(node: Any) -> str:
    """The class of a node that keeps state; empty for others."""
    kind = str(node.getClass().getSimpleName())
    if not node.isStreaming() or kind not in ("Aggregate", "Join", *SEEN_KEYS, *PROGRAMS):
        return ""
    if kind == "Join" and not (node.left().isStreaming() and node.right().isStreaming()):
        return ""
    return kind


def _problem_of_groups(node: Any) -> str:
    grouping = list(_each(node.groupingExpressions()))
    if any(_has_watermark(one) for one in grouping):
        return ""
    by = ", ".join(_plain(one.toString()) for one in grouping)
    named = f"GROUP BY {by}" if by else "an aggregation without GROUP BY"
    return (
        f"{named} keeps a group for every key ever seen: group by a window, or by the column, of a source or "
        "transform with a watermark"
    )


def _problem_of_join(node: Any) -> str:
    condition = node.condition()
    used = set()
    if condition.isDefined():
        used = {one.exprId().id() for one in _each(condition.get().references()) if _marked(one)}
    unbounded = [
        side
        for side, plan in (("left", node.left()), ("right", node.right()))
        if not any(one.exprId().id() in used for one in _each(plan.output()))
    ]
    if not unbounded:
        return ""
    return (
        f"a join of two streams keeps the rows of its {' and '.join(unbounded)} side forever: give both sides a "
        "watermark, and join on it: a window, or a range such as b.time BETWEEN a.time AND a.time + INTERVAL 1 HOUR"
    )


def _problem_of_keys(node: Any, kind: str) -> str:
    columns = node.child().output() if kind == "DeduplicateWithinWatermark" else _keys(node, kind)
    if any(_marked(one) for one in _each(columns)):
        return ""
    return "removing duplicates keeps every key ever seen: include a column with a watermark"


def _keys(node: Any, kind: str) -> Any:
    return node.output() if kind == "Distinct" else node.keys()


def _has_watermark(expression: Any) -> bool:
    """Only a column with the watermark itself lets Spark drop state; not an expression computed from it."""
    if expression.getClass().getSimpleName() == "Alias":
        return _has_watermark(expression.child())
    return expression.getClass().getSimpleName() == "AttributeReference" and _marked(expression)


def _marked(attribute: Any) -> bool:
    return bool(attribute.metadata().contains(WATERMARK))


def _types(output: Any) -> str:
    return ", ".join(f"{one.name()} {one.dataType().simpleString()}" for one in _each(output))


def _plain(text: str) -> str:
    return EXPRESSION_ID.sub("", text)


# The meaning of state


def state_layout(frame: DataFrame) -> list[str]:
    """Return what the query keeps between batches, as text: state with another text must not be taken for this one."""
    plan = frame._jdf.queryExecution().analyzed()
    optimised = frame.sparkSession._jsparkSession.sessionState().optimizer().execute(plan)
    explain = _explainer(plan)
    needed = list(dict.fromkeys(one for node in _walk(optimised) for one in _functions(node)))
    found = []
    for node in _walk(plan):
        kind = _stateful_kind(node)
        if kind == "Aggregate":
            found.append(_groups_layout(node, needed, explain))
        elif kind == "Join":
            condition = node.condition()
            on = explain(condition.get().toString()) if condition.isDefined() else ""
            found.append(f"{node.joinType().toString()} join ON {on}")
        elif kind in SEEN_KEYS:
            keys = ", ".join(explain(one.toString()) for one in _each(_keys(node, kind)))
            found.append(f"{kind} by {keys}")
        elif kind:
            found.append(f"{kind}: {_types(node.output())}")
    sides = [
        (one.left().output(), one.right().output())
        for one in _walk(optimised)
        if _stateful_kind(one) == "Join"
    ]
    return found + [f"joined rows: {_types(left)} with {_types(right)}" for left, right in sides]


def state_types(frame: DataFrame) -> list[str]:
    """The types of keys and values that each stateful operator keeps. Spark refuses state of other types."""
    plan = frame._jdf.queryExecution().analyzed()
    optimised = frame.sparkSession._jsparkSession.sessionState().optimizer().execute(plan)
    found = []
    for node in _walk(optimised):
        kind = _stateful_kind(node)
        if kind == "Aggregate":
            keys = [one.dataType().simpleString() for one in _each(node.groupingExpressions())]
            values = [text for one in _aggregates(node) for text in _buffer_types(one)]
            found.append(f"groups by ({', '.join(keys)}) of ({', '.join(values)})")
        elif kind in SEEN_KEYS:
            keys = [one.dataType().simpleString() for one in _each(_keys(node, kind))]
            found.append(f"keys of ({', '.join(keys)})")
    return found


def _buffer_types(aggregate: Any) -> list[str]:
    """Return the types that a function keeps of a group. One that Spark cannot run in a stream has no buffer; Spark
    refuses it later.
    """
    try:
        fields = aggregate.aggregateFunction().aggBufferSchema().fields()
    except Exception:
        return [str(aggregate.dataType().simpleString())]
    return [str(one.dataType().simpleString()) for one in fields]


def _groups_layout(node: Any, needed: list[int], explain: Callable[[str], str]) -> str:
    by = ", ".join(explain(one.toString()) for one in _each(node.groupingExpressions()))
    functions = _functions(node)
    kept = dict.fromkeys(explain(functions[one]) for one in needed if one in functions)
    return f"GROUP BY {by}: {', '.join(kept)}"


def _functions(node: Any) -> dict[int, str]:
    """The aggregate functions of a node by their number, which the optimiser keeps; in the order of their state."""
    if _stateful_kind(node) != "Aggregate":
        return {}
    return {one.resultId().id(): one.toString() for one in _aggregates(node)}


def _aggregates(node: Any) -> Iterator[Any]:
    """The aggregate expressions of a node, each once."""
    seen = set()
    for expression in _each(node.aggregateExpressions()):
        for one in _walk(expression):
            if one.getClass().getSimpleName() == "AggregateExpression" and one.resultId().id() not in seen:
                seen.add(one.resultId().id())
                yield one


def _explainer(plan: Any) -> Callable[[str], str]:
    """Writes an expression with the columns of sources instead of names that a query introduced."""
    definitions = {
        one.exprId().id(): one.child().toString()
        for node in _walk(plan)
        if node.getClass().getSimpleName() == "Project"
        for one in _each(node.projectList())
        if one.getClass().getSimpleName() == "Alias"
    }
    known: dict[int, str] = {}

    def of_column(match: re.Match[str]) -> str:
        name, number = match[1], int(match[2])
        if number not in known:
            definition = definitions.get(number, "")
            is_sources_own = not definition or definition.startswith(f"{ROW}#")
            text = name if is_sources_own else explain(definition)
            known[number] = text if len(text) <= READABLE_CHARACTERS else f"{name}[{fingerprint(text)}]"
        return known[number]

    def explain(text: str) -> str:
        return EXPRESSION_ID.sub("", LAMBDA_NUMBER.sub(r"\1", COLUMN.sub(of_column, text)))

    return explain


SOURCE_NAME = re.compile(r'name="(\w+)"')


def streams_read(frame: DataFrame) -> list[str]:
    """Names of the streams in the plan, once for every place where they are read."""
    return SOURCE_NAME.findall(frame._jdf.queryExecution().analyzed().toString())
