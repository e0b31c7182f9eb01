"""The meaning of a name in a query: a topic, or its archive in union with what the topic has beyond it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from odradek.archive.failures import Final, MissingArchive
from odradek.archive.layout import ArchivedFile, Snapshot, total_rows
from odradek.archive.location import Location
from odradek.archive.planning import check_tail
from odradek.archive.rows import unreadable, vacuumed
from odradek.sql import columns
from odradek.sql.avro_values import AvroValues, newest_schema
from odradek.sql.columns import identifier
from odradek.sql.reading import SCHEMA, SMALL, TopicReader

SAMPLED = 5000  # values that decide on the columns, from each end


@dataclass(frozen=True)
class Settings:
    """`schemas`: columns of JSON by topic; `avro`: Avro schemas. Those of the empty name are for every topic. With a
    registry, topics that have a schema there are Avro, too. Times are in milliseconds.
    """

    archive: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
    from_ms: int | None = None
    to_ms: int | None = None
    schemas: Mapping[str, str] = field(default_factory=dict)
    avro: Mapping[str, str] = field(default_factory=dict)
    registry: str | None = None


class Tables:
    def __init__(
        self, connection: duckdb.DuckDBPyConnection, reader: TopicReader | None, settings: Settings
    ) -> None:
        """Without a reader only archives are read."""
        self._connection, self._reader, self._settings = connection, reader, settings
        self.archived = 0  # how many of the tables have an archive
        self._found: list[str] | None = None  # the topics of the cluster

    def add(self, name: str) -> bool:
        """Make a name known to the connection; False if there is neither a topic nor an archive of that name."""
        history = self._history(name)
        tail = self._tail(name, history)
        if history is None and tail is None:
            return False
        self.archived += history is not None
        parts, samples, rows = [], [], 0
        if tail is not None:
            parts.append(self._register(f"tail of {name}", tail))
            samples.append(_ends_of(tail))
            rows += tail.num_rows
        if history is not None:
            dataset = self._dataset(name, history)
            parts.append(self._register(f"archive of {name}", dataset))
            samples.append(dataset.head(SAMPLED, columns=["value"]))
            rows += total_rows(history.files)
        names = ", ".join(f'"{column}"' for column in SCHEMA.names)
        union = " UNION ALL ".join(f"SELECT {names} FROM {part}" for part in parts)
        raw = f"(SELECT * FROM ({union}) {self._within()})"
        sample = pa.concat_tables([one.select(["value"]) for one in samples])
        query = self._view(name, raw, sample, is_small=rows <= SMALL)
        self._connection.execute(f"CREATE TEMP VIEW {identifier(name)} AS {query}")
        return True

    def _register(self, name: str, rows: Any) -> str:
        self._connection.register(name, rows)
        return identifier(name)

    def _view(self, name: str, raw: str, sample: pa.Table, *, is_small: bool) -> str:
        values = self._avro_values(name)
        if values is not None:
            found = sample["value"].drop_null().to_pylist()
            return columns.view(
                raw, values.fields(self._connection, found, is_small=is_small), values.function
            )
        schemas = self._settings.schemas
        ddl = schemas.get(name, schemas.get(""))
        if ddl is not None:
            return columns.view(raw, columns.given(self._connection, ddl))
        sampled = self._register(f"sample of {name}", sample)
        return columns.view(raw, columns.inferred(self._connection, sampled))

    def _avro_values(self, name: str) -> AvroValues | None:
        """None if the values of the topic are no Avro, as far as we were told. What names the topic comes first."""
        settings = self._settings
        schema = settings.avro.get(name)
        if schema is None and name not in settings.schemas:
            schema = settings.avro.get("")
            if schema is None and settings.registry is not None:
                schema = newest_schema(settings.registry, name)
        return None if schema is None else AvroValues(name, schema, settings.registry)

    def _within(self) -> str:
        bounds = ((">=", self._settings.from_ms), ("<", self._settings.to_ms))
        found = [f'"timestamp" {sign} make_timestamptz({ms * 1000})' for sign, ms in bounds if ms is not None]
        return f"WHERE {' AND '.join(found)}" if found else ""

    # A topic

    def _tail(self, name: str, history: Snapshot | None) -> pa.Table | None:
        if self._reader is None or name not in self._topics():
            return None
        begun = {} if history is None else self._begun(name, history)
        ranges = self._reader.ranges(name, begun, self._settings.from_ms)
        return self._reader.read(name, ranges)

    def _topics(self) -> list[str]:
        if self._found is None:
            assert self._reader is not None
            self._found = self._reader.topics()
        return self._found

    def _begun(self, name: str, history: Snapshot) -> Mapping[int, int]:
        """Return where the tail begins. Refuses a gap, and another topic of that name."""
        assert self._reader is not None
        try:
            check_tail(self._reader.describe(name), history)
        except Final as error:
            raise Final(f"{error}: --archive-only queries what is archived") from None
        return history.ends

    # An archive

    def _location(self, name: str) -> Location:
        assert self._settings.archive is not None
        return Location.of(self._settings.archive, name, self._settings.storage)

    def _history(self, name: str) -> Snapshot | None:
        if self._settings.archive is None:
            return None
        from odradek.archive.tables import Table

        try:
            return Table.open(self._location(name)).snapshot()
        except MissingArchive:
            return None

    def _dataset(self, name: str, snapshot: Snapshot) -> Any:
        import pyarrow.dataset as ds

        paths = [one.path for one in snapshot.files if self._is_wanted(one)]
        if not paths:
            return ds.dataset(SCHEMA.empty_table())
        location = self._location(name)
        try:
            return ds.dataset(paths, filesystem=location.filesystem(), format="parquet")
        except (OSError, pa.ArrowInvalid) as error:
            path = next((one for one in paths if one in str(error)), paths[0])
            is_gone = isinstance(error, FileNotFoundError)
            raise vacuumed(location, path) if is_gone else unreadable(location, path, error) from None

    def _is_wanted(self, file: ArchivedFile) -> bool:
        from_ms, to_ms = self._settings.from_ms, self._settings.to_ms
        too_old = (
            from_ms is not None and file.max_timestamp_ms is not None and file.max_timestamp_ms < from_ms
        )
        too_new = to_ms is not None and file.min_timestamp_ms is not None and file.min_timestamp_ms >= to_ms
        return not (too_old or too_new)


def _ends_of(table: pa.Table) -> pa.Table:
    if table.num_rows <= 2 * SAMPLED:
        return table
    return pa.concat_tables([table.slice(0, SAMPLED), table.slice(table.num_rows - SAMPLED)])
