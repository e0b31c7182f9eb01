"""A pipeline as its file defines it. Plain values: nothing here uses a cluster, Spark or other files.

Names of sources, transforms and sinks are those of SQL views and of directories in the checkpoint, so they are
plain identifiers.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from odradek.pipeline.file.document import Document, Key
from odradek.pipeline.file.errors import PipelineError

BOOTSTRAP = "bootstrap.servers"
PROFILES = ("standard", "small")
ACTIONS = DEAD_LETTER, DROP, WARN, FAIL = ("dead_letter", "drop", "warn", "fail")  # of a requirement


@dataclass(frozen=True)
class Watermark:
    column: str
    delay: str


@dataclass(frozen=True)
class TopicSource:
    formats: ClassVar = ("json", "csv", "text", "raw", "avro")
    may_have_schema: ClassVar = True
    is_static: ClassVar = False

    topics: tuple[str, ...]
    pattern: str
    start: str
    max_rows_per_batch: int | None
    fail_on_data_loss: bool
    headers: bool
    kafka: Mapping[str, str] = field(repr=False)
    archive: str = ""  # where the history of the topics is
    archive_storage: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class FileSource:
    formats: ClassVar = ("json", "csv", "text", "parquet")
    may_have_schema: ClassVar = True
    is_static: ClassVar = False

    path: str
    max_files_per_batch: int | None


@dataclass(frozen=True)
class StaticFile:
    """Files as they are now, for the static side of a join."""

    formats: ClassVar = ("json", "csv", "parquet")
    may_have_schema: ClassVar = True
    is_static: ClassVar = True

    path: str


@dataclass(frozen=True)
class JdbcTable:
    """A table, or for a source a query, accessed through a JDBC driver whose jar the user provides."""

    formats: ClassVar = ()
    may_have_schema: ClassVar = False
    is_static: ClassVar = True

    url: str = field(repr=False)
    table: str
    query: str
    driver: str
    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class Database:
    """A database that needs no jar: PostgreSQL, or SQLite. The URL has no password."""

    url: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class DatabaseTable:
    """A table or a query of a database, as it is now."""

    formats: ClassVar = ()
    may_have_schema: ClassVar = True
    is_static: ClassVar = True

    database: Database
    table: str
    query: str


@dataclass(frozen=True)
class DataSource:
    """Whatever Spark reads by the name of a format; `provider`, a `module:class`, is one of the user's in Python."""

    formats: ClassVar = ()
    may_have_schema: ClassVar = True

    format: str
    provider: str
    is_static: bool
    options: Mapping[str, str] = field(repr=False)


Origin = TopicSource | FileSource | StaticFile | JdbcTable | DatabaseTable | DataSource


@dataclass(frozen=True)
class Source:
    """`schema` is DDL, or for Avro the schema's JSON; `schema_file` has it; `subject` names it in a registry."""

    name: str
    key: Key
    origin: Origin
    format: str
    schema: str
    schema_file: str
    framing: str
    registry: str
    subject: str
    tombstones: str
    watermark: Watermark | None
    options: Mapping[str, str]

    @property
    def is_static(self) -> bool:
        """True for a table as it is now, which is one side of a join, and not a stream."""
        return self.origin.is_static


@dataclass(frozen=True)
class Transform:
    """SQL over sources and other transforms, or `module:function` over `inputs`. `require`: reason → condition;
    `actions`: reason → one of `ACTIONS`, where the file says it. `returns`: the columns of a function that is called
    with Arrow batches, not with DataFrames."""

    name: str
    key: Key
    sql: str
    sql_file: str
    function: str
    inputs: tuple[str, ...]
    returns: str
    require: Mapping[str, str]
    actions: Mapping[str, str]
    watermark: Watermark | None


@dataclass(frozen=True)
class TopicDeclaration:
    """A topic to write to. Only with `partitions` may it be created."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    config: Mapping[str, str]
    kafka: Mapping[str, str] = field(repr=False)
    exactly_once: bool = True


@dataclass(frozen=True)
class AvroOutput:
    """Values in Avro, with a registry's framing if `registry` is given. Without a schema it is made of the columns,
    or is
    the registry's newest; `registers`: the registry learns it."""

    schema: str
    schema_file: str
    registry: str = field(repr=False)
    subject: str
    registers: bool


