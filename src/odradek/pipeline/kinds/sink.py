"""The interface of a kind of sink: which rows it takes, how a batch is written, and what it guarantees.

Most kinds are written batch by batch by `write` (`foreachBatch`), which also makes a clean stop possible: between
two batches nothing is half written. Kinds that Spark writes itself (`spark_writer`) have sinks of Spark's own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.file.definition import BOOTSTRAP, Pipeline, Sink
from odradek.pipeline.rows.decoding import METADATA_COLUMNS
from odradek.pipeline.rows.transforms import plain

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from odradek.spark.exactly_once import Part


@dataclass(frozen=True)
class Batch:
    """A batch that is written. `letters_place` names the files of its dead letters; `show` prints at the console."""

    number: int
    letters_place: Callable[[], str]
    show: Callable[[str], None]


class Refused(Exception):
    """A batch that the sink cannot take, in words. No retry can change that."""


class SinkKind(ABC):
    def __init__(self, pipeline: Pipeline, sink: Sink) -> None:
        self.pipeline, self.sink = pipeline, sink

    @property
    @abstractmethod
    def destination(self) -> str:
        """The destination of rows, for people."""

    @property
    def guarantee(self) -> str:
        """The guarantee for rows, in one line."""
        return "at least once: no loss; after a crash the batch in flight may be repeated"

    def plan(self, frame: DataFrame) -> DataFrame:
        """The rows that the query hands to the sink. `PipelineError` if they do not fit it."""
        rows = without_metadata(frame)
        if not rows.columns:
            raise self.pipeline.error((*self.sink.key, "from"), "there are no columns to write")
        return rows

    def check_outside(self, rows: DataFrame) -> None:
        """`PipelineError` if the rows do not fit what is already there. It connects."""
        return

    def check_declared(self, *, create: bool = False) -> None:
        """Check that what the sink writes to exists or may be created; with `create` it exists afterwards."""
        return

    @abstractmethod
    def write(self, batch: Batch, frame: DataFrame) -> int:
        """Write the batch; returns how many of its rows became dead letters."""

    def spark_writer(self, writer: "DataStreamWriter") -> "DataStreamWriter | None":
        """The writer of a sink of Spark's own, instead of `write`."""
        return None

    @property
    def kafka(self) -> Mapping[str, str] | None:
        """The client settings of the cluster that rows go to; None if they do not go to a topic."""
        return None

    @property
    def cluster(self) -> str | None:
        """The cluster that rows go to, if sinks of that cluster may share a query. Whatever else may be away or slow
        must not hold up topics, and has a query of its own."""
        return None if self.kafka is None else self.kafka[BOOTSTRAP]

    @property
    def ledger_settings(self) -> Mapping[str, str] | None:
        """The client settings of the cluster whose ledger knows its batches; each is a transaction then, and `part` is
        called instead of `write`. None: it has no ledger."""
        return None

    def part(self, frame: DataFrame) -> "Part":
        """The batch as a part of a transaction."""
        raise NotImplementedError

    def committed(self, batch: int) -> bool:
        """True if the sink knows that it has all rows of this batch of its query."""
        return False

    def leftovers(self) -> list[Path]:
        """Output that would be in the way of a fresh start."""
        return []

    def reset(self) -> None:
        """Delete the leftovers."""
        return

    def readable(self, row: dict[str, object]) -> dict[str, object]:
        """A planned row as tests compare it."""
        return row

    def _met(self, frame: DataFrame, condition: str, key: str) -> Column:
        """True for rows that meet a condition of the file. A null condition is not met."""
        try:
            kind = frame.select(F.expr(condition).alias("met")).dtypes[0][1]
        except (AnalysisException, ParseException) as error:
            raise self.pipeline.error((*self.sink.key, key), plain(error)) from None
        if kind != "boolean":
            raise self.pipeline.error((*self.sink.key, key), f"the condition is {kind}, it must be boolean")
        return F.coalesce(F.expr(condition), F.lit(False))

    def _check_columns(self, rows: DataFrame, wanted: Sequence[str], key: str) -> None:
        for name in wanted:
            if name not in rows.columns:
                problem = (
                    f"there is no column '{name}'; there are {', '.join(without_metadata(rows).columns)}"
                )
                raise self.pipeline.error((*self.sink.key, key), problem)


def without_metadata(frame: DataFrame) -> DataFrame:
    return frame.drop(*METADATA_COLUMNS)
