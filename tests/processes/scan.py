"""Reads what the metadata logs on the disks of stopped nodes say, without the product's way of opening them.

The log of each node is walked batch by batch, from its newest snapshot before the place of interest, and folded into an
image. Two nodes must have the same image wherever both can be asked: at the end of every snapshot, and at the last
offset that was committed. Below that, batches at one offset are the same bytes, whoever wrote them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from odradek.metadata.delta import apply_records
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import decode_record
from odradek.metadata.snapshot import SUFFIX, SnapshotId, digest, parse_name, read_snapshot
from odradek.raft.store import METADATA_PARTITION
from odradek.records.record import decode_batch
from odradek.records.walk import Batch, whole_batches


class StoredLog:
    """The metadata log in the data directory of a node that does not run."""

    def __init__(self, data_dir: Path, cluster_id: str) -> None:
        self._directory = data_dir / str(METADATA_PARTITION)
        self._cluster_id = cluster_id
        self.snapshots = sorted(
            found
            for path in self._directory.glob(f"*{SUFFIX}")
            if (found := parse_name(path.name)) and found.end_offset > 0
        )
        self.batches = {batch.header.base_offset: batch for batch in self._read()}

    def _read(self) -> Iterator[Batch]:
        for path in sorted(self._directory.glob("*.log")):
            for batch in whole_batches(memoryview(path.read_bytes())):
                assert batch.has_valid_crc, f"{path} is damaged at offset {batch.header.base_offset}"
                yield batch

    @property
    def end_offset(self) -> int:
        last = max(self.batches, default=-1)
        return self.batches[last].header.last_offset + 1 if self.batches else 0

    def image_at(self, end_offset: int) -> MetadataImage | None:
        """Return what all records below this offset say; None where the log does not reach back or forth to it."""
        base = self._snapshot_before(end_offset)
        image = self._image_of(base) if base else MetadataImage(self._cluster_id)
        while image.offset + 1 < end_offset:
            batch = self.batches.get(image.offset + 1)
            if batch is None or batch.header.last_offset >= end_offset:
                return None
            image = self._fold(image, batch)
        return image

    def image_from(self, end_offset: int) -> MetadataImage | None:
        """The image at this offset, or that of a newer snapshot: the log may be cut above it. None: it ends before."""
        newest = max(self.snapshots, default=None)
        if newest and newest.end_offset >= end_offset:
            return self._image_of(newest)
        return self.image_at(end_offset)

    def _snapshot_before(self, end_offset: int) -> SnapshotId | None:
        return max((one for one in self.snapshots if one.end_offset <= end_offset), default=None)

    def _image_of(self, snapshot: SnapshotId) -> MetadataImage:
        data = (self._directory / snapshot.file_name).read_bytes()
        return read_snapshot(data, snapshot, self._cluster_id).image

    def folded_from_log(self, end_offset: int) -> MetadataImage | None:
        """Like `image_at`, but without a snapshot that ends right there."""
        kept, self.snapshots = self.snapshots, [one for one in self.snapshots if one.end_offset < end_offset]
        try:
            return self.image_at(end_offset)
        finally:
            self.snapshots = kept

    @staticmethod
    def _fold(image: MetadataImage, batch: Batch) -> MetadataImage:
        header = batch.header
        values = [] if header.is_control else [item.value for item in decode_batch(batch.data, header)]
        records = [decode_record(value) for value in values if value is not None]
        return apply_records(image, records, header.last_offset, header.leader_epoch, header.max_timestamp)[0]


def check_equal(logs: Mapping[int, StoredLog], committed: int) -> tuple[MetadataImage, int]:
    """All nodes hold everything below the committed offset, and say the same wherever two can be asked: the newest
    image, and how many comparisons were made. A node that stops goes on writing, for those that still run; so its last
    snapshot may be of an offset that another one, gone earlier, does not reach."""
    snapshots = {one.end_offset for log in logs.values() for one in log.snapshots}
    compared = _compare_batches(logs, max(committed, *snapshots, 0))
    for end_offset in sorted({*snapshots, committed}):
        found = {
            (node_id, way): digest(image)
            for node_id, log in logs.items()
            for way, image in (("", log.image_at(end_offset)), ("log", log.folded_from_log(end_offset)))
            if image is not None
        }
        assert len(set(found.values())) <= 1, f"images differ at offset {end_offset}: {found}"
        compared += max(len(found) - 1, 0)
    newest = {node_id: log.image_from(committed) for node_id, log in logs.items()}
    behind = [node_id for node_id, image in newest.items() if image is None]
    assert not behind, f"nodes {behind} do not reach the committed offset {committed}: {describe(logs)}"
    return max((image for image in newest.values() if image), key=lambda image: image.offset), compared


def _compare_batches(logs: Mapping[int, StoredLog], committed: int) -> int:
    seen: dict[int, tuple[int, bytes]] = {}
    compared = 0
    for node_id, log in logs.items():
        for offset, batch in log.batches.items():
            if batch.header.last_offset >= committed:
                continue
            other, data = seen.setdefault(offset, (node_id, bytes(batch.data)))
            assert data == bytes(batch.data), f"nodes {other} and {node_id} differ at offset {offset}"
            compared += other != node_id
    return compared


def describe(logs: Mapping[int, StoredLog]) -> str:
    """Return where each log begins and ends, and its snapshots."""
    return "; ".join(
        f"node {node_id} has {min(log.batches, default=None)} to {log.end_offset}, snapshots at "
        f"{[one.end_offset for one in log.snapshots]}"
        for node_id, log in logs.items()
    )
