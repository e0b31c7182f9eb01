"""Reads the tables `[sinks.NAME]`. A kind of sink is known by the key that says where its rows go."""

import re
from collections.abc import Callable, Mapping

from odradek.pipeline.file.definition import (
    AvroOutput,
    ConsoleSink,
    DatabaseSink,
    DeltaSink,
    FileSink,
    FunctionSink,
    IcebergSink,
    JdbcSink,
    Sink,
    TableSink,
    Target,
    TopicDeclaration,
    TopicSink,
    Upsert,
)
from odradek.pipeline.file.sources import FUNCTION, read_database, read_jdbc, read_registry
from odradek.pipeline.file.tables import Table

FILE_FORMATS = ("parquet", "json", "csv")
TABLE_FORMATS = ("delta", "iceberg")
CONNECTORS = ("odradek", "spark")
TABLE_NAME = re.compile(r"\w+(\.\w+)+")
EXACTLY_ONCE, AT_LEAST_ONCE = DELIVERIES = ("exactly_once", "at_least_once")
VALUE_FORMATS = ("json", "csv", "raw", "avro")
TAKES = ("arrow", "dataframe")

Settings = Mapping[str, str]


def read_sink(name: str, table: Table, kafka: Settings) -> Sink:
    """`kafka` are the client settings of the whole file."""
    source = table.text("from")
    if not source:
        table.complain("", 'name what is written: from = "orders"')
    target = TARGETS[_kind(table)](table, kafka)
    mode = table.choice("mode", "append", target.modes)
    return Sink(name, table.key, source, mode, table.flag("bounded_keys"), table.flag("own_query"), target)


def _kind(table: Table) -> str:
    given = [one for one in TARGETS if table.has(one)]
    if "table" in given and ("jdbc" in given or "database" in given):
        given.remove("table")
    if len(given) != 1:
        found = f", not {' and '.join(given)}" if given else ""
        table.complain(
            "", f"give exactly one of topic, path, table, database, jdbc, function and console{found}"
        )
    return given[0] if given else "console"


def _topic(table: Table, kafka: Settings) -> TopicSink:
    form = table.choice("format", "json", VALUE_FORMATS)
    target = TopicSink(
        declaration=read_declaration(table, kafka),
        format=form,
        row_key=table.texts("key"),
        delete_when=table.text("delete_when"),
        avro=_avro(table) if form == "avro" else None,
    )
    if table.values.get("mode") == "update" and not target.row_key:
        table.complain("mode", 'updates are upserts by key: name the columns, key = ["id"]')
    if target.delete_when and not target.row_key:
        table.complain("delete_when", 'a tombstone needs a key: name the columns, key = ["id"]')
    return target


def _avro(table: Table) -> AvroOutput:
    framing = table.choice("framing", "registry" if table.has("registry") else "none", ("none", "registry"))
    found = AvroOutput(
        schema=table.text("schema"),
        schema_file=table.text("schema_file"),
        registry=read_registry(table),
        subject=table.text("subject", f"{table.text('topic')}-value"),
        registers=table.flag("register"),
    )
    if found.schema and found.schema_file:
        table.complain("schema_file", "give the schema here or in a file, not both")
    if (framing == "registry") != bool(found.registry):
        table.complain(
            "framing", 'values with framing = "registry" name their schema: give registry, its URL'
        )
    if found.registers and not found.registry:
        table.complain("register", "give registry, the URL of the registry that is to learn the schema")
    return found


def _path(table: Table, _: Settings) -> FileSink | DeltaSink | TableSink:
    form = table.choice("format", "parquet", FILE_FORMATS + TABLE_FORMATS)
    if form in TABLE_FORMATS and _is_sparks(table):
        return _sparks_table(table, table.text("path"), form)
    if form == "delta":
        return DeltaSink(
            table.text("path"), table.texts("partition_by"), _upsert(table), table.flag("compact", True)
        )
    if form == "iceberg":
        table.complain(
            "path", 'an Iceberg table is found by its catalog: give its name, table = "shop.orders"'
        )
    return FileSink(table.text("path"), form, table.texts("partition_by"), table.settings("options"))


def _table(table: Table, _: Settings) -> IcebergSink | TableSink:
    form, name = table.choice("format", "iceberg", TABLE_FORMATS), table.text("table")
    if _is_sparks(table):
        return _sparks_table(table, name, form)
    if form == "delta":
        table.complain("table", 'a Delta table is found by its place: give its path, path = "lake/orders"')
    elif not TABLE_NAME.fullmatch(name):
        table.complain("table", f"'{name}' is not a name in a catalog, such as shop.orders")
    return IcebergSink(name, table.texts("partition_by"), table.flag("compact", True))


def _is_sparks(table: Table) -> bool:
    """True if Spark's own connector is to write the table, by jars that the user provides."""
    if table.choice("connector", "odradek", CONNECTORS) == "spark":
        return True
    if table.has("options"):
        problem = 'these are options of Spark\'s own connector: set connector = "spark", or leave them out'
        table.complain("options", problem)
    return False


def _sparks_table(table: Table, target: str, form: str) -> TableSink:
    return TableSink(target, form, table.texts("partition_by"), table.settings("options"))


def _upsert(table: Table) -> Upsert | None:
    given = [name for name in ("key", "order_by", "delete_when") if table.has(name)]
    if table.values.get("mode") != "upsert":
        for name in given:
            table.complain(name, 'this is for mode = "upsert"')
        return None
    found = Upsert(table.texts("key"), table.texts("order_by"), table.text("delete_when"))
    if not found.key:
        table.complain("mode", 'an upsert replaces rows by their key: name its columns, key = ["id"]')
    return found


def _database(table: Table, _: Settings) -> JdbcSink:
    return JdbcSink(read_jdbc(table, can_query=False))


def _without_jar(table: Table, _: Settings) -> DatabaseSink:
    target = DatabaseSink(read_database(table), table.text("table"), _upsert(table))
    if not target.table:
        table.complain("database", "give the table")
    return target


def _function(table: Table, _: Settings) -> FunctionSink:
    function = table.text("function")
    if function and not FUNCTION.fullmatch(function):
        table.complain("function", f"'{function}' is not of the form package.module:function")
    return FunctionSink(function, table.choice("takes", "arrow", TAKES))


def _console(table: Table, _: Settings) -> ConsoleSink:
    table.flag("console")
    return ConsoleSink(table.number("rows", 20) or 20)


TARGETS: dict[str, Callable[[Table, Settings], Target]] = {
    "topic": _topic,
    "path": _path,
    "table": _table,
    "database": _without_jar,
    "jdbc": _database,
    "function": _function,
    "console": _console,
}


def read_declaration(table: Table, kafka: Settings, delivery: str = EXACTLY_ONCE) -> TopicDeclaration:
    """`delivery` is what holds if the table does not say it."""
    declaration = TopicDeclaration(
        topic=table.text("topic"),
        partitions=table.number("partitions"),
        replication_factor=table.number("replication_factor"),
        config=table.settings("config"),
        kafka={**kafka, **table.settings("kafka")},
        exactly_once=table.choice("delivery", delivery, DELIVERIES) == EXACTLY_ONCE,
    )
    if declaration.partitions is None and (declaration.config or declaration.replication_factor):
        table.complain("", "config and replication_factor are for a topic that is created: give partitions")
    return declaration
