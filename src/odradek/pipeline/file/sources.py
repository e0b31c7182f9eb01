"""Reads the tables `[sources.NAME]`. A kind of source is known by the key that says where its records are."""

import re
from collections.abc import Callable, Mapping
from urllib.parse import quote, unquote

from odradek.pipeline.file.definition import (
    Database,
    DatabaseTable,
    DataSource,
    FileSource,
    JdbcTable,
    Origin,
    Source,
    StaticFile,
    TopicSource,
    Watermark,
)
from odradek.pipeline.file.tables import Table

DURATION = re.compile(r"\d+\s*(milliseconds?|ms|seconds?|s|minutes?|m|hours?|h|days?|d)")
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
PASSWORDS_IN_URL = (  # the second one has a slash in it
    re.compile(r"(?<=://)(?P<user>[^/@]*?):(?P<password>[^/]*)@"),
    re.compile(r"(?<=://)(?P<user>[^/@:?]*):(?P<password>[^@]*)@"),
)
WITHOUT_LOGIN = re.compile(r"https?://[^/@]*:\d+(/|$)")
PASSWORD_PARAMETER = re.compile(r"(?<=[?&])password=([^&]*)&?")
DATABASES = ("postgresql://", "sqlite:///")
FORMATS_WITH_SCHEMA = ("json", "csv", "avro")

READ_COMMITTED = {"isolation.level": "read_committed"}

Settings = Mapping[str, str]


def read_source(name: str, table: Table, kafka: Settings) -> Source:
    """`kafka` are the client settings of the whole file."""
    origin = _origin(table, kafka)
    has_format, is_static = bool(origin.formats), origin.is_static
    form = table.choice("format", "json", origin.formats) if has_format else ""
    has_schema = origin.may_have_schema
    has_options = form == "csv" or (has_format and table.has("path"))
    source = Source(
        name=name,
        key=table.key,
        origin=origin,
        format=form,
        schema=table.text("schema") if has_schema else "",
        schema_file=table.text("schema_file") if has_schema else "",
        framing=table.choice("framing", "none", ("none", "registry")) if form == "avro" else "none",
        registry=read_registry(table) if form == "avro" else "",
        subject=f"{(table.texts('topic') or table.texts('topics') or (name,))[0]}-value",
        tombstones="drop" if is_static else table.choice("tombstones", "drop", ("drop", "keep")),
        watermark=None if is_static else read_watermark(table),
        options=table.settings("options") if has_options else {},
    )
    _check_schema(source, table)
    return source


def _origin(table: Table, kafka: Settings) -> Origin:
    given = [name for name in ORIGINS if table.has(name)]
    if not given and table.has("format"):
        return _data_source(table)
    if len(given) != 1:
        found = f", not {' and '.join(given)}" if given else ""
        table.complain(
            "",
            f"give exactly one of topic, topics, pattern, path, database and jdbc, or a format of Spark's{found}",
        )
    return ORIGINS[given[-1] if given else "topic"](table, kafka)


def _topics(table: Table, kafka: Settings) -> TopicSource:
    start = table.text("start", "earliest")
    if start not in ("earliest", "latest") and not start.startswith("{") and not start.isdigit():
        table.complain("start", "this must be earliest, latest, a time in milliseconds, or offsets as JSON")
    archive = table.text("archive")
    if archive and start.isdigit():
        table.complain(
            "start", "an archive is not searched by time: start at earliest, and filter by _timestamp"
        )
    return TopicSource(
        topics=table.texts("topic") + table.texts("topics"),
        pattern=table.text("pattern"),
        start=start,
        max_rows_per_batch=table.number("max_rows_per_batch"),
        fail_on_data_loss=table.flag("fail_on_data_loss", True),
        headers=table.flag("headers"),
        kafka={**READ_COMMITTED, **kafka, **table.settings("kafka")},
        archive=archive,
        archive_storage=table.settings("archive_storage") if archive else {},
    )


def _files(table: Table, _: Settings) -> FileSource | StaticFile:
    if table.flag("static"):
        return StaticFile(table.text("path"))
    return FileSource(table.text("path"), table.number("max_files_per_batch"))


def _database(table: Table, _: Settings) -> JdbcTable:
    return read_jdbc(table, can_query=True)


