"""The table of a topic, by delta-rs: no other module of this package reads or writes Delta.

A table carries the topic's id from its creation on, so that a topic that was created again is noticed. Delta keeps
transaction versions for ever, unless `delta.setTransactionRetentionDuration` says otherwise: it is never set here.

**What is written is on disk before it is committed**, where the table is in a local directory: the file and its
directory are synced, and after the commit the log's.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from odradek.archive.failures import AnotherArchiver, ArchiveError, MissingArchive, TableGone
from odradek.archive.layout import ArchivedFile, NewFile, Snapshot, application, epoch_application, range_of
from odradek.archive.location import Location, advice, delta_rs
from odradek.archive.rows import SCHEMA
from odradek.delta import DeltaLook, plain

if TYPE_CHECKING:
    from deltalake import DeltaTable

TOPIC_ID = "odradek.topic.id"
LEAST_MS, MOST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999; Kafka knows others
KEPT_HOURS = 168  # how long a file that was replaced stays, for those who read an older version

Result = TypeVar("Result")


class Table:
    """The table of one topic, for one writer or any number of readers."""

    def __init__(self, location: Location, table: "DeltaTable") -> None:
        self.location, self._id = location, table.metadata().id
        self._looks = DeltaLook(location.uri, location.options, location.filesystem, table)

    @property
    def _table(self) -> "DeltaTable":
        return self._looks.table

    @classmethod
    def open(cls, location: Location, version: int | None = None) -> "Table":
        delta = delta_rs()
        try:
            found = delta.DeltaTable(location.uri, version=version, storage_options=location.options)
        except delta.exceptions.TableNotFoundError:
            raise MissingArchive(
                f"there is no archive of a topic at {location.uri}: 'odradek archive' writes one, and takes the "
                "directory above it"
            ) from None
        except (OSError, delta.exceptions.DeltaError) as error:
            raise _unreadable(location, error) from None
        return cls(location, found)

    @classmethod
    def create(cls, location: Location, topic: str, topic_id: UUID) -> "Table":
        """A new table, or the one that another process has created at the same moment."""
        delta = delta_rs()

        def create() -> Any:
            if location.local is not None:
                location.local.mkdir(parents=True, exist_ok=True)
            return delta.DeltaTable.create(
                location.uri,
                SCHEMA,
                mode="ignore",
                name=topic,
                description=f"archive of topic {topic}",
                configuration={TOPIC_ID: str(topic_id)},
                storage_options=location.options,
                raise_if_key_not_exists=False,
            )

        created = cls(location, _refused_by(location, create))
        if location.local is not None:
            for directory in (location.local, location.local.parent):
                _sync(directory)
        return created

    def snapshot(self) -> Snapshot:
        """The newest version: what the archive has."""
        delta = delta_rs()
        try:
            found = self._looks.again()
        except (OSError, delta.exceptions.DeltaError) as error:
            raise _unreadable(self.location, error) from None
        if found is None:
            raise TableGone(self._gone("deleted"))
        if found.metadata().id != self._id:
            raise TableGone(self._gone("deleted and created again"))
        return self.pinned()

    def _gone(self, what: str) -> str:
        return (
            f"the archive {self.location.uri} was {what} while it was in use: nothing was added to it since"
        )

    def pinned(self) -> Snapshot:
        """The version that was opened."""
        metadata = self._table.metadata()
        topic_id = metadata.configuration.get(TOPIC_ID)
        if topic_id is None or metadata.name is None:
            raise ArchiveError(
                f"the Delta table {self.location.uri} is not an archive of a topic: choose another path"
            )
        ends: dict[int, int] = {}
        while (end := self._table.transaction_version(application(UUID(topic_id), len(ends)))) is not None:
            ends[len(ends)] = end
        files = tuple(self._files())
        return Snapshot(
            self._table.version(),
            metadata.name,
            UUID(topic_id),
            ends,
            files,
            self._epochs(UUID(topic_id), ends),
        )

    def _epochs(self, topic_id: UUID, partitions: Iterable[int]) -> dict[int, int]:
        names = {one: epoch_application(topic_id, one) for one in partitions}
        found = {one: self._table.transaction_version(name) for one, name in names.items()}
        return {one: epoch for one, epoch in found.items() if epoch is not None}

    def _files(self) -> Iterable[ArchivedFile]:
        import pyarrow as pa

        for row in pa.table(self._table.get_add_actions(flatten=True)).to_pylist():
            yield _archived(row)

    def commit(
        self,
        topic_id: UUID,
        files: Sequence[NewFile],
        ends: Mapping[int, int],
        epochs: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Add files, and move the ends of partitions, at once. `AnotherArchiver` if somebody else moved one of them."""
        from deltalake import CommitProperties, Transaction

        now_ms = int(time.time() * 1000)
        names = {number: application(topic_id, number) for number in ends}
        before = {number: self._table.transaction_version(name) for number, name in names.items()}
        moves = [Transaction(names[number], end, now_ms) for number, end in ends.items()]
        moves += [
            Transaction(epoch_application(topic_id, number), epoch, now_ms)
            for number, epoch in epochs.items()
        ]
        added = [_added(one, now_ms, is_new=True) for one in files]
        try:
            self._commit(added, CommitProperties(app_transactions=moves))
        except ArchiveError as error:
            self._judge(error, before, ends, {one.path for one in files})

    def _judge(
        self, error: ArchiveError, before: Mapping[int, int | None], ends: Mapping[int, int], paths: set[str]
    ) -> None:
        """Find out whether a commit that failed was made: the response of one that succeeded may have been lost."""
        now = self.snapshot()
        if paths and paths <= {one.path for one in now.files}:
            return  # with a name of our own, they can be there only by our commit
        if not paths and ends.items() <= now.ends.items():
            return  # ours, or another's that says the same
        if any(now.ends.get(number) != version for number, version in before.items()):
            raise AnotherArchiver(
                f"another process archives into {self.location.uri}, and was first: this one has added nothing and "
                "stops. Run only one for each topic"
            ) from error
        raise error

    def replace(self, replaced: Sequence[ArchivedFile], file: NewFile | None) -> None:
        """Put one file in the place of several with the same rows."""
        from deltalake.transaction import RemoveAction

        now_ms = int(time.time() * 1000)
        removed = [RemoveAction(one.path, False, now_ms, one.size, {}) for one in replaced]
        added = [] if file is None else [_added(file, now_ms, is_new=False)]
        self._commit([*removed, *added], None)

    def _commit(self, actions: list[Any], properties: Any) -> None:
        """One entry of Delta's log. The table is as it was at the last `snapshot`: what others did since is a conflict,
        if it concerns the same partitions or files."""
        delta, seen = delta_rs(), self._table.version()
        if self.location.local is not None:
            _sync(self.location.local)
        try:
            self._table.create_write_transaction(actions, "append", SCHEMA, commit_properties=properties)
        except (OSError, delta.exceptions.DeltaError) as error:
            raise _refusal(self.location, error) from None
        with suppress(OSError, delta.exceptions.DeltaError):  # the next look says what is wrong
            self._table.update_incremental()  # our own commit is no conflict for the next one
        if self.location.local is not None:
            _sync_log(self.location.local / "_delta_log", range(seen + 1, self._table.version() + 1))

    def vacuum(self) -> int:
        """Delete files that no version of the last days has, and those that were written and never committed."""

        def vacuum() -> list[str]:
            return list(self._table.vacuum(retention_hours=KEPT_HOURS, dry_run=False, full=True))

        return len(_refused_by(self.location, vacuum))

    def filesystem(self) -> Any:
        return self.location.filesystem()


