"""An Iceberg table as a sink, by pyiceberg. Its catalog is the one that `[storage]` names, or a file of SQLite."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

from odradek.pipeline.file.definition import IcebergSink, Pipeline, Sink
from odradek.pipeline.kinds.lake.iceberg import IcebergLakeTable, catalog_properties
from odradek.pipeline.kinds.lake.order import Order
from odradek.pipeline.kinds.lake.storage import is_local, local_or_uri
from odradek.pipeline.kinds.lake.table import LakeTable
from odradek.pipeline.kinds.lake_sink import LakeSinkKind, appended

WAREHOUSE = "warehouse"
CATALOG_FILE = "catalog.db"


class IcebergSinkKind(LakeSinkKind):
    format, module, where = "iceberg", "pyiceberg", "table"

    def __init__(self, pipeline: Pipeline, sink: Sink, target: IcebergSink) -> None:
        name = target.table
        super().__init__(pipeline, sink, target.partition_by, name=name, place=name, compact=target.compact)

    def _open(self) -> LakeTable:
        storage, path = self.pipeline.storage, self.pipeline.path
        if storage.catalog:
            warehouse = local_or_uri(path(storage.warehouse)) if storage.warehouse else ""
            properties = catalog_properties(storage.catalog, warehouse, storage.access)
            return IcebergLakeTable(self.place, properties, storage.access)
        warehouse = local_or_uri(path(storage.warehouse or WAREHOUSE))
        file = Path(warehouse if is_local(warehouse) else path(WAREHOUSE)) / CATALOG_FILE
        own = {"type": "sql", "uri": f"sqlite:///{file}"}
        properties = catalog_properties(own, warehouse, storage.access)
        return IcebergLakeTable(self.place, properties, storage.access, file=file)

    def _computed(self, frame: DataFrame) -> Callable[[Order], None] | None:
        return appended(self._table, self._aligned(frame))
