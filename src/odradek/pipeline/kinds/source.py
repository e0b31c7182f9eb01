"""The interface of a kind of source: where records come from, as a stream or as a batch.

Most kinds give records, which are decoded by the source's format. Kinds that give rows as they are (`decodes` is
False) have the columns already.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from odradek.pipeline.file.definition import Pipeline, Source, TopicSource
from odradek.pipeline.rows.decoding import row_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Offsets = Mapping[str, Mapping[str, int]]  # as in checkpoints: {"topic": {"0": 23}}


class SourceKind(ABC):
    decodes = True
    metadata: Mapping[str, str] = {}  # columns that say where a row came from, by the record's column

    def __init__(self, pipeline: Pipeline, source: Source) -> None:
        self.pipeline, self.source = pipeline, source

    @property
    def can_reject(self) -> bool:
        """True if a record may fail to decode."""
        return self.decodes and self.source.format != "raw"

    @property
    def subscription(self) -> TopicSource | None:
        """The topics that it reads; None for a source without offsets."""
        return None

    @property
    def directory(self) -> Path | None:
        """The directory whose new files become part of what it reads."""
        return None

    @property
    @abstractmethod
    def reads(self) -> Any:
        """A description of what is read, as the manifest keeps it."""

    def schema(self) -> StructType:
        """The columns of its rows as the file declares them; none if they are known only once it is read."""
        return row_schema(self.pipeline, self.source)

    @abstractmethod
    def stream(self, spark: "SparkSession", group: str, *, headers: bool, named: bool) -> "DataFrame":
        """Records as they arrive. Offsets are committed to `group`; `named` sources keep theirs by name."""

    @abstractmethod
    def batch(
        self, spark: "SparkSession", *, starting: Offsets | None = None, ending: Offsets | None = None
    ) -> "DataFrame":
        """The same as a batch: all records, or those within offsets."""

    def given(self, spark: "SparkSession", values: Sequence[bytes]) -> "DataFrame":
        """Records with the values of a test."""
        raise NotImplementedError(f"{type(self).__name__} gives rows, not records")

    def place(self) -> list["Column"]:
        """Names a record in an error message."""
        raise NotImplementedError(f"{type(self).__name__} gives rows, not records")

    def check_outside(self) -> None:
        """`PipelineError` if what it reads is not there."""
        return
