"""The records that a new cluster begins with, as Kafka keeps them: `bootstrap.checkpoint` in the data directory.

`odradek format --add-scram` writes them, on each of the first controllers. The first active controller of the cluster
appends its own to the log; after that nobody reads the file.
"""

from collections.abc import Sequence

from odradek.errors import DamagedData, ProtocolError
from odradek.metadata.delta import apply_records
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import MetadataRecord
from odradek.metadata.snapshot import DamagedSnapshot, SnapshotId, read_snapshot, records_of, write_snapshot
from odradek.storage.disk.files import Files
from odradek.wire.codec import drain

FILE_NAME = "bootstrap.checkpoint"
_ID = SnapshotId(0, 0)


def write_bootstrap(files: Files, directory: str, records: Sequence[MetadataRecord]) -> None:
    """Before the directory counts as formatted; one that was interrupted left a file that is replaced."""
    path = f"{directory}/{FILE_NAME}"
    was_there = files.exists(path)
    if was_there:
        files.remove(path)
    if records:
        image, _ = apply_records(MetadataImage(""), records, offset=-1, epoch=_ID.epoch, timestamp_ms=0)
        file = files.create(path)
        try:
            drain(write_snapshot(file, image))
            file.sync()
        finally:
            file.close()
    if records or was_there:
        files.sync_directory(directory)


def read_bootstrap(files: Files, directory: str) -> list[MetadataRecord]:
    """Raises DamagedData."""
    path = f"{directory}/{FILE_NAME}"
    if not files.exists(path):
        return []
    try:
        return list(records_of(read_snapshot(files.read(path), _ID, "").image))
    except (DamagedSnapshot, ProtocolError) as error:
        raise DamagedData(f"{path} is damaged: {error}. Format the directory again.") from None
