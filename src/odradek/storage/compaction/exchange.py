"""A compaction job on its way to the worker and back: the messages between the two, and the worker's loop.

The work itself does not depend on pipes or processes: `worker.py` does it in a separate process, and a simulated
host in the event loop.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from odradek.storage.compaction.job import (
    CompactionJob,
    CompactionStats,
    CorruptSegment,
    LastRecord,
    SourceSegment,
)
from odradek.storage.compaction.rounds import compact
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import Files

Message = dict[str, Any]


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
            producer_id: LastRecord(offset, epoch)
            for producer_id, offset, epoch in message["active_producers"]
        },
        map_bytes=message["map_bytes"],
    )


def carry_out(files: Files, message: Message, throttle: Callable[[int], None]) -> Iterator[Message]:
    """Do a job; yield a message for each new segment, and one at the end. `throttle` is told how many bytes were
    processed."""
    stats = CompactionStats()
    try:
        for group in compact(files, job_from_json(message), stats, throttle):
            yield {"group": group}
    except CorruptSegment as error:
        yield {"failed": str(error), "corrupt": True}
    except OSError as error:
        yield {"failed": str(error), "corrupt": False}
    else:
        yield {"done": asdict(stats)}