@dataclass(frozen=True)
class TopicSink:
    modes: ClassVar = ("append", "update")

    declaration: TopicDeclaration
    format: str
    row_key: tuple[str, ...]
    delete_when: str
    avro: "AvroOutput | None" = None


@dataclass(frozen=True)
class FileSink:
    modes: ClassVar = ("append",)

    path: str
    format: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str]


@dataclass(frozen=True)
class Upsert:
    """Rows replace those of their key, or delete them if they meet `delete_when`. Of several rows of a key the last one
    decides, by the columns `order_by` or, if that is empty, in the order of the records."""

    key: tuple[str, ...]
    order_by: tuple[str, ...]
    delete_when: str


@dataclass(frozen=True)
class DeltaSink:
    modes: ClassVar = ("append", "upsert")

    path: str
    partition_by: tuple[str, ...]
    upsert: Upsert | None
    compact: bool


@dataclass(frozen=True)
class IcebergSink:
    modes: ClassVar = ("append",)

    table: str
    partition_by: tuple[str, ...]
    compact: bool


@dataclass(frozen=True)
class TableSink:
    """Delta or Iceberg, by the user's jars: Spark's own streaming sink of that name."""

    modes: ClassVar = ("append",)

    target: str
    format: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str]


@dataclass(frozen=True)
class JdbcSink:
    modes: ClassVar = ("append", "update")

    target: JdbcTable


@dataclass(frozen=True)
class DatabaseSink:
    modes: ClassVar = ("append", "upsert")

    database: Database
    table: str
    upsert: Upsert | None


@dataclass(frozen=True)
class FunctionSink:
    """`module:function` is called with each batch, as an Arrow table or as a DataFrame."""

    modes: ClassVar = ("append", "update")

    function: str
    takes: str


@dataclass(frozen=True)
class ConsoleSink:
    modes: ClassVar = ("append", "update")

    rows: int


Target = (
    TopicSink
    | FileSink
    | DeltaSink
    | IcebergSink
    | TableSink
    | JdbcSink
    | DatabaseSink
    | FunctionSink
    | ConsoleSink
)


@dataclass(frozen=True)
class Sink:
    name: str
    key: Key
    input: str
    mode: str
    bounded_keys: bool  # the author says that there are only few groups in this sink's query
    own_query: bool  # the author wants it to share no query with other sinks
    target: Target


@dataclass(frozen=True)
class DeadLetters:
    """The place for rejected records, and which share of `limit_rows` rows may be rejected before the run ends."""

    topic: TopicDeclaration | None
    path: str
    limit: float
    limit_rows: int


@dataclass(frozen=True)
class Storage:
    """Access to object stores, and where Iceberg's tables are: `warehouse` has their files, `catalog` the properties of
    their catalog. Both may be empty."""

    access: Mapping[str, str] = field(default_factory=dict, repr=False)
    warehouse: str = ""
    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class TestCase:
    name: str
    key: Key
    given: Mapping[str, Any]
    expect: Mapping[str, Any]


@dataclass(frozen=True)
class Pipeline:
    name: str
    version: str
    document: Document
    checkpoint: str
    trigger: str
    profile: str  # a name for some of Spark's settings: one of PROFILES
    spark: Mapping[str, str]
    python_path: tuple[str, ...]
    sources: Mapping[str, Source]
    transforms: Mapping[str, Transform]
    sinks: Mapping[str, Sink]
    dead_letters: DeadLetters | None
    tests: tuple[TestCase, ...]
    storage: Storage = field(default_factory=Storage)

    @property
    def directory(self) -> Path:
        return self.document.path.parent

    @property
    def state_directory(self) -> Path:
        return self.directory / Path(self.checkpoint).expanduser() / self.name

    def actions_of(self, transform: Transform) -> dict[str, str]:
        """Return, for each requirement, what happens to a row that does not meet it."""
        unsaid = FAIL if self.dead_letters is None else DEAD_LETTER
        return {reason: transform.actions.get(reason, unsaid) for reason in transform.require}

    def error(self, key: Key, problem: str, line: int | None = None) -> PipelineError:
        return self.document.error(key, problem, line)

    def path(self, text: str) -> str:
        """A path as Spark takes it: relative ones are relative to the pipeline's file."""
        if "://" in text or text.startswith("file:"):
            return text
        return str((self.directory / Path(text).expanduser()).absolute())


def fingerprint(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
