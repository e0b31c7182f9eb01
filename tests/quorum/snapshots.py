"""Snapshots for simulated replicas: a dictionary instead of an image, in files as the product names them.

This stands in for what `metadata/` keeps on disk, and does its steps in the same order: a part is synced before it gets
its name, the name is synced before anybody is told, and only then does the log lose its beginning. `Keeper` is all that
the simulation knows of it, so the product's own may take its place.
"""

import pickle
import zlib
from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.raft.messages import OffsetAndEpoch
from odradek.raft.store import METADATA_PARTITION
from odradek.raft.voters import KRaftVersion, VoterHistory
from odradek.storage.log.retention import delete_old_segments

SUFFIX = ".checkpoint"


class Content(NamedTuple):
    """The contents of a snapshot: the image, and who votes."""

    image: dict
    changes: tuple = ()


class Keeper:
    """`Snapshots` for a driver, and the image of a replica: `image` holds what is committed below `applied`."""

    def __init__(self, files, directory, static_voters):
        self._files = files
        self._directory = f"{directory}/{METADATA_PARTITION}"
        self._static = static_voters
        self._parts = {}
        self.store = None  # once it is open
        self.image, self.applied = {}, 0
        self.changes = ()
        self.id = None
        self.installs = 0
        for entry in files.list(self._directory) if files.exists(self._directory) else ():
            if entry.name.endswith(SUFFIX + ".part"):
                files.remove(f"{self._directory}/{entry.name}")
        if self.ids:
            self._use(self.ids[-1])

    @property
    def ids(self):
        """The complete ones, oldest first."""
        if not self._files.exists(self._directory):
            return []
        names = [entry.name for entry in self._files.list(self._directory)]
        return sorted(
            OffsetAndEpoch(*map(int, name.removesuffix(SUFFIX).split("-")))
            for name in names
            if name.endswith(SUFFIX)
        )

    def _use(self, snapshot_id):
        content = self._content(self._files.read(self._path(snapshot_id)))
        self.image, self.changes = dict(content.image), content.changes
        self.applied, self.id = snapshot_id.offset, snapshot_id

    @staticmethod
    def _content(data):
        assert zlib.crc32(data[4:]) == int.from_bytes(data[:4]), "a snapshot is whole when it has its name"
        return pickle.loads(data[4:])

    def _path(self, snapshot_id):
        return f"{self._directory}/{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"

    def apply(self, item):
        """A batch that is committed, the next one."""
        assert item.batch.base_offset == self.applied
        self.image.update(item.pairs)
        self.applied = item.batch.end_offset

    # Of this replica's own

    def take(self, driver, epoch, now_ms):
        """Write a snapshot of what is applied. False: not all of that is known to be on disk."""
        snapshot_id = OffsetAndEpoch(self.applied, epoch)
        voters, level = driver.raft.log.voters.before(self.applied)
        data = pickle.dumps(Content(self.image, (KRaftVersion(level), voters)))
        self.store.log.roll(now_ms)
        if self.store.synced_offset < self.applied:
            return False
        self._write_part(snapshot_id, 0, zlib.crc32(data).to_bytes(4) + data)
        self.store.checkpoint()
        self._complete(snapshot_id)
        self.id = snapshot_id
        driver.log_start_moved(self.store.log.log_start_offset, snapshot_id, now_ms)
        return True

    def forget_before(self, driver, snapshot_id, now_ms):
        """Let the log start at the end of a snapshot, and remove the older ones."""
        self.store.log.delete_records_before(snapshot_id.offset)
        driver.log_start_moved(self.store.log.log_start_offset, self.id, now_ms)
        delete_old_segments(self.store.log, now_ms, driver.high_watermark)
        for old in self.ids:
            if old < snapshot_id:
                self._files.remove(self._path(old))

    def _write_part(self, snapshot_id, position, data):
        path = self._path(snapshot_id) + ".part"
        file = self._files.file(path) if position else self._files.create(path)
        try:
            file.write_at(position, data)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            file.close()

    def _complete(self, snapshot_id):
        path = self._path(snapshot_id)
        self._files.file(path + ".part").sync()
        self._files.rename(path + ".part", path)
        self._files.sync_directory(self._directory)

    # For the driver

    def read(self, snapshot_id, position, max_bytes):
        try:
            data = self._files.read(self._path(snapshot_id))
        except FileNotFoundError:
            raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND, "It is gone.") from None
        return len(data), data[position : position + max_bytes]

    def write(self, part):
        self._write_part(part.snapshot_id, part.position, part.data)

    def install(self, snapshot_id):
        self._complete(snapshot_id)
        self._use(snapshot_id)
        self.store.start_at(snapshot_id.offset)
        self.installs += 1
        return self.voters()

    def voters(self):
        voters = VoterHistory(self._static)
        for offset, change in enumerate(self.changes, self.applied - len(self.changes)):
            voters.add(offset, change)
        return voters
