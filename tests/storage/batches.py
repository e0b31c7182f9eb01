"""Small record batches and logs for the storage tests."""

import random
import uuid
from collections.abc import Callable, Sequence

from odradek.model import TopicPartition
from odradek.records.batch import BatchHeader, read_header
from odradek.records.record import Record, build_batch, decode_batch
from odradek.records.walk import whole_batches
from odradek.storage.config import LogConfig
from odradek.storage.disk.deletions import Deletions
from odradek.storage.disk.files import Files
from odradek.storage.disk.simulated import PowerCut, SimulatedFiles
from odradek.storage.log.contents import LogHome
from odradek.storage.log.log import Log
from odradek.storage.log.opening import create_log, open_log
from odradek.storage.log.recovery import Opening
from odradek.storage.log.run import AppendResult
from odradek.storage.producers.verification import NOT_REQUIRED, Verification
from odradek.storage.segments.damage import Damages
from odradek.storage.segments.segment import CLEANED_SUFFIX, Segment

PARTITION = TopicPartition("topic", 0)
TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
NOW_MS = 1_700_000_000_000


def make_batch(
    values: Sequence[bytes] = (b"value",),
    *,
    timestamps: Sequence[int] | int = NOW_MS,
    base_offset: int = 0,
    **options: object,
) -> bytearray:
    """A batch of these values, with the offsets of a producer unless told."""
    times = [timestamps] * len(values) if isinstance(timestamps, int) else timestamps
    records = [
        Record(base_offset + slot, time, None, value)
        for slot, (value, time) in enumerate(zip(values, times, strict=True))
    ]
    return build_batch(records, **options)  # type: ignore[arg-type]


def append(
    log: Log,
    batch: bytearray,
    epoch: int = 0,
    now_ms: int = NOW_MS,
    *,
    check_sequence: bool = True,
    verification: Verification = NOT_REQUIRED,
) -> AppendResult:
    return log.append_as_leader(batch, read_header(batch), epoch, now_ms, check_sequence, verification)


def append_values(log: Log, *values: bytes, epoch: int = 0, timestamp: int = NOW_MS) -> AppendResult:
    return append(log, make_batch(values, timestamps=timestamp), epoch)


def new_log(files: Files, directory: str, config: LogConfig | None = None) -> Log:
    return create_log(home(files, directory), PARTITION, TOPIC_ID, config or LogConfig(), NOW_MS)


def home(files: Files, directory: str) -> LogHome:
    return LogHome(files, directory, Deletions(), random.Random(0), Damages())


def reopen(
    files: Files,
    directory: str,
    config: LogConfig | None = None,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    strict: bool = False,
) -> Log:
    opening = Opening(clean, recovery_point, log_start_offset, strict)
    return open_log(home(files, directory), PARTITION, TOPIC_ID, config or LogConfig(), opening, NOW_MS)


def compact_first_segment(log: Log) -> None:
    """Replace it by one of the same base offset and content, as a round of compaction does."""
    old = log.segments[0]
    new = Segment.create(log._row.files, log.directory, old.base_offset, log.config, NOW_MS, CLEANED_SUFFIX)
    new.log.write_at(0, old.log.read_at(0, old.size))
    new.size = old.size
    log.replace_segments([old], [new], NOW_MS)


def batches_of(log: Log) -> list[tuple[BatchHeader, bytes]]:
    """Every batch of the log, read the way a consumer does."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset = log.log_start_offset
    while (part := log.read(offset, 1 << 20, log.end_offset)) is not None:
        data = part.file.read_at(part.position, part.length)
        assert len(data) == part.length
        for header, batch in whole_batches(memoryview(data)):
            found.append((header, bytes(batch)))
            offset = header.next_offset
    return found


def values_of(log: Log) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record that a consumer of the log sees."""
    return [
        (record.offset, record.value)
        for header, data in batches_of(log)
        for record in decode_batch(data, header)
        if record.offset >= log.log_start_offset
    ]


# Disks


def durable_disk(directory: str) -> SimulatedFiles:
    """Return a disk with this directory, whose name a crash does not undo."""
    files = SimulatedFiles()
    files.make_directory(directory)
    files.sync_directory("/")
    files.sync_directory("/data")
    return files


def cut_power_within(files: SimulatedFiles, action: Callable[[], object], steps: int, seed: int) -> bool:
    """Before the change or sync after so many; of what was not synced any part is lost. False: it was done before."""
    left = iter(range(steps))

    def step(path: str = "") -> None:
        if next(left, None) is None:
            raise PowerCut

    files.on_change, files.on_sync = step, step
    try:
        action()
        return False
    except PowerCut:
        return True
    finally:
        files.on_change = files.on_sync = None
        files.crash(random.Random(seed), is_scattered=True)
