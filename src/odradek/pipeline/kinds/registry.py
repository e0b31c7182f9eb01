"""Finds the kind of a source or a sink by the dataclass that the file made of it."""

from collections.abc import Callable
from typing import Any

from odradek.pipeline.file.definition import (
    ConsoleSink,
    DatabaseSink,
    DatabaseTable,
    DataSource,
    DeltaSink,
    FileSink,
    FileSource,
    FunctionSink,
    IcebergSink,
    JdbcSink,
    JdbcTable,
    Pipeline,
    Sink,
    Source,
    StaticFile,
    TableSink,
    TopicSink,
    TopicSource,
)
from odradek.pipeline.kinds.console_sink import ConsoleSinkKind
from odradek.pipeline.kinds.data_source import DataSourceKind
from odradek.pipeline.kinds.database_sink import DatabaseSinkKind
from odradek.pipeline.kinds.database_source import DatabaseSourceKind
from odradek.pipeline.kinds.delta_sink import DeltaSinkKind
from odradek.pipeline.kinds.file_sink import FileSinkKind
from odradek.pipeline.kinds.file_source import FileSourceKind
from odradek.pipeline.kinds.function_sink import FunctionSinkKind
from odradek.pipeline.kinds.iceberg_sink import IcebergSinkKind
from odradek.pipeline.kinds.jdbc_sink import JdbcSinkKind
from odradek.pipeline.kinds.jdbc_source import JdbcSourceKind
from odradek.pipeline.kinds.sink import SinkKind
from odradek.pipeline.kinds.source import SourceKind
from odradek.pipeline.kinds.spark_table_sink import SparkTableSinkKind
from odradek.pipeline.kinds.static_file_source import StaticFileKind
from odradek.pipeline.kinds.topic_sink import TopicSinkKind
from odradek.pipeline.kinds.topic_source import TopicSourceKind

SOURCES: dict[type, Callable[[Pipeline, Source, Any], SourceKind]] = {
    TopicSource: TopicSourceKind,
    FileSource: FileSourceKind,
    StaticFile: StaticFileKind,
    JdbcTable: JdbcSourceKind,
    DatabaseTable: DatabaseSourceKind,
    DataSource: DataSourceKind,
}
SINKS: dict[type, Callable[[Pipeline, Sink, Any], SinkKind]] = {
    TopicSink: TopicSinkKind,
    FileSink: FileSinkKind,
    DeltaSink: DeltaSinkKind,
    IcebergSink: IcebergSinkKind,
    TableSink: SparkTableSinkKind,
    JdbcSink: JdbcSinkKind,
    DatabaseSink: DatabaseSinkKind,
    FunctionSink: FunctionSinkKind,
    ConsoleSink: ConsoleSinkKind,
}


def source_kind(pipeline: Pipeline, source: Source) -> SourceKind:
    return SOURCES[type(source.origin)](pipeline, source, source.origin)


def sink_kind(pipeline: Pipeline, sink: Sink) -> SinkKind:
    return SINKS[type(sink.target)](pipeline, sink, sink.target)


def source_kinds(pipeline: Pipeline) -> dict[str, SourceKind]:
    return {name: source_kind(pipeline, source) for name, source in pipeline.sources.items()}


def sink_kinds(pipeline: Pipeline) -> dict[str, SinkKind]:
    return {name: sink_kind(pipeline, sink) for name, sink in pipeline.sinks.items()}
