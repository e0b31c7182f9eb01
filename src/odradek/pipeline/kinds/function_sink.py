"""A function of the user's as a sink: `module:function` is called with each batch and its id.

    def send(rows: pyarrow.Table, batch: BatchId) -> list[tuple[int, str]] | None

It runs at the driver, and the next batch is read once it returns: a slow receiver slows the pipeline down, and
nothing piles up. If it raises, the batch is tried again after a pause. `BatchId` is the same when a batch runs again,
and another one after a reset, so a receiver that knows the ids it has seen has each row once.

Rows that the receiver will never take are returned, by their number, each with a reason: they become dead letters, or
end the run if there is no place for these. With `takes = "dataframe"` the function gets a DataFrame and returns None.
Whatever else it returns ends the run: it may be rows that nobody has sent, of a coroutine or a generator.
"""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from odradek.pipeline.file.definition import FunctionSink, Pipeline, Sink
from odradek.pipeline.kinds.database.access import RowsRefused
from odradek.pipeline.kinds.dead_letters import write_refused
from odradek.pipeline.kinds.sink import Batch, Refused, SinkKind, without_metadata
from odradek.pipeline.rows.transforms import load_function
from odradek.spark.query_checkpoint import QueryCheckpoint


@dataclass(frozen=True)
class BatchId:
    """`sink` is Spark's id of the query, which a reset changes; `number` counts its batches. As text it sorts."""

    sink: str
    number: int

    def __str__(self) -> str:
        return f"{self.sink}-{self.number:09d}"


class FunctionFailed(Exception):
    """A retry may succeed."""


class FunctionSinkKind(SinkKind):
    def __init__(self, pipeline: Pipeline, sink: Sink, target: FunctionSink) -> None:
        super().__init__(pipeline, sink)
        self.target = target

    @property
    def destination(self) -> str:
        return f"function {self.target.function}"

    @property
    def guarantee(self) -> str:
        return "at least once: a batch is passed again, with the same id, until the function has returned"

    def plan(self, frame: DataFrame) -> DataFrame:
        """Rows keep the columns that say where they came from: dead letters need them."""
        super().plan(frame)
        self._function()
        return frame

    def _function(self) -> Any:
        key = (*self.sink.key, "function")
        function = load_function(self.pipeline, key, self.target.function)
        if problem := problem_of(function):
            raise self.pipeline.error(key, f"{self.target.function} {problem}")
        return function

    def write(self, batch: Batch, frame: DataFrame) -> int:
        function, identity = self._function(), BatchId(QueryCheckpoint.of(frame).query_id, batch.number)
        if self.target.takes == "dataframe":
            result = self._call(function, without_metadata(frame), identity)
            if result is not None:
                returned = f"{self.target.function} returned {type(result).__name__}"
                raise Refused(f"{returned}; a function of DataFrames must return None")
            return 0
        whole = frame.toArrow()
        rows = whole.select(without_metadata(frame).columns)
        refused = checked(self._call(function, rows, identity), whole.num_rows, self.target.function)
        if refused:
            self._set_aside(whole, refused, frame, batch)
        return len(refused)

    def _call(self, function: Any, rows: Any, identity: BatchId) -> Any:
        """Call the function; what it raises is told with its kind, and Spark's own failures stay what they are."""
        try:
            return function(rows, identity)
        except Exception as error:
            if type(error).__module__.split(".")[0] in ("pyspark", "py4j"):
                raise
            said = f"{self.target.function} raised {type(error).__name__}: {error}"
            raise FunctionFailed(said) from error

    def _set_aside(self, rows: Any, refused: dict[int, str], frame: DataFrame, batch: Batch) -> None:
        if self.pipeline.dead_letters is None:
            number, reason = next(iter(refused.items()))
            raise RowsRefused(
                f"{self.target.function} refused row {number} of batch {batch.number}: {reason}"
            )
        write_refused(frame.sparkSession, self.pipeline, self.sink.name, rows, refused, batch.letters_place())


def problem_of(function: Any) -> str:
    """Why a function cannot be called as a sink; empty if it can."""
    if inspect.iscoroutinefunction(function):
        return "is asynchronous, and nothing would await it: let a plain function call asyncio.run"
    try:
        inspect.signature(function).bind("rows", "batch")
    except TypeError:
        return "must take two arguments, the rows and the batch's id"
    except ValueError:  # of a function in C
        return ""
    return ""


def checked(result: Iterable[tuple[int, str]] | None, count: int, function: str) -> dict[int, str]:
    """Check what a function returned: numbers of rows, and why each was refused."""
    try:
        refused = {int(number): str(reason) for number, reason in result or ()}
    except (TypeError, ValueError):
        raise Refused(
            f"{function} returned {type(result).__name__}; it must return None, or a list of (number of a row, reason)"
        ) from None
    outside = [number for number in refused if not 0 <= number < count]
    if outside:
        raise Refused(f"{function} refused row {outside[0]}, and the batch has {count} rows")
    return refused
