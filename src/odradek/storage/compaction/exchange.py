"""The worker's side of a compaction job: it does what a message asks for, and says in messages what came of it.

The work itself does not depend on pipes or processes: `worker.py` does it in a separate process, and a simulated
host in the event loop.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict

from odradek.storage.compaction.job import CompactionStats, CorruptSegment, Message, job_from_json
from odradek.storage.compaction.rounds import compact
from odradek.storage.disk.files import Files


def carry_out(files: Files, message: Message, throttle: Callable[[int], None]) -> Iterator[Message]:
    """Do a job; yield a message for each new segment, and one at the end. `throttle` is told how many bytes were
    processed."""
    stats = CompactionStats()
    try:
        for group in compact(files, job_from_json(message), stats, throttle):
            yield {"group": group}
    except CorruptSegment as error:
        yield {"failed": str(error), "corrupt": True, "damage": error.damage}
    except OSError as error:
        yield {"failed": str(error), "corrupt": False}
    else:
        yield {"done": asdict(stats)}
