"""An Iceberg table of pyiceberg, in a catalog.

The last batch of each query is a property of the table, `odradek.batch.ID`, set in the commit that adds its files;
summaries of snapshots would expire. pyiceberg repeats a commit that was refused on top of whatever it finds then, even
if that is the same batch. So its retries are off, by a property in our copy of the metadata alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ByteType, DataType, IntegerType, ShortType, StructField, StructType

from odradek.pipeline.kinds.lake.files import DataFile, Target, write_task
from odradek.pipeline.kinds.lake.order import Entry, Order
from odradek.pipeline.kinds.lake.schemas import widened
from odradek.pipeline.kinds.lake.storage import Access, iceberg_properties, warehouse_uri
from odradek.pipeline.kinds.lake.table import SMALL_FILES, Conflict, LakeTable, Unwritable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from odradek.pipeline.file.definition import Upsert

BATCH = "odradek.batch."
RETRIES = "commit.retry.num-retries"
SMALL_BYTES = 32 << 20
READ_BYTES = 64 << 20  # of files that are read together to become larger ones
NEW_TABLE = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
CATALOG = "odradek"  # in a catalog of SQLite several may share a file
UTC = "UTC"


def catalog_properties(catalog: Mapping[str, str], warehouse: str, access: Access) -> dict[str, str]:
    """Return the properties of the catalog that `[storage]` names, or of one in a file beside the warehouse, or in it
    if that is local.
    """
    properties = iceberg_properties(access)
    if warehouse:
        properties["warehouse"] = warehouse_uri(warehouse)
    return properties | dict(catalog)


class IcebergLakeTable(LakeTable):
    def __init__(
        self, name: str, properties: Mapping[str, str], access: Access, file: Path | None = None
    ) -> None:
        """`file` is the catalog's own, which need not exist."""
        self._name, self._properties, self._access, self._file = name, dict(properties), access, file
        self.place = ""
        self._catalog: Catalog | None = None
        self._table: Table | None = None
        self._written = SMALL_FILES  # files since small ones were counted

    # Looking

    def _connected(self) -> "Catalog":
        from pyiceberg.catalog import load_catalog

        if self._catalog is None:
            self._catalog = load_catalog(CATALOG, **self._properties)
        return self._catalog

    def look(self) -> str | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        if self._file is not None and not self._file.exists():
            return None
        try:
            self._table = self._connected().load_table(self._name)
        except (NoSuchTableError, NoSuchNamespaceError):
            self._table = None
            return None
        self._table.metadata.properties[RETRIES] = "0"
        self.place = f"{self._table.location()}/data"
        return str(self._table.metadata.table_uuid)

    @property
    def _open(self) -> "Table":
        assert self._table is not None, "it was looked at, and is there"
        return self._table

    def schema(self) -> StructType:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        try:
            return from_arrow_schema(schema_to_pyarrow(self._open.schema()))
        except Exception as error:
            raise Unwritable(f"the table has a column of a type that Spark lacks: {error}") from None

    def columns(self) -> list[Any]:
        return [(one.field_id, str(one.field_type)) for one in self._open.schema().fields]

    def partition_by(self) -> tuple[str, ...]:
        spec, schema = self._open.spec(), self._open.schema()
        other = [one.name for one in spec.fields if str(one.transform) != "identity"]
        if other:
            raise Unwritable(
                f"the table is partitioned by {', '.join(other)}, which is computed; this sink writes only partitions "
                "by columns as they are"
            )
        return tuple(str(schema.find_column_name(one.source_id)) for one in spec.fields)

    def entry(self, query: str) -> Entry | None:
        text = self._open.metadata.properties.get(BATCH + query)
        if text is None:
            return None
        batch, _, fingerprint = text.partition(" ")
        return Entry(int(batch), fingerprint or None)

    # Changing

    def create(self, schema: StructType, partition_by: Sequence[str]) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        catalog = self._connected()
        catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        try:
            transaction = catalog.create_table_transaction(
                self._name, to_arrow_schema(storable(schema), timezone=UTC), properties=NEW_TABLE
            )
            with transaction, transaction.update_spec() as spec:
                for name in partition_by:
                    spec.add_identity(name)
        except (TableAlreadyExistsError, CommitFailedException):
            return  # someone else was faster

    def add_columns(self, columns: Sequence[StructField]) -> None:
        with _conflicts(), self._open.update_schema() as update:
            update.union_by_name(to_arrow_schema(storable(StructType(list(columns))), timezone=UTC))

    def target(self) -> Target:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        arrow = schema_to_pyarrow(self._open.schema(), include_field_ids=True)
        return Target(self.place, self._access, arrow, self.partition_by(), keeps_partition_columns=True)

    def append(self, files: Sequence[DataFile], order: Order) -> None:
        paths = [f"{self.place}/{one.path}" for one in files]
        with _conflicts(), self._open.transaction() as transaction:
            transaction._apply((), self._as_it_was())
            transaction.set_properties({BATCH + order.query: f"{order.batch} {order.fingerprint}"})
            transaction.add_files(paths, check_duplicate_files=False)
        self._written += len(files)

    def merge(self, rows: "pa.Table", upsert: "Upsert", order: Order) -> None:
        raise NotImplementedError("the file's reader refuses upserts into Iceberg tables")

    def compact(self) -> int:
        if self._written < SMALL_FILES:
            return 0
        self._written = 0
        self.look()
        small = [
            task
            for task in self._open.scan().plan_files()
            if task.file.file_size_in_bytes < SMALL_BYTES and not task.delete_files
        ]
        if len(small) < SMALL_FILES or any(task.file.spec_id != self._open.spec().spec_id for task in small):
            return 0
        self._replace(small)
        return len(small)

    def _replace(self, small: list[Any]) -> None:
        """Replace small files by one commit, on top of the version that was looked at."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan, parquet_file_to_data_file

        table = self._open
        small.sort(key=lambda task: str(task.file.partition))
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        batches = (batch for part in parts_of(small) for batch in scan.to_record_batches(part))
        merged = [
            parquet_file_to_data_file(table.io, table.metadata, f"{self.place}/{one.path}")
            for one in write_task(batches, self.target())
        ]
        with _conflicts(), table.transaction() as transaction:
            transaction._apply((), self._as_it_was())
            with transaction.update_snapshot().overwrite() as change:
                for task in small:
                    change.delete_data_file(task.file)
                for file in merged:
                    change.append_data_file(file)

    def _as_it_was(self) -> tuple[Any, ...]:
        """Return what a commit requires, and pyiceberg does not ask for: files were written for these columns and
        partitions. In other ones their values would be lost in silence.
        """
        from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId

        metadata = self._open.metadata
        return (
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
        )


def parts_of(tasks: list[Any]) -> Iterator[list[Any]]:
    """Files that are read together: pyiceberg holds the rows of all of them in memory."""
    part: list[Any] = []
    for task in tasks:
        if part and sum(one.file.file_size_in_bytes for one in [*part, task]) > READ_BYTES:
            yield part
            part = []
        part.append(task)
    if part:
        yield part


class _conflicts:
    """Turns a refused commit of pyiceberg into a `Conflict`, and a time that it cannot take into `Unwritable`."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        from pyiceberg.exceptions import CommitFailedException

        if isinstance(error, CommitFailedException):
            raise Conflict(str(error)) from None
        if isinstance(error, OverflowError):
            raise Unwritable(
                "a date or time of these rows is before the year 1 or after 9999, which pyiceberg cannot write: add a "
                "requirement to a transform that sets such rows aside"
            ) from None


def storable(schema: StructType) -> StructType:
    """Iceberg has no integers of 8 and 16 bits."""

    def stored(kind: DataType) -> DataType:
        return IntegerType() if isinstance(kind, (ByteType, ShortType)) else kind

    return widened(schema, stored)
