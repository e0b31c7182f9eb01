"""Files as they are now: the static side of a join. Parquet knows its columns; JSON and CSV have the declared ones.

A row that does not follow the schema ends the run: there is no record to set aside.
"""

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from odradek.pipeline.file.definition import StaticFile
from odradek.pipeline.kinds.row_source import RowSourceKind, cause
from odradek.pipeline.kinds.source import Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {
    "csv": {"header": "true", "enforceSchema": "false", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
    "parquet": {},
}


class StaticFileKind(RowSourceKind[StaticFile]):
    @property
    def reads(self) -> str:
        return self.origin.path

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