def _without_jar(table: Table, _: Settings) -> DatabaseTable:
    name, query = table.text("table"), table.text("query")
    if bool(name) == bool(query):
        table.complain("database", "give the table or the query to read")
    return DatabaseTable(read_database(table), name, query)


def read_database(table: Table) -> Database:
    """A password in the URL, which came from a variable, is taken out of it."""
    url = table.text("database")
    if url and not url.startswith(DATABASES):
        table.complain("database", f"this must be a URL that begins with {' or '.join(DATABASES)}")
    url, password = without_password(url)
    return Database(url, table.text("password") or password)


def read_registry(table: Table) -> str:
    """A password that came from a variable as it is would end the host: of a/b, a would be taken for the port."""
    url = table.text("registry")
    if url and not url.startswith(("http://", "https://")):
        table.complain("registry", "this must be a URL that begins with http:// or https://")
    plain, password = ("", "") if WITHOUT_LOGIN.match(url) else without_password(url)
    return plain.replace("@", f":{quote(password, safe='')}@", 1) if password else url


def without_password(url: str) -> tuple[str, str]:
    """The URL, and the password that was before its host, or among its parameters."""
    password = ""
    if found := next((found for one in PASSWORDS_IN_URL if (found := one.search(url))), None):
        url, password = f"{url[: found.start()]}{found['user']}@{url[found.end() :]}", found["password"]
    if parameter := PASSWORD_PARAMETER.search(url):
        url, password = PASSWORD_PARAMETER.sub("", url).rstrip("?&"), password or parameter[1]
    return url, unquote(password)


def _data_source(table: Table) -> DataSource:
    form, provider = table.text("format"), table.text("provider")
    if provider and not FUNCTION.fullmatch(provider):
        table.complain("provider", f"'{provider}' is not of the form package.module:Class")
    return DataSource(form, provider, table.flag("static"), table.settings("options"))


ORIGINS: dict[str, Callable[[Table, Settings], Origin]] = {
    "topic": _topics,
    "topics": _topics,
    "pattern": _topics,
    "path": _files,
    "database": _without_jar,
    "jdbc": _database,
}


def read_jdbc(table: Table, *, can_query: bool) -> JdbcTable:
    url = table.text("jdbc")
    if url and not url.startswith("jdbc:"):
        table.complain("jdbc", "this must be a JDBC URL; it begins with jdbc:")
    name = table.text("table")
    query = table.text("query") if can_query else ""
    if bool(name) == bool(query):
        table.complain("jdbc", "give the table or the query to read" if can_query else "give the table")
    options = {key: table.text(key) for key in ("user", "password") if table.has(key)}
    return JdbcTable(url, name, query, table.text("driver"), options | table.settings("options"))


def _check_schema(source: Source, table: Table) -> None:
    if source.schema and source.schema_file:
        table.complain("schema_file", "give the schema here or in a file, not both")
    if not source.format:
        return
    if source.format not in FORMATS_WITH_SCHEMA:
        for name in ("schema", "schema_file"):
            if getattr(source, name) and source.format != "parquet":
                table.complain(name, f"the format {source.format} has no schema; leave it out")
        if source.format == "parquet" and not (source.is_static or source.schema or source.schema_file):
            table.complain("", "a stream of Parquet files needs its schema: give schema or schema_file")
    elif not source.schema and not source.schema_file and not source.registry:
        table.complain(
            "",
            f"the format {source.format} needs a schema: give schema or schema_file "
            "('odradek pipeline init --from-topic' infers one)",
        )
    if source.registry and source.framing != "registry":
        table.complain("registry", 'set framing = "registry" to read records that name their schema')


def read_watermark(table: Table) -> Watermark | None:
    if not table.has("watermark"):
        return None
    inner = table.inner("watermark")
    watermark = Watermark(inner.text("column"), read_duration(inner, "delay"))
    if not watermark.column or not watermark.delay:
        inner.complain("", 'give both: watermark = { column = "event_time", delay = "10 minutes" }')
    inner.finish()
    return watermark


def read_duration(table: Table, name: str) -> str:
    text = table.text(name)
    if text and not DURATION.fullmatch(text):
        table.complain(name, f"'{text}' is not a duration like '10 seconds' or '5 minutes'")
        return ""
    return text
