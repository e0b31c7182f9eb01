"""Loads the image at a start: the newest snapshot, and the records that the log has after it.

The log below a snapshot may be deleted, so a damaged snapshot is as bad as a damaged log: topics would be missing. If
the log reaches back to an older snapshot, or to its beginning, that is used instead; a warning is logged, and the
damaged file is kept under another name. Otherwise the broker does not start.

Records below the snapshot in use are not read, so damage to them does not matter.

Until there is a snapshot of the log, the one that the directory was formatted with names the first voters.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from odradek.errors import DamagedData, ProtocolError
from odradek.metadata.delta import ImageBuilder, MetadataCorrupt, MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    decode_record,
)
from odradek.metadata.snapshot import DamagedSnapshot, Snapshot
from odradek.metadata.snapshot_exchange import quorum_changes
from odradek.metadata.snapshot_files import FORMATTED, SnapshotFiles
from odradek.raft.messages import OffsetAndEpoch
from odradek.raft.store import METADATA_PARTITION, UNSYNCED_RUN_FILE, DamagedLog, QuorumStore
from odradek.raft.synced_offset import SYNCED_OFFSET_FILE
from odradek.raft.voters import Change
from odradek.records.batch import BatchHeader
from odradek.records.control import ControlType
from odradek.records.record import decode_batch
from odradek.storage.config import LogConfig
from odradek.storage.disk.checkpoints import LEADER_EPOCHS, RECOVERY_POINTS
from odradek.storage.disk.files import Files
from odradek.storage.log.log import Log
from odradek.storage.segments.segment import LOG_SUFFIX
from odradek.storage.segments.swap import is_log_file, offset_of

logger = logging.getLogger(__name__)


# The snapshot


class Base(NamedTuple):
    """The base from which the log is read: the newest intact snapshot, or an empty image."""

    snapshot: Snapshot
    files: SnapshotFiles
    damaged: Mapping[str, str]  # what is wrong with newer snapshots, by path

    @property
    def end_offset(self) -> int:
        """The log is needed from here on."""
        return self.snapshot.image.offset + 1

    @property
    def snapshot_id(self) -> OffsetAndEpoch | None:
        """The snapshot before the log; None if the log is read from its beginning (quorum_changes may be older)."""
        image = self.snapshot.image
        return OffsetAndEpoch(self.end_offset, image.epoch) if image.offset >= 0 else None

    @property
    def quorum_changes(self) -> tuple[Change, ...]:
        return quorum_changes(self.snapshot)

    @property
    def complaint(self) -> str:
        """A complaint about the damaged snapshots, as the beginning of an error message."""
        return "".join(f"{path} is damaged: {reason}. " for path, reason in self.damaged.items())

    @property
    def is_installing(self) -> bool:
        """A crash came while this snapshot, which the leader sent, replaced the log."""
        return self.files.installing is not None and self.files.installing.end_offset == self.end_offset

    def open_store(self, files: Files, directory: str, config: LogConfig, now_ms: int) -> QuorumStore:
        """Open the log, which must be intact from `end_offset` on."""
        if self.is_installing:
            _remove_log(files, self.files.directory)
        try:
            store = QuorumStore.open(files, directory, config, now_ms, self.end_offset)
        except DamagedLog as error:
            raise DamagedLog(f"{self.complaint}{error}") from error
        if self.is_installing:
            self.files.installed()
        self._check_end(store.log)
        return store

    def _check_end(self, log: Log) -> None:
        """Everything in a snapshot was synced in the log before the snapshot was written."""
        if log.end_offset < self.end_offset:
            raise DamagedLog(
                f"{log.directory} ends at offset {log.end_offset}, but a snapshot of it ends at offset "
                f"{self.end_offset}"
            )

    def set_damaged_aside(self) -> None:
        """Rename them: the log is complete without them."""
        for path, reason in self.damaged.items():
            logger.warning(
                "%s is damaged: %s. Without it the log was read from offset %d on, and nothing is missing. The file is "
                "kept as %s.damaged. Check the disk.",
                path,
                reason,
                self.end_offset,
                path,
            )
        self.files.set_aside(self.damaged)


def find_base(files: Files, directory: str, cluster_id: str) -> Base:
    """Read the newest intact snapshot, and check that the log in a data directory reaches back to it."""
    directory = f"{directory}/{METADATA_PARTITION}"
    snapshots = SnapshotFiles(files, directory)
    image = MetadataImage(cluster_id)
    damaged = dict.fromkeys(snapshots.unnamed, "its name does not say where it ends")
    base = Base(Snapshot(image), snapshots, damaged)
    for snapshot_id in reversed(snapshots.ids):
        path = snapshots.path(snapshot_id)
        try:
            base = base._replace(snapshot=snapshots.read(snapshot_id, cluster_id))
            break
        except DamagedSnapshot as error:
            damaged[path] = str(error)
        except ProtocolError as error:
            raise unknown_record(path, error) from error
    if base.end_offset == 0 and snapshots.is_formatted:
        base = base._replace(snapshot=Snapshot(image, _first_control(snapshots)))
    _check_log_reaches(files, directory, base)
    return base


def _remove_log(files: Files, directory: str) -> None:
    """Remove all of the log: the leader has what is not in the snapshot. What is known to be synced goes first, as when
    the log is truncated."""
    known = RECOVERY_POINTS, SYNCED_OFFSET_FILE
    names = sorted(entry.name for entry in files.list(directory))
    for name in sorted(names, key=lambda name: name not in known):
        if is_log_file(name) or name in (*known, UNSYNCED_RUN_FILE, LEADER_EPOCHS):
            files.remove(f"{directory}/{name}")
    files.sync_directory(directory)


def _first_control(snapshots: SnapshotFiles) -> tuple[tuple[ControlType, bytes], ...]:
    """The control records that the directory was formatted with. Its other records do not count: they are not in the
    log, so other nodes do not know them."""
    path = snapshots.path(FORMATTED)
    try:
        return snapshots.read(FORMATTED, "").control
    except DamagedSnapshot as error:
        raise DamagedData(
            f"{path} is damaged: {error}. It names the first voters of the quorum. Restore it from a backup, "
            "or, if this node has never run, remove its data directory and format it again."
        ) from error
    except ProtocolError as error:
        raise unknown_record(path, error) from error


def _check_log_reaches(files: Files, directory: str, base: Base) -> None:
    if base.is_installing:
        return
    names = [entry.name for entry in files.list(directory)] if files.exists(directory) else []
    first = min((offset_of(name) for name in names if name.endswith(LOG_SUFFIX)), default=None)
    if first is not None and first <= base.end_offset:
        return
    if first is None:
        if not base.files.ids and not base.damaged:
            return  # a new log, or one of which a crash left only the directory
        problem = f"{directory} has a snapshot, but no segment of the log"
    elif base.end_offset == 0:
        problem = (
            f"The log in {directory} begins at offset {first}, and there is no snapshot of what came before"
        )
    else:
        problem = (
            f"The log in {directory} begins at offset {first}, and the newest snapshot that can be read ends at "
            f"offset {base.end_offset}"
        )
    raise DamagedLog(f"{base.complaint}{problem}")


def unknown_record(path: str, error: ProtocolError) -> DamagedData:
    return DamagedData(
        f"{path} has data that this release cannot read: {error}. Nothing was changed. Start the release that wrote it."
    )


# The log


class CommittedReader:
    """Applies committed records to an image, from where the last read ended."""

    def __init__(self, store: QuorumStore) -> None:
        self._store = store
        self._transactions = _TransactionReader()

    @property
    def in_transaction(self) -> bool:
        """The last record that was read is in an open transaction, whose records are not in the image."""
        return self._transactions.is_open

    def start_over(self) -> None:
        """The next read follows a snapshot, which is never taken within a transaction."""
        self._transactions = _TransactionReader()

    def read(self, image: MetadataImage, end_offset: int) -> MetadataDelta:
        """Apply everything below this offset. Returns what that changed."""
        directory = self._store.log.directory
        builder = ImageBuilder(image)
        epoch, timestamp_ms = image.epoch, image.timestamp_ms
        try:
            for header, batch in self._store.read_from(image.offset + 1):
                if header.base_offset >= end_offset:
                    break
                epoch, timestamp_ms = header.leader_epoch, header.max_timestamp
                if not header.is_control:
                    self._replay(builder, header, batch, image.offset + 1)
        except ProtocolError as error:
            raise unknown_record(directory, error) from error
        except MetadataCorrupt as error:
            raise DamagedLog(f"The records of {directory} contradict each other: {error}") from error
        return builder.finish(end_offset - 1, epoch, timestamp_ms)[1]

    def _replay(
        self, builder: ImageBuilder, header: BatchHeader, batch: memoryview, start_offset: int
    ) -> None:
        for record in decode_batch(batch, header):
            assert record.value is not None, "a metadata record has a value"
            if record.offset >= start_offset:
                for item in self._transactions.read(decode_record(record.value)):
                    builder.replay(item)


class _TransactionReader:
    """Holds back the records of a transaction until it ends. Odradek writes no transactions, but Kafka does."""

    def __init__(self) -> None:
        self._held: list[MetadataRecord] | None = None

    @property
    def is_open(self) -> bool:
        return self._held is not None

    def read(self, record: MetadataRecord) -> list[MetadataRecord]:
        """Returns the records that take effect with this one."""
        if isinstance(record, BeginTransactionRecord):
            self._held = []
        elif isinstance(record, EndTransactionRecord):
            released, self._held = self._held or [], None
            return released
        elif isinstance(record, AbortTransactionRecord):
            self._held = None
        elif self._held is None:
            return [record]
        else:
            self._held.append(record)
        return []