def _archived(row: Mapping[str, Any]) -> ArchivedFile:
    path = row["path"]
    range_ = range_of(path)
    if range_ is None:
        raise ArchiveError(
            f"the archive has a file that odradek has not written, {path}: another tool has rewritten the table. "
            "Restore an earlier version of it (Delta's RESTORE), and let 'odradek archive' merge its files"
        )
    return ArchivedFile(
        path,
        *range_,
        row["num_records"],
        row["size_bytes"],
        _ms(row.get("min.timestamp")),
        _ms(row.get("max.timestamp")),
    )


def _ms(value: datetime | None) -> int | None:
    return None if value is None else round(value.timestamp() * 1000)


def _added(file: NewFile, now_ms: int, *, is_new: bool) -> Any:
    from deltalake.transaction import AddAction

    times = (file.min_timestamp_ms, file.max_timestamp_ms)
    has_times = all(LEAST_MS <= one <= MOST_MS for one in times)

    def bounds(offset: int, timestamp_ms: int) -> dict[str, object]:
        time = {"timestamp": _iso(timestamp_ms)} if has_times else {}
        return {"offset": offset, "partition": file.range.partition, **time}

    statistics = {
        "numRecords": file.rows,
        "minValues": bounds(file.first_offset, times[0]),
        "maxValues": bounds(file.last_offset, times[1]),
        "nullCount": {"offset": 0, "partition": 0, "timestamp": 0},
    }
    return AddAction(file.path, file.size, {}, now_ms, is_new, json.dumps(statistics))


def _iso(timestamp_ms: int) -> str:
    moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC) + timedelta(milliseconds=timestamp_ms % 1000)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _refused_by(location: Location, work: Callable[[], Result]) -> Result:
    delta = delta_rs()
    try:
        return work()
    except (OSError, delta.exceptions.DeltaError) as error:
        raise _refusal(location, error) from None


def _unreadable(location: Location, error: Exception) -> ArchiveError:
    return ArchiveError(f"cannot read the archive {location.uri}: {plain(error)}")


def _refusal(location: Location, error: Exception) -> ArchiveError:
    return ArchiveError(f"cannot write the archive {location.uri}: {plain(error)}{advice(error)}")


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_log(log: Path, versions: Iterable[int]) -> None:
    for version in versions:
        entry = log / f"{version:020}.json"
        if entry.exists():
            with entry.open("rb") as file:
                os.fsync(file.fileno())
    _sync(log)
