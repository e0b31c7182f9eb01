"""Reads the logs on the disk of a node that was stopped cleanly, as they are, without the node.

- P12 every batch is whole
- P13 offsets increase, within a segment and from one to the next; an index points at a batch and never beyond the
      offset that is looked for; indexes and time indexes never decrease
- T1  the sequences of a producer follow each other, where nothing was compacted; below the log start nobody reads, and
      a crash may have brought some of the segments back that were removed there
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from struct import Struct

from odradek.records.batch import BatchHeader
from tests.simulation.batches import is_intact, whole_batches
from tests.simulation.connection import Violation

LOG = re.compile(r"/data/(?P<directory>[^/]+-\d+)/(?P<base>\d{20})\.log")
LOG_STARTS = "/data/log-start-offset-checkpoint"
INDEX_ENTRY = Struct(">ii")  # offset, relative to the segment's, and position
TIME_INDEX_ENTRY = Struct(">qi")


def check_disk(contents: dict[str, bytes], compacted: set[str]) -> None:
    """`compacted` are the directories of logs that may have been compacted, or are written by others."""
    segments: dict[str, list[tuple[int, str]]] = {}
    starts = _log_starts(contents.get(LOG_STARTS, b""))
    for path in contents:
        if found := LOG.fullmatch(path):
            segments.setdefault(found["directory"], []).append((int(found["base"]), path))
    for directory, logs in segments.items():
        headers: list[BatchHeader] = []
        for base, path in sorted(logs):
            headers += _check_segment(contents, path, base, headers[-1].next_offset if headers else 0)
        if directory not in compacted:
            start = starts.get(directory, 0)
            _check_sequences(directory, [header for header in headers if header.base_offset >= start])


def _log_starts(checkpoint: bytes) -> dict[str, int]:
    """Return the starts by directory; the file has a version and a count first."""
    lines = [line.split() for line in checkpoint.decode().splitlines()[2:]]
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in lines}


def _check_segment(contents: dict[str, bytes], path: str, base: int, end: int) -> list[BatchHeader]:
    data = contents[path]
    headers: list[BatchHeader] = []
    starts: dict[int, BatchHeader] = {}
    position = 0
    for header, batch in whole_batches(memoryview(data)):
        if not is_intact(batch, header):
            raise Violation(f"P12: {path}: the batch at {header.base_offset} is damaged")
        if header.base_offset < max(base, end):
            raise Violation(f"P13: {path}: {header.base_offset} comes after {end}")
        end = header.next_offset
        headers.append(header)
        starts[position] = header
        position += header.size
    if position != len(data):
        raise Violation(f"P12: {path}: {len(data) - position} bytes after the last batch")
    _check_index(path, contents.get(path.removesuffix("log") + "index", b""), base, starts)
    _check_time_index(path, contents.get(path.removesuffix("log") + "timeindex", b""))
    return headers


def _check_index(path: str, index: bytes, base: int, starts: dict[int, BatchHeader]) -> None:
    last = (-1, -1)
    for offset, position in _entries(INDEX_ENTRY, index):
        if (offset, position) <= last or position not in starts:
            raise Violation(f"P13: {path}: the index has {offset} at {position}, after {last}")
        if starts[position].base_offset > base + offset:
            raise Violation(f"P13: {path}: the index has {base + offset} at a batch that begins after it")
        last = (offset, position)


def _check_time_index(path: str, index: bytes) -> None:
    entries = list(_entries(TIME_INDEX_ENTRY, index))
    if any(later[0] < earlier[0] or later[1] < earlier[1] for earlier, later in pairwise(entries)):
        raise Violation(f"P13: {path}: the time index decreases: {entries}")


def _entries(entry: Struct, index: bytes) -> Iterator[tuple[int, int]]:
    return entry.iter_unpack(index[: len(index) // entry.size * entry.size])  # type: ignore[return-value]


def _check_sequences(directory: str, headers: list[BatchHeader]) -> None:
    last: dict[tuple[int, int], int] = {}
    for header in headers:
        if header.producer_id >= 0:
            producer = (header.producer_id, header.producer_epoch)
            expected = last.get(producer, header.base_sequence - 1) + 1
            if header.base_sequence != expected:
                raise Violation(
                    f"T1: {directory}: producer {producer} has sequence {header.base_sequence}, not {expected}"
                )
            last[producer] = header.last_sequence
