"""Reads what the replicas of partitions on the disks of stopped nodes have, without the product's way of opening
them.

The segments of a replica are walked batch by batch. Below the high watermark all replicas have the same batches, byte
for byte; where one file ends and the next begins may differ. Within a replica offsets rise, leader epochs never
decrease, and every checksum is right.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from odradek.model import TopicPartition
from odradek.records.walk import Batch, whole_batches


class StoredReplica:
    """One replica, in the data directory of a node that does not run."""

    def __init__(self, data_dir: Path, partition: TopicPartition) -> None:
        self._directory = data_dir / str(partition)
        self.batches = {batch.header.base_offset: batch for batch in self._read()}

    def _read(self) -> Iterator[Batch]:
        next_offset, epoch = 0, -1
        for path in sorted(self._directory.glob("*.log")):
            read = 0
            data = path.read_bytes()
            assert int(path.stem) >= next_offset, f"{path} begins before offset {next_offset}"
            for batch in whole_batches(memoryview(data)):
                header = batch.header
                where = f"{path}, offset {header.base_offset}"
                assert batch.has_valid_crc, f"{where}: damaged"
                assert header.base_offset >= next_offset, f"{where}: offset {next_offset} was next"
                assert header.leader_epoch >= epoch, f"{where}: epoch {header.leader_epoch} after {epoch}"
                next_offset, epoch = header.next_offset, header.leader_epoch
                read += len(batch.data)
                yield batch
            assert not data[read:].strip(b"\0"), f"{path}: what follows {read} bytes is no batch"

    @property
    def end_offset(self) -> int:
        return max((batch.header.next_offset for batch in self.batches.values()), default=0)


def check_replicas(data_dirs: Mapping[int, Path], high_watermarks: Mapping[TopicPartition, int]) -> int:
    """Compare all replicas of these partitions, on all of these nodes; how many batches were compared."""
    compared = 0
    for partition, high_watermark in high_watermarks.items():
        replicas = {node_id: StoredReplica(path, partition) for node_id, path in data_dirs.items()}
        compared += _compare(partition, replicas, high_watermark)
    return compared


def _compare(partition: TopicPartition, replicas: Mapping[int, StoredReplica], high_watermark: int) -> int:
    short = {id: one.end_offset for id, one in replicas.items() if one.end_offset < high_watermark}
    assert not short, f"{partition}: nodes end before the high watermark {high_watermark}: {short}"
    (first, *others) = replicas.items()
    committed = _below(first[1], high_watermark)
    for node_id, replica in others:
        found = _below(replica, high_watermark)
        for offset in sorted({*committed, *found}):
            assert committed.get(offset) == found.get(offset), (
                f"{partition}: nodes {first[0]} and {node_id} differ at offset {offset}"
            )
    return len(committed) * len(others)


def _below(replica: StoredReplica, high_watermark: int) -> dict[int, bytes]:
    return {
        offset: bytes(batch.data)
        for offset, batch in replica.batches.items()
        if batch.header.base_offset < high_watermark
    }
