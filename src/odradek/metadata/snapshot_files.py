"""The snapshots in the directory of the metadata log, by their names.

`.checkpoint.part`        being written, or left by a crash: removed when the directory is opened.
`.checkpoint.fetched`     the same, of one that is fetched from the leader.
`.checkpoint.installing`  complete and synced, and replacing the whole log; a start completes that.
`.checkpoint`             complete: synced before it got this name.
`.checkpoint.deleted`     an older one that is no longer needed: removed a while later.
`.checkpoint.damaged`     found damaged by a start that did not need it: kept for the operator.

The one at offset 0 is not a snapshot of the log: it was written when the directory was formatted, and names the first
voters.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from odradek.metadata.image import NO_TIMESTAMP, MetadataImage
from odradek.metadata.snapshot import SUFFIX, Snapshot, SnapshotId, parse_name, read_snapshot, read_timestamp
from odradek.records.batch import HEADER_SIZE
from odradek.storage.disk.deletions import Deletions
from odradek.storage.disk.files import File, Files

PART_SUFFIX = SUFFIX + ".part"
FETCHED_SUFFIX = SUFFIX + ".fetched"
INSTALLING_SUFFIX = SUFFIX + ".installing"
DELETED_SUFFIX = SUFFIX + ".deleted"
DAMAGED_ENDING = ".damaged"
FORMATTED = SnapshotId(0, 0)


class SnapshotFiles:
    """`ids`: the complete snapshots, oldest first. `unnamed`: files that end like snapshots, but have no valid id.
    `is_formatted`: the directory has the one that it was formatted with, which is not among `ids`."""

    def __init__(self, files: Files, directory: str) -> None:
        """Removes what a crash left unfinished."""
        self._files = files
        self.directory = directory
        self._sizes: dict[SnapshotId, int] = {}
        self._timestamps: dict[SnapshotId, int] = {}
        self.unnamed: list[str] = []
        self.installing: SnapshotId | None = None  # see `installed`
        self.is_formatted = False
        for entry in files.list(directory) if files.exists(directory) else ():
            if entry.name.endswith((PART_SUFFIX, FETCHED_SUFFIX, DELETED_SUFFIX)):
                files.remove(f"{directory}/{entry.name}")
            elif entry.name.endswith((SUFFIX, INSTALLING_SUFFIX)):
                snapshot_id = parse_name(entry.name.removesuffix(INSTALLING_SUFFIX.removeprefix(SUFFIX)))
                if entry.name.endswith(INSTALLING_SUFFIX):
                    self.installing = snapshot_id
                if snapshot_id == FORMATTED:
                    self.is_formatted = True
                elif snapshot_id is None:
                    self.unnamed.append(f"{directory}/{entry.name}")
                else:
                    self._sizes[snapshot_id] = entry.size
        self.ids = sorted(self._sizes)

    @property
    def end_offset(self) -> int:
        """The end offset of the newest snapshot; 0 if there is none."""
        return self.ids[-1].end_offset if self.ids else 0

    @property
    def size_bytes(self) -> int:
        return sum(self._sizes.values())

    def path(self, snapshot_id: SnapshotId) -> str:
        ending = INSTALLING_SUFFIX if snapshot_id == self.installing else SUFFIX
        return self._path(snapshot_id, ending)

    def _path(self, snapshot_id: SnapshotId, ending: str) -> str:
        return f"{self.directory}/{snapshot_id.file_name.removesuffix(SUFFIX)}{ending}"

    def read(self, snapshot_id: SnapshotId, cluster_id: str) -> Snapshot:
        return read_snapshot(self._files.read(self.path(snapshot_id)), snapshot_id, cluster_id)

    def size_of(self, snapshot_id: SnapshotId) -> int:
        return self._sizes[snapshot_id]

    def read_part(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes:
        file = self._files.file(self.path(snapshot_id))
        try:
            return bytes(file.read_at(position, min(max_bytes, self._sizes[snapshot_id] - position)))
        finally:
            file.close()

    def timestamp_ms(self, snapshot_id: SnapshotId) -> int:
        """Return when the last record in the snapshot was written."""
        if snapshot_id not in self._timestamps:
            self._timestamps[snapshot_id] = self._read_timestamp(self._files.file(self.path(snapshot_id)))
        return self._timestamps[snapshot_id]

    @staticmethod
    def _read_timestamp(file: File) -> int:
        """A file that was removed or emptied counts as infinitely old."""
        try:
            start = file.read_at(0, HEADER_SIZE)
        except FileNotFoundError:
            return NO_TIMESTAMP
        finally:
            file.close()
        return read_timestamp(start) if len(start) == HEADER_SIZE else NO_TIMESTAMP

    # Writing: `create_part`, write, sync, `complete`, sync `names`, `add`.

    def create_part(self, snapshot_id: SnapshotId) -> File:
        return self._files.create(self._part_path(snapshot_id))

    def remove_part(self, snapshot_id: SnapshotId) -> None:
        """Remove an unfinished snapshot; if that fails, the next start does it."""
        with suppress(OSError):
            self._files.remove(self._part_path(snapshot_id))

    def complete(self, snapshot_id: SnapshotId) -> None:
        """The file is written and synced: give it its name."""
        self._files.rename(self._part_path(snapshot_id), self.path(snapshot_id))

    def _part_path(self, snapshot_id: SnapshotId) -> str:
        return self._path(snapshot_id, PART_SUFFIX)

    def names(self) -> File:
        """The directory, which must be synced before a new name counts."""
        return self._files.to_sync(self.directory)

    def add(self, image: MetadataImage, snapshot_id: SnapshotId, size: int) -> None:
        """The snapshot's name is on disk."""
        self._sizes[snapshot_id] = size
        self._timestamps[snapshot_id] = image.timestamp_ms
        self.ids = sorted(self._sizes)

    # Fetching: `fetched`, write, sync, `begin_install`, empty the log, `installed`.

    def fetched(self, snapshot_id: SnapshotId) -> File:
        return self._files.create(self._path(snapshot_id, FETCHED_SUFFIX))

    def begin_install(self, snapshot_id: SnapshotId, size: int) -> None:
        """The snapshot is fetched and synced. From here on it counts, and the log does not."""
        self._files.rename(
            self._path(snapshot_id, FETCHED_SUFFIX), self._path(snapshot_id, INSTALLING_SUFFIX)
        )
        self._files.sync_directory(self.directory)
        self.installing = snapshot_id
        self._sizes[snapshot_id] = size
        self.ids = sorted(self._sizes)

    def installed(self) -> None:
        """The log on disk now begins where the snapshot ends."""
        assert self.installing is not None
        snapshot_id, self.installing = self.installing, None
        self._files.rename(self._path(snapshot_id, INSTALLING_SUFFIX), self.path(snapshot_id))
        self._files.sync_directory(self.directory)

    # Removing

    def retire_before(self, snapshot_id: SnapshotId, deletions: Deletions, due_ms: int) -> None:
        """Rename the older ones now, and remove them later."""
        for old in [old for old in self.ids if old < snapshot_id]:
            path = self._path(old, DELETED_SUFFIX)
            with suppress(FileNotFoundError):  # an operator may have removed it
                self._files.rename(self.path(old), path)
            self._forget(old)
            deletions.schedule(due_ms, partial(self._remove, path))

    def set_aside(self, paths: Iterable[str]) -> None:
        """Rename damaged snapshots: the log must never be deleted because of them."""
        for path in paths:
            self._files.rename(path, path + DAMAGED_ENDING)
            snapshot_id = parse_name(path.rpartition("/")[2])
            if snapshot_id is not None:
                self._forget(snapshot_id)

    def _forget(self, snapshot_id: SnapshotId) -> None:
        self.ids.remove(snapshot_id)
        del self._sizes[snapshot_id]
        self._timestamps.pop(snapshot_id, None)

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._files.remove(path)
