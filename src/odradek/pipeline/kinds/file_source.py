"""A directory of files as a source: it reads files as they appear. Lines have the columns `value` and `file`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.file.definition import FileSource, Pipeline, Source
from odradek.pipeline.kinds.source import Offsets, SourceKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_RECORDS = "odradek.no_records."  # observed: lines that Spark counts as rows, but are blank or a header


class FileSourceKind(SourceKind):
    def __init__(self, pipeline: Pipeline, source: Source, origin: FileSource) -> None:
        super().__init__(pipeline, source)
        self.origin, self._is_parquet = origin, source.format == "parquet"
        self._path = pipeline.path(origin.path)

    @property
    def decodes(self) -> bool:  # type: ignore[override]
        return not self._is_parquet

    @property
    def metadata(self) -> Mapping[str, str]:  # type: ignore[override]
        return {"file": "_file"} if self.decodes else {}

    @property
    def directory(self) -> Path:
        return Path(self._path)

    @property
    def reads(self) -> str:
        return self.origin.path

    def stream(self, spark: "SparkSession", group: str, *, headers: bool, named: bool) -> DataFrame:
        reader = spark.readStream.format("parquet" if self._is_parquet else "text")
        if named:
            reader = reader.name(self.source.name)
        if self.origin.max_files_per_batch:
            reader = reader.option("maxFilesPerTrigger", self.origin.max_files_per_batch)
        if self._is_parquet:
            return reader.schema(self.schema()).options(**self.source.options).load(self._path)
        return self._lines(reader.load(self._path))

    def batch(
        self, spark: "SparkSession", *, starting: Offsets | None = None, ending: Offsets | None = None
    ) -> DataFrame:
        if self._is_parquet:
            return spark.read.schema(self.schema()).options(**self.source.options).parquet(self._path)
        return self._lines(spark.read.format("text").load(self._path))

    def _lines(self, text: DataFrame) -> DataFrame:
        source = self.source
        lines = text.select(
            F.col("value").cast("binary").alias("value"), F.col("_metadata.file_path").alias("file")
        )
        if source.format == "text":
            return lines
        content = F.trim(F.regexp_replace(F.col("value").cast("string"), r"\r$", ""))
        is_record = content != ""
        if source.format == "csv" and source.options.get("header") == "true":
            separator = source.options.get("sep", ",")
            header = separator.join(self.schema().fieldNames())
            is_record = is_record & (F.lower(content) != header.lower())
        counted = lines.observe(f"{NO_RECORDS}{source.name}", F.count_if(~is_record).alias("lines"))
        return counted.where(is_record)

    def given(self, spark: "SparkSession", values: Sequence[bytes]) -> DataFrame:
        return spark.createDataFrame([(value, "given") for value in values], "value binary, file string")

    def place(self) -> list[Column]:
        return [F.lit("a line of "), F.col("file")]
