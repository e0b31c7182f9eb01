"""From a TOML file to a `Pipeline`, and all problems of the file, reported together.

A stage may read any other stage of the file, in whichever order they are listed.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.pipeline import document as documents
from odradek.pipeline.definition import (
    BOOTSTRAP,
    ConsoleSink,
    DeadLetters,
    FileSink,
    FileSource,
    JdbcSink,
    JdbcTable,
    Pipeline,
    Sink,
    Source,
    TableSink,
    TestCase,
    TopicDeclaration,
    TopicSink,
    TopicSource,
    Transform,
    Watermark,
    fingerprint,
)
from odradek.pipeline.document import Document, Key
from odradek.pipeline.errors import PipelineError, PipelineErrors
from odradek.pipeline.tables import Table
from odradek.pipeline.variables import SECRETS, substitute

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
PIPELINE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
DURATION = re.compile(r"\d+\s*(milliseconds?|ms|seconds?|s|minutes?|m|hours?|h|days?|d)")
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

TOPIC_FORMATS = ("json", "csv", "text", "raw", "avro")
FILE_FORMATS = ("json", "csv", "text", "parquet")
SINK_FILE_FORMATS = ("parquet", "json", "csv")
TABLE_FORMATS = ("delta", "iceberg")
VALUE_FORMATS = ("json", "csv", "raw")
FORMATS_WITH_SCHEMA = ("json", "csv", "avro")
DEFAULT_BOOTSTRAP = "localhost:9092"


def load(path: Path, environ: Mapping[str, str] | None = None) -> Pipeline:
    """Read a file; `PipelineErrors` has all its problems."""
    raw = documents.read(path)
    document = substitute(raw, os.environ if environ is None else environ)
    return _Reader(document).pipeline()


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[PipelineError] = []
        self.kafka: dict[str, str] = {}

    def pipeline(self) -> Pipeline:
        top = self._table((), self.document.values)
        top.has(SECRETS)
        self.kafka = {BOOTSTRAP: DEFAULT_BOOTSTRAP} | top.settings("kafka")
        about = self._table(("pipeline",), top.mapping("pipeline"))
        name = about.text("name", self.document.path.stem)
        if not PIPELINE_NAME.fullmatch(name):
            about.complain("name", f"'{name}' is not a name: use letters, digits, '.', '_' and '-'")
        pipeline = Pipeline(
            name=name,
            version=about.text("version", fingerprint(self.document.text)),
            document=self.document,
            checkpoint=about.text("checkpoint", "checkpoints"),
            trigger=self._duration(about, "trigger"),
            spark=about.settings("spark"),
            python_path=about.texts("python_path"),
            sources=self._named(top, "sources", self._source),
            transforms=self._named(top, "transforms", self._transform),
            sinks=self._named(top, "sinks", self._sink),
            dead_letters=self._dead_letters(top),
            tests=self._tests(top),
        )
        about.finish()
        top.finish()
        self._check_names(pipeline)
        if self.problems:
            raise PipelineErrors(self.problems)
        return pipeline

    def _table(self, key: Key, values: Any) -> Table:
        return Table(self.document, key, values, self.problems)

    def _named(self, top: Table, kind: str, build: Any) -> dict[str, Any]:
        found = {}
        for name, values in top.mapping(kind).items():
            table = self._table((kind, name), values)
            if not NAME.fullmatch(name):
                table.complain("", f"'{name}' is not a name: use letters, digits and '_'; it is used in SQL")
            found[name] = build(name, table)
            table.finish()
        return found

    # Sources

    def _source(self, name: str, table: Table) -> Source:
        origin = self._origin(table)
        formats = TOPIC_FORMATS if isinstance(origin, TopicSource) else FILE_FORMATS
        static = isinstance(origin, JdbcTable)
        form = "" if static else table.choice("format", "json", formats)
        source = Source(
            name=name,
            key=table.key,
            origin=origin,
            format=form,
            schema="" if static else table.text("schema"),
            schema_file="" if static else table.text("schema_file"),
            framing=table.choice("framing", "none", ("none", "registry")) if form == "avro" else "none",
            registry=table.text("registry") if form == "avro" else "",
            tombstones="drop" if static else table.choice("tombstones", "drop", ("drop", "keep")),
            watermark=None if static else self._watermark(table),
            options=table.settings("options") if isinstance(origin, FileSource) or form == "csv" else {},
        )
        self._check_schema(source, table)
        return source

    def _origin(self, table: Table) -> TopicSource | FileSource | JdbcTable:
        given = [name for name in ("topic", "topics", "pattern", "path", "jdbc") if table.has(name)]
        if len(given) != 1:
            found = f", not {' and '.join(given)}" if given else ""
            table.complain("", f"give exactly one of topic, topics, pattern, path and jdbc{found}")
        if "path" in given:
            return FileSource(table.text("path"), table.number("max_files_per_batch"))
        if "jdbc" in given:
            return self._jdbc(table, can_query=True)
        start = table.text("start", "earliest")
        if start not in ("earliest", "latest") and not start.startswith("{") and not start.isdigit():
            table.complain(
                "start", "this must be earliest, latest, a time in milliseconds, or offsets as JSON"
            )
        return TopicSource(
            topics=table.texts("topic") + table.texts("topics"),
            pattern=table.text("pattern"),
            start=start,
            max_rows_per_batch=table.number("max_rows_per_batch"),
            fail_on_data_loss=table.flag("fail_on_data_loss", True),
            headers=table.flag("headers"),
            kafka=self.kafka | table.settings("kafka"),
        )

    def _jdbc(self, table: Table, *, can_query: bool) -> JdbcTable:
        url = table.text("jdbc")
        if url and not url.startswith("jdbc:"):
            table.complain("jdbc", "this must be a JDBC URL; it begins with jdbc:")
        name = table.text("table")
        query = table.text("query") if can_query else ""
        if bool(name) == bool(query):
            table.complain("jdbc", "give the table or the query to read" if can_query else "give the table")
        options = {key: table.text(key) for key in ("user", "password") if table.has(key)}
        return JdbcTable(url, name, query, table.text("driver"), options | table.settings("options"))

    def _check_schema(self, source: Source, table: Table) -> None:
        if source.schema and source.schema_file:
            table.complain("schema_file", "give the schema here or in a file, not both")
        if source.format not in FORMATS_WITH_SCHEMA:
            for name in ("schema", "schema_file"):
                if getattr(source, name) and source.format != "parquet":
                    table.complain(name, f"the format {source.format} has no schema; leave it out")
            if source.format == "parquet" and not (source.schema or source.schema_file):
                table.complain("", "a stream of Parquet files needs its schema: give schema or schema_file")
        elif not source.schema and not source.schema_file and not source.registry:
            table.complain(
                "",
                f"the format {source.format} needs a schema: give schema or schema_file "
                "('odradek pipeline init --from-topic' infers one)",
            )
        if source.registry and source.framing != "registry":
            table.complain("registry", 'set framing = "registry" to read records that name their schema')

    def _watermark(self, table: Table) -> Watermark | None:
        if not table.has("watermark"):
            return None
        inner = self._table((*table.key, "watermark"), table.values["watermark"])
        watermark = Watermark(inner.text("column"), self._duration(inner, "delay"))
        if not watermark.column or not watermark.delay:
            inner.complain("", 'give both: watermark = { column = "event_time", delay = "10 minutes" }')
        inner.finish()
        return watermark

    def _duration(self, table: Table, name: str) -> str:
        text = table.text(name)
        if text and not DURATION.fullmatch(text):
            table.complain(name, f"'{text}' is not a duration like '10 seconds' or '5 minutes'")
            return ""
        return text

    # Transforms

    def _transform(self, name: str, table: Table) -> Transform:
        given = [one for one in ("sql", "sql_file", "function") if table.has(one)]
        if len(given) != 1:
            table.complain("", "give exactly one of sql, sql_file and function")
        function = table.text("function")
        if function and not FUNCTION.fullmatch(function):
            table.complain("function", f"'{function}' is not of the form package.module:function")
        inputs = table.texts("inputs") if function else ()
        if function and not inputs:
            table.complain("", 'name what the function reads: inputs = ["orders"]')
        require = {}
        for reason, condition in table.mapping("require").items():
            if isinstance(condition, str) and condition:
                require[reason] = condition
            else:
                table.complain("require", f"'{reason}' must be a condition in SQL")
        return Transform(
            name=name,
            key=table.key,
            sql=table.text("sql"),
            sql_file=table.text("sql_file"),
            function=function,
            inputs=inputs,
            require=require,
            watermark=self._watermark(table),
        )

    # Sinks

    def _sink(self, name: str, table: Table) -> Sink:
        given = [one for one in ("topic", "path", "table", "jdbc", "console") if table.has(one)]
        if "jdbc" in given and "table" in given:
            given.remove("table")
        if len(given) != 1:
            found = f", not {' and '.join(given)}" if given else ""
            table.complain("", f"give exactly one of topic, path, table, jdbc and console{found}")
        source = table.text("from")
        if not source:
            table.complain("", 'name what is written: from = "orders"')
        kind = given[0] if given else "console"
        target: TopicSink | FileSink | TableSink | JdbcSink | ConsoleSink
        modes: tuple[str, ...] = ("append",)
        if kind == "topic":
            modes = ("append", "update")
            target = TopicSink(
                declaration=self._declaration(table),
                format=table.choice("format", "json", VALUE_FORMATS),
                row_key=table.texts("key"),
                delete_when=table.text("delete_when"),
            )
        elif kind == "path":
            form = table.choice("format", "parquet", SINK_FILE_FORMATS + TABLE_FORMATS)
            build = FileSink if form in SINK_FILE_FORMATS else TableSink
            target = build(table.text("path"), form, table.texts("partition_by"), table.settings("options"))
        elif kind == "table":
            target = TableSink(
                table.text("table"),
                table.choice("format", "iceberg", TABLE_FORMATS),
                table.texts("partition_by"),
                table.settings("options"),
            )
        elif kind == "jdbc":
            modes = ("append", "update")
            target = JdbcSink(self._jdbc(table, can_query=False))
        else:
            table.flag("console")
            modes = ("append", "update")
            target = ConsoleSink(table.number("rows", 20) or 20)
        mode = table.choice("mode", "append", modes)
        if mode == "update" and isinstance(target, TopicSink) and not target.row_key:
            table.complain("mode", 'updates are upserts by key: name the columns, key = ["id"]')
        if isinstance(target, TopicSink) and target.delete_when and not target.row_key:
            table.complain("delete_when", 'a tombstone needs a key: name the columns, key = ["id"]')
        return Sink(name, table.key, source, mode, table.flag("bounded_keys"), target)

    def _declaration(self, table: Table) -> TopicDeclaration:
        declaration = TopicDeclaration(
            topic=table.text("topic"),
            partitions=table.number("partitions"),
            replication_factor=table.number("replication_factor"),
            config=table.settings("config"),
            kafka=self.kafka | table.settings("kafka"),
        )
        if declaration.partitions is None and (declaration.config or declaration.replication_factor):
            table.complain(
                "", "config and replication_factor are for a topic that is created: give partitions"
            )
        return declaration

    # Dead letters and tests

    def _dead_letters(self, top: Table) -> DeadLetters | None:
        if not top.has("dead_letters"):
            return None
        table = self._table(("dead_letters",), top.values["dead_letters"])
        if table.has("topic") == table.has("path"):
            table.complain("", "give a topic or a path for them")
        letters = DeadLetters(
            topic=self._declaration(table) if table.has("topic") else None,
            path=table.text("path"),
            limit=table.fraction("limit", 0.5),
            limit_rows=table.number("limit_rows", 1000) or 1000,
        )
        table.finish()
        return letters

    def _tests(self, top: Table) -> tuple[TestCase, ...]:
        if not top.has("tests"):
            return ()
        return read_tests(self.document, top.values["tests"], self.problems)

    # Names

    def _check_names(self, pipeline: Pipeline) -> None:
        kinds = (pipeline.sources, pipeline.transforms, pipeline.sinks)
        if not pipeline.sources:
            self.problems.append(self.document.error((), "there is no source: add a table [sources.NAME]"))
        if not pipeline.sinks:
            self.problems.append(self.document.error((), "there is no sink: add a table [sinks.NAME]"))
        for name in pipeline.transforms:
            if name in pipeline.sources:
                problem = f"there is also a source named '{name}'; SQL could not tell them apart"
                self.problems.append(self.document.error(("transforms", name), problem))
        readable = [*pipeline.sources, *pipeline.transforms]
        for key, name in [
            *((sink.key, sink.input) for sink in pipeline.sinks.values()),
            *((one.key, name) for one in pipeline.transforms.values() for name in one.inputs),
        ]:
            if name and name not in readable:
                problem = f"there is no source or transform '{name}'; there are {', '.join(readable)}"
                field_name = "from" if key[0] == "sinks" else "inputs"
                self.problems.append(self.document.error((*key, field_name), problem))
        lower = [name.lower() for kind in kinds[:2] for name in kind]
        for name in {name for name in lower if lower.count(name) > 1}:
            if not set(pipeline.sources) & set(pipeline.transforms):
                problem = f"two stages are named '{name}' except for upper and lower case, which SQL ignores"
                self.problems.append(self.document.error((), problem))


def read_tests(document: Document, values: Any, problems: list[PipelineError]) -> tuple[TestCase, ...]:
    if not isinstance(values, list):
        problems.append(document.error(("tests",), "tests are written as [[tests]]"))
        return ()
    found = []
    for number, one in enumerate(values):
        table = Table(document, ("tests", number), one, problems)
        given, expect = table.mapping("given"), table.mapping("expect")
        if not expect:
            table.complain("", "a test needs rows to expect: expect.NAME = [{…}]")
        found.append(TestCase(table.text("name", f"test {number + 1}"), table.key, given, expect))
        table.finish()
    return tuple(found)
