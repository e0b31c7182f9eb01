"""Transforms make a DataFrame of DataFrames: Spark SQL over other stages, or a function of the user's.

A function gets DataFrames, once, and returns one. With `returns` it is called in Spark's workers instead, with each
Arrow batch as it comes from Java: no object is made for a row unless the function does so.
"""

import difflib
import importlib
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from odradek.pipeline.file.definition import Pipeline, Transform
from odradek.pipeline.file.document import Key
from odradek.pipeline.file.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

RELATION = re.compile(r"UnresolvedRelation \[([^\]]*)\]")
CTE = re.compile(r"CTE \[([^\]]*)\]")
LINE = re.compile(r"line (\d+),? pos (\d+)")


def sql_of(pipeline: Pipeline, transform: Transform) -> str:
    if transform.sql:
        return transform.sql
    try:
        return (pipeline.directory / transform.sql_file).read_text()
    except OSError as error:
        problem = f"{transform.sql_file} cannot be read: {error.strerror or error}"
        raise pipeline.error((*transform.key, "sql_file"), problem) from None


def inputs_of(spark: "SparkSession", pipeline: Pipeline, transform: Transform) -> list[str]:
    """Names of stages that a transform reads, as Spark's parser finds them."""
    if transform.function:
        return list(transform.inputs)
    text = sql_of(pipeline, transform)
    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text).toString()
    except Exception as error:
        raise sql_error(pipeline, transform, error) from None
    shadowed = {name.strip() for found in CTE.findall(plan) for name in found.split(",")}
    known = {name.lower(): name for name in (*pipeline.sources, *pipeline.transforms)}
    found: dict[str, None] = {}
    for reference in RELATION.findall(plan):
        name = reference.strip().lower()
        if name in known:
            if known[name] != transform.name:
                found[known[name]] = None
            elif name not in shadowed:
                raise _sql_problem(pipeline, transform, f"the transform reads itself, '{name}'")
        elif "," not in name and name not in shadowed:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{known[close[0]]}'?" if close else f"there are {', '.join(known.values())}"
            line = _line_of_name(pipeline, transform, reference.strip())
            raise _sql_problem(pipeline, transform, f"there is no source or transform '{name}'; {hint}", line)
    return list(found)


def order(pipeline: Pipeline, inputs: Mapping[str, Iterable[str]]) -> list[str]:
    """Transforms in an order in which each comes after those it reads. `PipelineError` for a cycle."""
    ordered: list[str] = []
    path: list[str] = []

    def visit(name: str) -> None:
        if name in ordered or name in pipeline.sources:
            return
        if name in path:
            circle = " → ".join([*path[path.index(name) :], name])
            raise pipeline.error(("transforms", name), f"transforms read each other in a circle: {circle}")
        path.append(name)
        for before in inputs[name]:
            visit(before)
        path.pop()
        ordered.append(name)

    for name in pipeline.transforms:
        visit(name)
    return ordered


