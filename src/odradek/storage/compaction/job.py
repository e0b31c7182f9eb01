"""One round of compaction: the job and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.storage.config import LogConfig

DEFAULT_MAP_BYTES = 128 << 20


class LastRecord(NamedTuple):
    """What must survive of an active producer: its last batch, or if that is gone, its epoch's marker."""

    last_data_offset: int | None
    producer_epoch: int


class SourceSegment(NamedTuple):
    base_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """One round on one log. `segments` are all up to `first_uncleanable_offset`, at which one of them or the
    active segment starts; it is at most the last stable offset."""

    directory: str
    segments: Sequence[SourceSegment]
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int
    config: LogConfig
    active_producers: Mapping[int, LastRecord] = field(default_factory=dict)
    map_bytes: int = DEFAULT_MAP_BYTES


class CleanedGroup(NamedTuple):
    """The segment in `.cleaned` files at `base_offset` is to replace the segments at these base offsets."""

    source_offsets: tuple[int, ...]
    base_offset: int
    size: int


@dataclass(slots=True)
class CompactionStats:
    """`end_offset`: the log is clean up to there once every group is in place."""

    end_offset: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keys: int = 0


class CorruptSegment(Exception):
    """A source that is not a row of sound batches. Retrying does not help."""
