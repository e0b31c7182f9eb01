"""Files as they are now: the static side of a join. Parquet knows its columns; JSON and CSV have the declared ones.

A row that does not follow the schema ends the run: there is no record to set aside.
"""

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from odradek.pipeline.file.definition import Pipeline, Source, StaticFile
from odradek.pipeline.kinds.jdbc_source import cause
from odradek.pipeline.kinds.source import Offsets, SourceKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {
    "csv": {"header": "true", "enforceSchema": "false", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
    "parquet": {},
}


class StaticFileKind(SourceKind):
    decodes = False

    def __init__(self, pipeline: Pipeline, source: Source, origin: StaticFile) -> None:
        super().__init__(pipeline, source)
        self.origin = origin

    @property
    def reads(self) -> str:
        return self.origin.path

    def schema(self) -> StructType:
        declared = self.source.schema or self.source.schema_file
        return super().schema() if declared else StructType()

    def stream(self, spark: "SparkSession", group: str, *, headers: bool, named: bool) -> DataFrame:
        return self.batch(spark)

    def batch(
        self, spark: "SparkSession", *, starting: Offsets | None = None, ending: Offsets | None = None
    ) -> DataFrame:
        form, schema = self.source.format, self.schema()
        reader = spark.read.format(form).options(**{**OPTIONS[form], **self.source.options})
        if schema.fields:
            reader = reader.schema(schema)
        try:
            return reader.load(self.pipeline.path(self.origin.path))
        except Exception as error:
            problem = f"the files cannot be read: {cause(error)}"
            raise self.pipeline.document.unreachable((*self.source.key, "path"), problem) from None