def apply(
    spark: "SparkSession", pipeline: Pipeline, transform: Transform, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """The transform's result, before its requirements; `frames` are also views of the session."""
    if transform.function:
        frame = _call(pipeline, transform, [frames[name] for name in transform.inputs])
    else:
        try:
            frame = spark.sql(sql_of(pipeline, transform))
        except PySparkException as error:
            raise sql_error(pipeline, transform, error) from None
    return with_watermark(pipeline, frame, transform.key, transform.watermark)


def with_watermark(pipeline: Pipeline, frame: DataFrame, key: Key, watermark: Any) -> DataFrame:
    if watermark is None:
        return frame
    types = dict(frame.dtypes)
    if watermark.column not in types:
        problem = f"there is no column '{watermark.column}'; there are {', '.join(types)}"
        raise pipeline.error((*key, "watermark"), problem)
    if types[watermark.column] not in ("timestamp", "timestamp_ntz"):
        problem = f"the column '{watermark.column}' is {types[watermark.column]}, it must be a timestamp"
        raise pipeline.error((*key, "watermark"), problem)
    return frame.withWatermark(watermark.column, watermark.delay)


def load_function(pipeline: Pipeline, key: Key, text: str) -> Any:
    """`module:name`, which the file has at `key`."""
    module_name, _, name = text.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        problem = (
            f"module '{module_name}' cannot be imported: {error}. Modules are looked for next to this file, "
            "in pipeline.python_path and in Python's own path"
        )
        raise pipeline.error(key, problem) from None
    except Exception as error:
        problem = f"module '{module_name}' fails when it is imported: {type(error).__name__}: {error}"
        raise pipeline.error(key, problem) from None
    function = getattr(module, name, None)
    if not callable(function):
        found = [one for one, value in vars(module).items() if callable(value) and not one.startswith("_")]
        hint = difflib.get_close_matches(name, found, n=1)
        suggestion = f"; did you mean '{hint[0]}'?" if hint else ""
        problem = f"there is no function '{name}' in {module.__file__}{suggestion}"
        raise pipeline.error(key, problem)
    return function


def _call(pipeline: Pipeline, transform: Transform, frames: list[DataFrame]) -> DataFrame:
    function = load_function(pipeline, (*transform.key, "function"), transform.function)
    if transform.returns:
        return _in_arrow(pipeline, transform, function, frames[0])
    try:
        frame = function(*frames)
    except PipelineError:
        raise
    except Exception as error:
        place = _users_frame(error)
        reason = f"{type(error).__name__}: {plain(error)}"
        problem = f"{transform.function} failed: {reason} ({place.filename}:{place.lineno})"
        raise pipeline.error((*transform.key, "function"), problem) from None
    if not isinstance(frame, DataFrame):
        problem = f"{transform.function} returned {type(frame).__name__}, it must return a DataFrame"
        raise pipeline.error((*transform.key, "function"), problem)
    return frame


def _in_arrow(pipeline: Pipeline, transform: Transform, function: Any, frame: DataFrame) -> DataFrame:
    def each(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        for batch in batches:
            yield function(batch)

    try:
        with sent_whole(function):
            return frame.mapInArrow(each, transform.returns)
    except PySparkException as error:
        problem = f"these are not columns: {plain(error)}"
        raise pipeline.error((*transform.key, "returns"), problem) from None


@contextmanager
def sent_whole(function: Any) -> Iterator[None]:
    """Send what is in the function's module to the workers as it is, like functions of `udf`: a worker may not find
    the module.
    """
    module = sys.modules[function.__module__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _users_frame(error: BaseException) -> traceback.FrameSummary:
    """The last line that is not Spark's own."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if "/pyspark/" not in one.filename and "/py4j/" not in one.filename]
    return (own or list(frames))[-1]


# SQL errors


def plain(error: BaseException) -> str:
    """Spark's message without its plan, its code's decoration and its place."""
    text = str(error).split("\n== ")[0]
    text = re.split(r"(?: SQLSTATE: \w+|;? line \d+,? pos \d+)", text)[0]
    text = " ".join(text.split())
    return re.sub(r"^\[[A-Z0-9_.]+\] ", "", text).rstrip(";. ")


def sql_error(pipeline: Pipeline, transform: Transform, error: BaseException) -> PipelineError:
    match = LINE.search(str(error))
    return _sql_problem(pipeline, transform, plain(error), int(match[1]) if match else None)


def _sql_problem(
    pipeline: Pipeline, transform: Transform, problem: str, line: int | None = None
) -> PipelineError:
    if transform.sql_file:
        return PipelineError(
            problem, pipeline.directory / transform.sql_file, line, f"transforms.{transform.name}"
        )
    key = (*transform.key, "sql")
    first = pipeline.document.value_lines.get(key)
    return pipeline.error(key, problem, None if line is None or first is None else first + line - 1)


def _line_of_name(pipeline: Pipeline, transform: Transform, name: str) -> int | None:
    for number, line in enumerate(sql_of(pipeline, transform).splitlines(), 1):
        if re.search(rf"\b{re.escape(name)}\b", line, re.IGNORECASE):
            return number
    return None
