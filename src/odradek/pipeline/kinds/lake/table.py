"""The interface of a lake table: what `kinds.lake_sink` needs of delta-rs and pyiceberg.

A table is looked at again before each batch (`look`), and each change is one commit on top of what was seen. If someone
else has changed the table meanwhile in a way that matters, a commit raises `Conflict`; the caller looks again, because
the batch may be in the table by now, and decides anew. The libraries themselves never retry: they would not look.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructField, StructType

from odradek.pipeline.kinds.lake.files import DataFile, Target
from odradek.pipeline.kinds.lake.order import Entry, Order

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.pipeline.file.definition import Upsert

SMALL_FILES = 50  # that many are made into larger ones


class Conflict(Exception):
    """Someone else has changed the table since it was looked at."""


class Unwritable(Exception):
    """The table has a property that this writer does not honour, in words."""


class LakeTable(ABC):
    """`place` is the directory or URI that tasks write to, once the table exists."""

    place: str

    @abstractmethod
    def look(self) -> str | None:
        """Read the newest version of the table; returns its id, or None if there is no table."""

    @abstractmethod
    def schema(self) -> StructType:
        """Return the schema of the version that was looked at."""

    def columns(self) -> list[Any]:
        """Return the columns that files are written for: a column that was removed and added again is another one."""
        return list(self.schema().fields)

    @abstractmethod
    def partition_by(self) -> tuple[str, ...]: ...

    @abstractmethod
    def entry(self, query: str) -> Entry | None:
        """The last batch of a query that the table has."""

    @abstractmethod
    def create(self, schema: StructType, partition_by: Sequence[str]) -> None:
        """Nothing happens if it is there by now."""

    @abstractmethod
    def add_columns(self, columns: Sequence[StructField]) -> None: ...

    @abstractmethod
    def target(self) -> Target:
        """Return what tasks need to write files for it."""

    @abstractmethod
    def append(self, files: Sequence[DataFile], order: Order) -> None:
        """One commit: the rows of these files, and that the batch is written."""

    @abstractmethod
    def merge(self, rows: "pa.Table", upsert: "Upsert", order: Order) -> None:
        """One commit: `rows` in place of those with their keys, and that the batch is written."""

    @abstractmethod
    def compact(self) -> int:
        """Make larger files of small ones, if there are many; returns how many were replaced."""
