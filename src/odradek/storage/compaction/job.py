"""One round of compaction: the job, as it is and as it travels to the worker, and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from odradek.storage.config import LogConfig

DEFAULT_MAP_BYTES = 128 << 20

Message = dict[str, Any]


class LastBatches(NamedTuple):
    """The part of an active producer that must survive: the batches that it may send again, or if there are none, its
    epoch's marker."""

    last_offsets: tuple[int, ...]  # of each batch that the log remembers, oldest first
    producer_epoch: int


class SourceSegment(NamedTuple):
    base_offset: int
    size: int


class CompactionJob(NamedTuple):
    """One round on one log. `segments` are all up to `first_uncleanable_offset`, at which one of them or the
    active segment starts; it is at most the last stable offset."""

    directory: str
    segments: Sequence[SourceSegment]
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int
    config: LogConfig
    active_producers: Mapping[int, LastBatches] = MappingProxyType({})
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


class Damage(NamedTuple):
    """Bytes of a source that are not the batch that was written there."""

    path: str
    position: int
    offset: int  # the first that cannot be read
    reason: str


class CorruptSegment(Exception):
    """A source that is not a row of sound batches. Retrying does not help."""

    def __init__(self, message: str, damage: Damage | None = None) -> None:
        super().__init__(message)
        self.damage = (
            damage  # None: the batches are as they were written, but their records cannot be decoded
        )


def job_to_json(job: CompactionJob, bytes_per_second: float) -> Message:
    return {
        "directory": job.directory,
        "segments": job.segments,
        "first_dirty_offset": job.first_dirty_offset,
        "first_uncleanable_offset": job.first_uncleanable_offset,
        "now_ms": job.now_ms,
        "config": asdict(job.config),
        "active_producers": [[producer_id, *last] for producer_id, last in job.active_producers.items()],
        "map_bytes": job.map_bytes,
        "bytes_per_second": bytes_per_second,
    }


def job_from_json(message: Message) -> CompactionJob:
    return CompactionJob(
        directory=message["directory"],
        segments=[SourceSegment(*segment) for segment in message["segments"]],
        first_dirty_offset=message["first_dirty_offset"],
        first_uncleanable_offset=message["first_uncleanable_offset"],
        now_ms=message["now_ms"],
        config=LogConfig(**message["config"]),
        active_producers={
            producer_id: LastBatches(tuple(offsets), epoch)
            for producer_id, offsets, epoch in message["active_producers"]
        },
        map_bytes=message["map_bytes"],
    )
