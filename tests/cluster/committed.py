"""Batches as they are in logs: of a running node, and in the files of one that is off."""

from typing import Any, NamedTuple

from odradek.records.batch import read_header
from odradek.storage.segments.segment import LOG_SUFFIX
from odradek.storage.segments.swap import offset_of
from tests.simulation.batches import whole_batches


class Committed(NamedTuple):
    """A batch, for good."""

    base_offset: int
    next_offset: int
    data: bytes

    def __repr__(self) -> str:
        header = read_header(memoryview(self.data), 0)
        return (
            f"<{self.base_offset} to {self.next_offset} of epoch {header.leader_epoch}, CRC {header.crc:08x}>"
        )


def read_log(log: Any, offset: int) -> list[Committed]:
    found: list[Committed] = []
    if not log.segments:
        return found
    offset = max(offset, log.log_start_offset)
    while offset < log.end_offset and (piece := log.read(offset, 1 << 20, log.end_offset)) is not None:
        data = memoryview(piece.file.read_at(piece.position, piece.length))
        found += _committed(data)
        if found[-1].next_offset <= offset:
            break
        offset = found[-1].next_offset
    return found


def read_segments(log: Any, offset: int) -> list[Committed]:
    """Also what was deleted, as long as its segment is there."""
    found: list[Committed] = []
    for segment in log.segments:
        found += _committed(memoryview(segment.log.read_at(0, segment.size)))
    return [item for item in found if item.base_offset >= offset]


def read_files(files: dict[str, bytes]) -> list[Committed]:
    segments = sorted((offset_of(name), data) for name, data in files.items() if name.endswith(LOG_SUFFIX))
    return [item for _, data in segments for item in _committed(memoryview(data))]


def _committed(data: memoryview) -> list[Committed]:
    return [
        Committed(header.base_offset, header.next_offset, bytes(batch))
        for header, batch in whole_batches(data)
    ]
