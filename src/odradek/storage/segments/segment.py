"""A segment: one file of batches from a base offset on, and its indexes.

The indexes are hints. A lookup goes to the position that the index names and checks that the batch there is the one
that the entry means; if not, the index is rebuilt from the batches. So a damaged index costs a scan, but never gives a
wrong result.

The batches fill the file from its first byte to `size`, with rising offsets. Where they do not, the segment is damaged:
a reader gets `DamagedSegment`, and never takes that for the end.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

from odradek.records.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader
from odradek.records.walk import Batch, header_at, walk
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import File, Files
from odradek.storage.segments.damage import DamagedSegment
from odradek.storage.segments.indexes import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY,
    TIME_ENTRY,
    Index,
    TransactionIndex,
)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

LOOKUP_BYTES = 8 << 10  # read at a time where a batch is looked for from an index entry on
SCAN_BYTES = 256 << 10  # for a scan of all batches
WALK_BYTES = 256 << 10  # of one read, whose headers nobody has looked at since they were found on disk
NEVER = 2**63 - 1


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def remove_files(files: Files, directory: str, base_offset: int) -> None:
    """Remove the remains of a segment that could not be created."""
    for suffix in SEGMENT_SUFFIXES:
        files.file(f"{directory}/{file_name(base_offset, suffix)}").remove()


class Segment:
    """`size` is where the next batch goes. An opened segment knows its timestamps once it is loaded."""

    __slots__ = (
        "_unindexed_bytes",
        "aborted",
        "base_offset",
        "created_ms",
        "damage",
        "first_timestamp",
        "index_full",
        "index_interval_bytes",
        "loaded",
        "log",
        "max_index_bytes",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "on_damage",
        "roll_after_ms",
        "size",
        "times",
        "walked_from",
        "walked_offset",
        "walked_to",
    )

    def __init__(
        self,
        base_offset: int,
        log: File,
        size: int,
        offsets: Index,
        times: Index,
        aborted: TransactionIndex,
        config: LogConfig,
        created_ms: int,
    ) -> None:
        self.base_offset = base_offset
        self.log = log
        self.size = size
        self.offsets = offsets
        self.times = times
        self.aborted = aborted
        self.index_interval_bytes = config.index_interval_bytes
        self.max_index_bytes = config.segment_index_bytes
        self.index_full = False
        self.created_ms = created_ms
        self.roll_after_ms = config.max_segment_ms
        self.loaded = size == 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = (
            base_offset  # last offset of the first batch that has the largest timestamp
        )
        self.first_timestamp = NO_TIMESTAMP  # of the first batch, from which rolling by time counts
        self._unindexed_bytes = 0
        self.damage: DamagedSegment | None = None  # what a reader found first
        self.on_damage: Callable[[DamagedSegment], None] | None = None  # set by the log that has this segment
        # Between these positions the headers were read, or written, by this process; the next offset is this.
        self.walked_from, self.walked_to, self.walked_offset = 0, 0 if size else NEVER, base_offset

    @classmethod
    def create(
        cls, files: Files, directory: str, base_offset: int, config: LogConfig, now_ms: int, suffix: str = ""
    ) -> "Segment":
        """New empty files; the caller syncs the directory. Compaction's end with `.cleaned`.

        If one cannot be created, those before it stay on disk, closed: `remove_files` removes them.
        """
        prefix = f"{directory}/{base_offset:020d}"
        made: list[File] = []
        with ExitStack() as unless_whole:
            for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                made.append(files.create(prefix + kind + suffix))
                unless_whole.callback(made[-1].close)
            unless_whole.pop_all()
        log, offsets, times = made
        return cls(
            base_offset,
            log,
            0,
            Index(offsets, OFFSET_ENTRY, 0),
            Index(times, TIME_ENTRY, 0),
            TransactionIndex(files, prefix + TRANSACTION_INDEX_SUFFIX + suffix, None),
            config,
            now_ms,
        )

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        base_offset: int,
        sizes: dict[str, int],
        config: LogConfig,
        now_ms: int,
        suffix: str = "",
    ) -> "Segment":
        """A segment that is on disk; `sizes` are those of the directory's files. Reads nothing."""
        name = f"{base_offset:020d}"
        prefix = f"{directory}/{name}"
        aborted_name = name + TRANSACTION_INDEX_SUFFIX + suffix
        return cls(
            base_offset,
            files.file(prefix + LOG_SUFFIX + suffix),
            sizes[name + LOG_SUFFIX + suffix],
            Index(
                files.file(prefix + INDEX_SUFFIX + suffix),
                OFFSET_ENTRY,
                sizes.get(name + INDEX_SUFFIX + suffix, 0),
            ),
            Index(
                files.file(prefix + TIME_INDEX_SUFFIX + suffix),
                TIME_ENTRY,
                sizes.get(name + TIME_INDEX_SUFFIX + suffix, 0),
            ),
            TransactionIndex(files, f"{directory}/{aborted_name}", sizes.get(aborted_name)),
            config,
            now_ms,
        )

    @property
    def files(self) -> list[File]:
        files = [self.log, self.offsets.file, self.times.file]
        return files if self.aborted.file is None else [*files, self.aborted.file]

    # Writing

    def appended(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """A batch was written here: note its timestamp, and index it if enough was written since the last."""
        if position == 0:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._unindexed_bytes > self.index_interval_bytes:
            self.offsets.append(last_offset - self.base_offset, position)
            self._index_time()
            self.index_full = self._is_index_full()
            self._unindexed_bytes = 0
        self._unindexed_bytes += size
        self.size = position + size

    def _index_time(self) -> None:
        last = self.times.last
        if self.max_timestamp > (last[0] if last else NO_TIMESTAMP):
            self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def finish(self) -> None:
        """No more appends for now: complete the indexes on disk, with the largest timestamp last."""
        self.load()
        self._index_time()
        self.offsets.write_pending()
        self.times.write_pending()

    def has_room(
        self, size: int, last_offset: int, max_timestamp: int, now_ms: int, segment_bytes: int
    ) -> bool:
        """True if batches of this many bytes, with this last offset and this largest timestamp, still fit in here.
        A segment that is not loaded does not know."""
        first = self.first_timestamp
        age_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        return (
            self.loaded
            and self.size + size <= segment_bytes
            and last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
            and not self.index_full
            and (age_ms <= self.roll_after_ms or self.size == 0)
        )

    def _is_index_full(self) -> bool:
        """One entry of the time index is kept free for `finish`."""
        return (
            len(self.offsets) >= self.max_index_bytes // OFFSET_ENTRY.size
            or len(self.times) >= self.max_index_bytes // TIME_ENTRY.size - 1
        )

    def has_index_room(self, size: int) -> bool:
        """True if this many bytes of batches can be indexed before the indexes are full.

        A batch has at most one entry, however small the interval is."""
        entries = size // max(self.index_interval_bytes, HEADER_SIZE) + 2
        return (
            len(self.offsets) + entries < self.max_index_bytes // OFFSET_ENTRY.size
            and len(self.times) + entries < self.max_index_bytes // TIME_ENTRY.size
        )

    # Reading

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        return self._sound_batches(position, SCAN_BYTES)

    def batch_bytes(self, position: int, header: BatchHeader) -> bytes:
        return self.log.read_at(position, header.size)

    def _walk(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """The few batches from an index entry on."""
        return self._sound_batches(position, LOOKUP_BYTES)

    def _sound_batches(
        self, position: int, piece_bytes: int, expected: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """All batches from this position to the end of the segment. Raises DamagedSegment where there is none, or one
        that begins before the expected offset."""
        end = self.size
        before = expected if position else self.base_offset  # None: not known
        at, last = position, None
        for at, header in walk(self.log.read_at, position, end, piece_bytes):
            if header.base_offset < (self.base_offset if before is None else before) or not self._may_have(
                header
            ):
                raise self._damaged_at(at, before, last, "the header there is not that of the next batch")
            yield at, header
            last, before = (at, before, header), header.next_offset
            position = at + header.size
        if position < end:
            raise self._damaged_at(position, before, last, "there is no whole batch")

    def _damaged_at(
        self, position: int, offset: int | None, last: tuple[int, int | None, BatchHeader] | None, reason: str
    ) -> DamagedSegment:
        """After the last batch comes none. But maybe that batch is the damaged one: its length is wrong, and so is
        its CRC, or its offset is too high, and there is a gap before it."""
        if last is not None:
            at, before, header = last
            has_gap = before is not None and header.base_offset > before
            if has_gap or not Batch(header, memoryview(self.batch_bytes(at, header))).has_valid_crc:
                offset = header.base_offset if before is None else before
                return self.damaged_at(at, offset, "the batch there has a wrong length or offset")
        return self.damaged_at(position, self.base_offset if offset is None else offset, reason)

    def _may_have(self, header: BatchHeader) -> bool:
        return header.last_offset_delta >= 0 and header.last_offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def damaged_at(self, position: int, offset: int, reason: str) -> DamagedSegment:
        """The error for the reader that found this. The log is told of the first one."""
        damage = DamagedSegment(self.log.path, position, offset, reason)
        if self.damage is None:
            self.damage = damage
            if self.on_damage is not None:
                self.on_damage(damage)
        elif position < self.damage.position:
            self.damage = damage
        return damage.again()

    def walk_over(self, position: int, length: int, limit: int) -> int:
        """Look at the headers of these bytes before they are sent for the first time since they were found on disk: a
        client cannot tell a wrong base offset from a right one. `limit` is where the next segment begins. Returns how
        many of the bytes may be sent, at least one batch: not always all, so that nobody else has to wait."""
        if not self.walked_from <= position <= self.walked_to:
            self.walked_from, self.walked_to, self.walked_offset = position, position, self.base_offset
        end = min(position + length, self.walked_to + WALK_BYTES)
        try:
            for at, header in self._sound_batches(self.walked_to, LOOKUP_BYTES, self.walked_offset):
                if header.last_offset >= limit:
                    raise self.damaged_at(
                        at, self.walked_offset, "the batch there has an offset of a later one"
                    )
                if at >= end:  # this one shows that the batch before it has its own offset
                    break
                self.walked_to, self.walked_offset = at + header.size, header.next_offset
        except DamagedSegment as damage:
            if damage.position <= position:
                raise
            return damage.position - position
        return min(length, self.walked_to - position)

    def before_damage(self, position: int, length: int) -> int:
        """Return how many of these bytes may be sent, of a segment that is damaged somewhere."""
        assert self.damage is not None
        if position == self.damage.position:
            raise self.damage.again()
        return length if position > self.damage.position else min(length, self.damage.position - position)

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch that ends at or after this offset."""
        batches = self._walk(self._floor_position(offset))
        for position, header in batches:
            if header.last_offset >= offset:
                if header.base_offset > offset:
                    next(
                        batches, None
                    )  # after a gap: the batch that follows shows whether the offset is real
                return position, header
        return None

    def locate_timestamp(self, timestamp: int, start_offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """The batches with a timestamp at or above this one, from an offset on."""
        slot = self.times.floor(0, timestamp)
        if slot >= 0:
            entry = self.times[slot]
            if not self._is_time_entry(*entry):
                self.rebuild_indexes()
                slot = self.times.floor(0, timestamp)
                entry = self.times[slot] if slot >= 0 else (NO_TIMESTAMP, 0)
            start_offset = max(start_offset, self.base_offset + entry[1])
        for position, header in self._walk(self._floor_position(start_offset)):
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                yield position, header

    def offset_beyond(self, position: int) -> int | None:
        """The offset of the first batch that is indexed and begins at or after this position, if there is one."""
        slot = self.offsets.floor(1, position - 1) + 1
        if slot == len(self.offsets):
            return None
        relative_offset, indexed = self.offsets[slot]
        header = header_at(self.log.read_at, indexed, self.size)
        if header is None or header.last_offset != self.base_offset + relative_offset or indexed < position:
            return None  # damaged: it is rebuilt when something is looked for
        return header.base_offset

    def next_offset(self) -> int:
        """The offset after the last batch."""
        next_offset = self.base_offset
        for header in self._unindexed_headers():
            next_offset = header.next_offset
        return next_offset

    def _unindexed_headers(self) -> Iterator[BatchHeader]:
        """The headers from the last one on that is indexed."""
        last = self.offsets.last
        position = self._floor_position(self.base_offset + last[0]) if last else 0
        return (header for _, header in self._walk(position))

    def load(self) -> None:
        """Read what is not known after opening: the first and the largest timestamp."""
        if self.loaded:
            return
        first = header_at(self.log.read_at, 0, self.size)
        self.first_timestamp = first.max_timestamp if first else NO_TIMESTAMP
        last = self.times.last or (NO_TIMESTAMP, 0)
        try:
            is_right = self._is_time_entry(*last) and all(
                header.max_timestamp <= last[0] for header in self._unindexed_headers()
            )
            if not is_right:
                self.rebuild_indexes()
        except DamagedSegment:
            pass  # retention goes by the time index, which cannot be compared with the batches
        if not self.loaded:
            self.max_timestamp, self.max_timestamp_offset = last[0], self.base_offset + last[1]
            self.loaded = True

    def _floor_position(self, offset: int) -> int:
        slot = self.offsets.floor(0, offset - self.base_offset)
        if slot < 0:
            return 0
        relative_offset, position = self.offsets[slot]
        header = header_at(self.log.read_at, position, self.size) if position >= 0 else None
        if header is not None and header.last_offset == self.base_offset + relative_offset:
            return position
        if self.damage is not None:
            raise self.damage.again()  # not the index is wrong: it was compared with the batches
        self.rebuild_indexes()
        slot = self.offsets.floor(0, offset - self.base_offset)
        return self.offsets[slot][1] if slot >= 0 else 0

    def _is_time_entry(self, timestamp: int, relative_offset: int) -> bool:
        offset = self.base_offset + relative_offset
        found = self.locate(offset)
        return found is not None and found[1].last_offset == offset and found[1].max_timestamp == timestamp

    # Changing

    def rebuild_indexes(self) -> None:
        """Build the offset and the time index from the batches. Those of a damaged segment stay as they are: what is
        beyond the damage can be found by them alone."""
        for _ in self.batches():
            pass
        size = self.size
        self.reset_indexes()
        for position, header in walk(self.log.read_at, 0, size, SCAN_BYTES):
            self.appended(position, header.size, header.last_offset, header.max_timestamp)
        self.size = size
        self.finish()

    def reset_indexes(self) -> None:
        """Start the offset and the time index again; the caller replays the batches through `appended`."""
        self.offsets.truncate(0)
        self.times.truncate(0)
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self.first_timestamp = NO_TIMESTAMP
        self.index_full = False
        self.loaded = True
        self.damage = None
        self._unindexed_bytes = 0

    def truncate_to(self, offset: int) -> None:
        """Cut off the batch with this offset, and all after it."""
        self.load()
        found = self.locate(offset)
        if found is not None:
            self.log.truncate(found[0])
            self.size = found[0]
            if self.damage is not None and self.damage.position >= self.size:
                self.damage = None
            if self.size < self.walked_to < NEVER:
                self.walked_to, self.walked_offset = self.size, self.base_offset
            self.aborted.truncate_to(offset)
            self._truncate_indexes(offset)

    def _truncate_indexes(self, offset: int) -> None:
        relative_offset = offset - self.base_offset - 1
        self.offsets.truncate(self.offsets.floor(0, relative_offset) + 1)
        self.times.truncate(self.times.floor(1, relative_offset) + 1)
        self._unindexed_bytes = 0
        self.index_full = False
        last = self.times.last
        timestamp, relative_offset = last or (NO_TIMESTAMP, 0)
        self.max_timestamp, self.max_timestamp_offset = timestamp, self.base_offset + relative_offset
        with suppress(DamagedSegment):  # what is before the cut is damaged, and stays so
            if last is not None and not self._is_time_entry(*last):
                self.rebuild_indexes()
                return
            for _, header in self._walk(self._floor_position(self.max_timestamp_offset)):
                if header.max_timestamp > self.max_timestamp:
                    self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset

    def rename(self, old_suffix: str, new_suffix: str) -> None:
        """Change the suffix of all file names."""
        for file in self.files:
            file.rename(file.path.removesuffix(old_suffix) + new_suffix)

    def remove(self) -> None:
        """Every file that can be; then raise the error of one that could not."""
        with ExitStack() as stack:
            for file in reversed(self.files):
                stack.callback(file.remove)

    def close(self) -> None:
        for file in self.files:
            file.close()
