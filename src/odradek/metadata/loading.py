"""The image at a start: the newest snapshot, and what the log says since then.

The log below a snapshot may be cut, so a damaged snapshot is as bad as a damaged log: topics would be missing.
An older snapshot, or the whole log, takes its place if the log reaches back that far; that is said, and the
damaged file is kept under another name. Otherwise the broker does not start.

What lies below the snapshot that is used is not read: neither is it needed, nor would damage to it matter.

Before there is any snapshot of the log, the one that the directory was formatted with says who the first voters are.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from odradek.errors import DamagedData, ProtocolError
from odradek.metadata.delta import MetadataCorrupt, apply_records
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    decode_record,
)
from odradek.metadata.snapshot import DamagedSnapshot, Snapshot
from odradek.metadata.snapshot_files import FORMATTED, SnapshotFiles
from odradek.raft.control import LeaderChange, decode_control
from odradek.raft.messages import OffsetAndEpoch
from odradek.raft.store import ADVICE, METADATA_PARTITION, QuorumStore
from odradek.raft.voters import Change
from odradek.records.control import ControlType
from odradek.records.record import decode_batch
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import Files
from odradek.storage.log.log import Log
from odradek.storage.segments.segment import LOG_SUFFIX
from odradek.storage.segments.swap import offset_of

logger = logging.getLogger(__name__)


# The snapshot


class Base(NamedTuple):
    """What the log is read on top of: the newest snapshot that is not damaged, or an empty image."""

    snapshot: Snapshot
    files: SnapshotFiles
    damaged: Mapping[str, str]  # newer snapshots, by path, and what is wrong with each

    @property
    def end_offset(self) -> int:
        """The log is needed from here on."""
        return self.snapshot.image.offset + 1

    @property
    def snapshot_id(self) -> OffsetAndEpoch | None:
        """None: the log is read from its beginning, though there may be quorum_changes before that."""
        image = self.snapshot.image
        return OffsetAndEpoch(self.end_offset, image.epoch) if image.offset >= 0 else None

    @property
    def quorum_changes(self) -> tuple[Change, ...]:
        """What the snapshot says of the quorum."""
        records = (decode_control(kind, value) for kind, value in self.snapshot.control)
        return tuple(record for record in records if not isinstance(record, LeaderChange))

    @property
    def complaint(self) -> str:
        """What is wrong with the snapshots that cannot be used, as the beginning of a sentence or two."""
        return "".join(f"{path} is damaged: {reason}. " for path, reason in self.damaged.items())

    def open_store(self, files: Files, directory: str, config: LogConfig, now_ms: int) -> QuorumStore:
        """Open the log, which must be whole from here on."""
        try:
            store = QuorumStore.open(files, directory, config, now_ms, self.end_offset)
        except DamagedData as error:
            raise DamagedData(f"{self.complaint}{error}") from error
        self._check_end(store.log)
        return store

    def _check_end(self, log: Log) -> None:
        """All that a snapshot holds was in the log, on this disk, before it was written."""
        if log.end_offset < self.end_offset:
            raise DamagedData(
                f"{log.directory} ends at offset {log.end_offset}, but a snapshot of it ends at offset "
                f"{self.end_offset}. {ADVICE.format(directory=log.directory)}"
            )

    def set_damaged_aside(self) -> None:
        """The log was found to be whole without them."""
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
    """Read the newest snapshot that is whole, and make sure that the log in a data directory reaches back to it."""
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


def _first_control(snapshots: SnapshotFiles) -> tuple[tuple[ControlType, bytes], ...]:
    """What the directory was formatted with. Records of the image do not count: they are not in the log, and so not
    known to the other nodes."""
    path = snapshots.path(FORMATTED)
    try:
        return snapshots.read(FORMATTED, "").control
    except DamagedSnapshot as error:
        raise DamagedData(
            f"{path} is damaged: {error}. It says who the first voters of the quorum are. Restore it from a backup, "
            "or, if this node has never run, remove its data directory and format it again."
        ) from error
    except ProtocolError as error:
        raise unknown_record(path, error) from error


def _check_log_reaches(files: Files, directory: str, base: Base) -> None:
    names = [entry.name for entry in files.list(directory)] if files.exists(directory) else []
    first = min((offset_of(name) for name in names if name.endswith(LOG_SUFFIX)), default=None)
    if first is not None and first <= base.end_offset:
        return
    if first is None:
        if not base.files.ids and not base.damaged:
            return  # a new log, or one of which a crash left no more than its directory
        problem = f"{directory} has a snapshot, but no segment of the log"
    elif base.end_offset == 0:
        problem = (
            f"The log in {directory} begins at offset {first}, and there is no snapshot of what was before"
        )
    else:
        problem = (
            f"The log in {directory} begins at offset {first}, and the newest snapshot that can be read ends at "
            f"offset {base.end_offset}"
        )
    raise DamagedData(f"{base.complaint}{problem}. {ADVICE.format(directory=directory)}")


def unknown_record(path: str, error: ProtocolError) -> DamagedData:
    return DamagedData(
        f"{path} holds what this release cannot read: {error}. Nothing was changed. Start the release that wrote it."
    )


# The log


class Loaded(NamedTuple):
    image: MetadataImage
    in_transaction: bool  # the log ends in the middle of one, whose records are not in the image


def load_log(store: QuorumStore, image: MetadataImage, epoch: int, timestamp_ms: int) -> Loaded:
    """The image with all that the log says after it. Its last record was written at this time, in this epoch."""
    reader, log = _TransactionReader(), store.log
    try:
        items = _read_records(store, image.offset + 1)
        records = [record for item in items for record in reader.read(item)]
        image, _ = apply_records(image, records, log.end_offset - 1, epoch, timestamp_ms)
    except ProtocolError as error:
        raise unknown_record(log.directory, error) from error
    except MetadataCorrupt as error:
        raise DamagedData(
            f"The records of {log.directory} contradict each other: {error}. {ADVICE.format(directory=log.directory)}"
        ) from error
    return Loaded(image, reader.is_open)


def _read_records(store: QuorumStore, start_offset: int) -> Iterator[MetadataRecord]:
    for header, batch in store.read_from(start_offset):
        if not header.is_control:
            for record in decode_batch(batch, header):
                assert record.value is not None, "a metadata record has a value"
                if record.offset >= start_offset:
                    yield decode_record(record.value)


class _TransactionReader:
    """Holds back the records of a transaction until it ends. We write none, but Kafka does."""

    def __init__(self) -> None:
        self._held: list[MetadataRecord] | None = None

    @property
    def is_open(self) -> bool:
        return self._held is not None

    def read(self, record: MetadataRecord) -> list[MetadataRecord]:
        """What counts now that this record was read."""
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
