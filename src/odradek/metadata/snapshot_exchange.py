"""Snapshots between nodes: this node sends parts of its own, and fetches the leader's.

A replica whose log ends before the leader's begins fetches a snapshot, in parts. After the last part, the snapshot is
synced and read, so that a damaged one does not count; then it replaces the whole log. Once its name `.installing` is on
disk, the replacement is certain: after a crash, the next start completes it (`loading.py`).
"""

from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.metadata.image import MetadataImage
from odradek.metadata.snapshot import DamagedSnapshot, Snapshot, SnapshotId, read_snapshot
from odradek.metadata.snapshot_files import SnapshotFiles
from odradek.raft.control import LeaderChange, decode_control
from odradek.raft.messages import OffsetAndEpoch
from odradek.raft.ready import SnapshotPart
from odradek.raft.store import QuorumStore
from odradek.raft.voters import Change, VoterHistory, VoterSet
from odradek.storage.disk.files import File


def quorum_changes(snapshot: Snapshot) -> tuple[Change, ...]:
    """The kraft.version and the voters in a snapshot."""
    records = (decode_control(kind, value) for kind, value in snapshot.control)
    return tuple(record for record in records if not isinstance(record, LeaderChange))


class SnapshotExchange:
    """The `Snapshots` of the quorum's driver."""

    def __init__(self, snapshots: SnapshotFiles, store: QuorumStore, cluster_id: str) -> None:
        self._snapshots = snapshots
        self._store = store
        self._cluster_id = cluster_id
        self._file: File | None = None  # the parts fetched so far
        self._fetched: Snapshot | None = None  # the whole snapshot, once all parts are read
        self._size = 0
        self._installed: MetadataImage | None = None

    def take_installed(self) -> MetadataImage | None:
        """The image of a snapshot that has replaced the log since the last call."""
        installed, self._installed = self._installed, None
        return installed

    def read(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes]:
        wanted = SnapshotId(*snapshot_id)
        if wanted not in self._snapshots.ids:
            raise KafkaError(
                ErrorCode.SNAPSHOT_NOT_FOUND, f"There is no snapshot {wanted.file_name} any more."
            )
        size = self._snapshots.size_of(wanted)
        if not 0 <= position < size:
            raise KafkaError(
                ErrorCode.POSITION_OUT_OF_RANGE, f"The snapshot has {size} bytes, not {position}."
            )
        return size, self._snapshots.read_part(wanted, position, max_bytes)

    def write(self, part: SnapshotPart) -> None:
        """Raises KafkaError if it cannot be written, or if the complete snapshot is damaged: it is fetched again."""
        snapshot_id = SnapshotId(*part.snapshot_id)
        try:
            if part.position == 0 or self._file is None:
                self._drop()
                self._file = self._snapshots.fetched(snapshot_id)
            self._file.write_at(part.position, part.data)
            if part.is_last:
                self._size = part.position + len(part.data)
                self._file.truncate(self._size)
                self._file.sync()
                self._fetched = read_snapshot(
                    self._file.read_at(0, self._size), snapshot_id, self._cluster_id
                )
        except OSError as error:
            self._drop()
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write a snapshot: {error}") from error
        except (DamagedSnapshot, ProtocolError) as error:
            self._drop()
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"the leader's snapshot is damaged: {error}"
            ) from error

    def install(self, snapshot_id: OffsetAndEpoch) -> VoterHistory:
        assert self._fetched is not None, "the last part was written"
        self._drop()
        self._snapshots.begin_install(SnapshotId(*snapshot_id), self._size)
        self._store.start_at(snapshot_id.offset)
        self._snapshots.installed()
        fetched, self._fetched = self._fetched, None
        self._installed = fetched.image
        voters = VoterHistory(VoterSet([]))
        changes = quorum_changes(fetched)
        for offset, change in enumerate(changes, snapshot_id.offset - len(changes)):
            voters.add(offset, change)
        return voters

    def _drop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
