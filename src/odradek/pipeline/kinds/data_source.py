"""Anything that Spark reads by the name of a format, above all data sources in Python: as a stream, or with `static =
true`
as the side of a join that is read anew for every batch.

`provider` names a class of the user's, a `pyspark.sql.datasource.DataSource`, which is registered under its own name.
What is read after a restart is up to the source: its offsets are in the checkpoint.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from odradek.pipeline.file.definition import DataSource
from odradek.pipeline.kinds.row_source import RowSourceKind, cause
from odradek.pipeline.kinds.source import Offsets
from odradek.pipeline.rows.transforms import load_function, sent_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DataSourceKind(RowSourceKind[DataSource]):
    @property
    def reads(self) -> str:
        return self.origin.provider or self.origin.format

    def stream(self, spark: "SparkSession", group: str, *, headers: bool, named: bool) -> DataFrame:
        if self.origin.is_static:
            return super().stream(spark, group, headers=headers, named=named)
        self._register(spark)
        reader = spark.readStream.format(self.origin.format)
        return self._load(reader.name(self.source.name) if named else reader)

    def batch(
        self, spark: "SparkSession", *, starting: Offsets | None = None, ending: Offsets | None = None
    ) -> DataFrame:
        self._register(spark)
        return self._load(spark.read.format(self.origin.format))

    def _load(self, reader: Any) -> DataFrame:
        reader = reader.options(**self.origin.options)
        if (schema := self.schema()).fields:
            reader = reader.schema(schema)
        try:
            frame: DataFrame = reader.load()
        except Exception as error:
            problem = f"the format '{self.origin.format}' cannot be read: {cause(error)}"
            raise self.pipeline.error((*self.source.key, "format"), problem) from None
        return frame

    def _register(self, spark: "SparkSession") -> None:
        if not self.origin.provider:
            return
        key = (*self.source.key, "provider")
        provider = load_function(self.pipeline, key, self.origin.provider)
        try:
            name = provider.name()
            with sent_whole(provider):
                spark.dataSource.register(provider)
        except Exception as error:
            problem = f"{self.origin.provider} is not a data source of Spark's: {cause(error)}"
            raise self.pipeline.error(key, problem) from None
        if name != self.origin.format:
            raise self.pipeline.error(
                (*self.source.key, "format"), f"{self.origin.provider} is called '{name}'"
            )
