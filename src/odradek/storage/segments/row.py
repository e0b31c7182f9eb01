"""The row of segments of a log: finding offsets in it, and changing it so that a crash leaves a whole log.

Segments follow one another by base offset. The last one is active and takes the appends; the others do not change until
they are compacted or removed. Removing goes from the newest to the oldest where a log is cut, each on disk before the
next, so that a crash in between leaves a log that ends earlier, and never one with a hole.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from operator import attrgetter
from typing import NamedTuple

from odradek.storage.config import LogConfig
from odradek.storage.disk.deletions import Deletions
from odradek.storage.disk.files import File, Files, pinned
from odradek.storage.disk.health import Health
from odradek.storage.disk.sync import Durability
from odradek.storage.segments.damage import DamagedSegment
from odradek.storage.segments.indexes import AbortedTransaction, find_aborted
from odradek.storage.segments.retired import Retired
from odradek.storage.segments.segment import Segment, remove_files
from odradek.storage.segments.swap import swap_in
from odradek.storage.segments.tail import Tail

by_base_offset = attrgetter("base_offset")
OnDamage = Callable[[DamagedSegment], None]


class Slice(NamedTuple):
    """Bytes of a segment file: call `file.fileno()` for each use, descriptors are closed and reused."""

    file: File
    position: int
    length: int


class SegmentRow:
    __slots__ = (
        "_health",
        "_on_damage",
        "_retired",
        "active",
        "directory",
        "durability",
        "files",
        "segments",
        "tail",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        deletions: Deletions,
        segments: list[Segment],
        end_offset: int,
        health: Health,
        on_damage: OnDamage,
    ) -> None:
        """`on_damage` is called with the first damage that is found in each segment."""
        self.files = files
        self.directory = directory
        self.segments = segments  # by base offset; never empty, unless the log failed while it was cut
        self.active = segments[-1]  # always the last one of them
        self.durability = Durability(health, end_offset)
        self.tail = Tail()  # covers the end of the active segment, and nothing else
        self.tail.reset(end_offset)
        self._retired = Retired(deletions)
        self._health = health
        self._on_damage = on_damage
        self._watch(segments)

    def _watch(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            segment.on_damage = self._on_damage
            if segment.damage is not None:
                self._on_damage(segment.damage)

    @property
    def damage(self) -> DamagedSegment | None:
        """The first damage that is known."""
        return next((segment.damage for segment in self.segments if segment.damage is not None), None)

    def damaged_at(self, file: File, position: int, offset: int, reason: str) -> DamagedSegment:
        for segment in self.segments:
            if segment.log is file:
                return segment.damaged_at(position, offset, reason)
        return DamagedSegment(file.path, position, offset, reason)  # it is no longer part of the log

    # Appending

    def appended(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """A batch was written at the end of the active segment."""
        segment = self.active
        position = segment.size
        segment.appended(position, size, last_offset, max_timestamp)
        self.tail.add(last_offset, position)
        self.durability.dirty[segment.log] = None

    def appended_all(self, batches: Iterable[tuple[memoryview, tuple[int, int, bool, int]]]) -> None:
        """Like `appended`, for many: each with its base offset, its last offset, and behind a flag its timestamp."""
        segment, add_to_tail = self.active, self.tail.add
        for batch, (_, last_offset, _, max_timestamp) in batches:
            position = segment.size
            segment.appended(position, len(batch), last_offset, max_timestamp)
            add_to_tail(last_offset, position)
        self.durability.dirty[segment.log] = None

    def index_aborted(self, aborted: AbortedTransaction) -> None:
        index = self.active.aborted
        if index.file is None:
            with self._names_open() as names:
                index.append(aborted)
                self.durability.sync_open(names)
        else:
            index.append(aborted)
        assert index.file is not None
        self.durability.mark([index.file])

    def cut_tail(self, end_offset: int) -> None:
        """Whatever the files hold beyond the last batch was never appended."""
        self.active.aborted.truncate_to(
            end_offset
        )  # first: readers must not see it, even if nothing can be cut
        self.active.log.truncate(self.active.size)

    def begin_segment(self, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        """All of its files, or none: if one of them remained, and more were appended to the segment before it, a later
        start would think that the log ends where the new segment begins."""
        with self._names_open() as names:
            try:
                segment = Segment.create(self.files, self.directory, base_offset, config, now_ms)
            except OSError:
                with self._health.fatal():
                    remove_files(self.files, self.directory, base_offset)
                raise
            finally:
                self.durability.sync_open(names)
        self._add(segment)
        return segment

    def _add(self, segment: Segment) -> None:
        self._watch([segment])
        self.segments.append(segment)
        self.active = segment
        self.tail.reset(segment.base_offset)

    # Reading

    def read(
        self, offset: int, upper_offset: int, end_offset: int, max_bytes: int, minimum_one: bool
    ) -> Slice | None:
        """See `Log.read`, which has checked that the offset is below both others."""
        active, limit = self.active, None
        if offset >= self.tail.floor:
            segment = active
            position, first_size = self.tail.locate(offset, active.size)
        else:
            found = self._locate(offset, end_offset)
            if found is None:
                return None
            segment, position, first_size, limit = found
        if segment is active and upper_offset >= end_offset:
            length = active.size - position
        else:
            length = self._position_of(segment, upper_offset) - position
        if length > max_bytes:
            length = min(length, max(max_bytes, first_size)) if minimum_one else max_bytes
        if (
            limit is not None
            and not segment.walked_from <= position <= position + length <= segment.walked_to
        ):
            length = segment.walk_over(position, length, limit)
        if segment.damage is not None:
            length = segment.before_damage(position, length)
        return Slice(segment.log, position, length) if length > 0 else None

    def _locate(self, offset: int, end_offset: int) -> tuple[Segment, int, int, int] | None:
        """Segment, position and size of the first batch that ends at or after this offset, and the offset at which the
        segment ends."""
        slot = self._slot_of(offset)
        for segment, following in zip_longest(self.segments[slot:], self.segments[slot + 1 :]):
            found = segment.locate(offset)
            if found is not None:
                position, header = found
                limit = end_offset if following is None else following.base_offset
                if header.last_offset >= limit:
                    raise segment.damaged_at(position, offset, "the batch there has an offset of a later one")
                return segment, position, header.size, limit
        return None

    def _position_of(self, segment: Segment, offset: int) -> int:
        """The position of the batch with an offset; the segment's end if it is beyond."""
        if segment is not self.active:
            following = self.segments[self.segments.index(segment) + 1]
            if offset >= following.base_offset:
                return segment.size
        elif offset >= self.tail.floor:
            return self.tail.locate(offset, segment.size)[0]
        try:
            found = segment.locate(offset)
        except DamagedSegment as damage:
            return damage.position  # what is before it can be read
        return found[0] if found is not None else segment.size

    def _slot_of(self, offset: int) -> int:
        """The position of the segment with this offset, or of the first one."""
        return max(bisect_right(self.segments, offset, key=by_base_offset) - 1, 0)

    def aborted_transactions(self, start: int, end: int, piece: Slice | None) -> list[AbortedTransaction]:
        segments = self.segments
        if len(segments) > 1:
            segments = segments[self._slot_of(start) :]
        indexes = [segment.aborted for segment in segments if segment.aborted.file is not None]
        if not indexes:
            return []
        return find_aborted(indexes, start, end if piece is None else self._end_of(piece, segments, end))

    @staticmethod
    def _end_of(piece: Slice, segments: list[Segment], end: int) -> int:
        """An offset that is not below the end of a slice of these segments, and not far beyond it."""
        for segment, following in zip_longest(segments, segments[1:]):
            if segment.log is piece.file:
                found = segment.offset_beyond(piece.position + piece.length)
                if found is None and following is not None:
                    found = following.base_offset
                return end if found is None else min(found, end)
        return end

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    # Cutting at the end

    def cut(self, offset: int) -> int:
        """Cut off everything from the batch with this offset on. Returns where the row then ends. All files that
        must be open are opened first: `CannotOpen` means that nothing has changed."""
        kept = self.segments[self._slot_of(offset)]
        with self._names_open(*kept.files) as names:
            kept.load()
            found = kept.locate(offset)
            if found is not None:
                offset = min(offset, found[1].base_offset)
            self._remove_after(kept, names)
            kept.truncate_to(offset)
            for file in kept.files:
                file.sync()
        self.tail.reset(offset)
        return offset

    @contextmanager
    def emptied(self, offset: int, config: LogConfig) -> Iterator[None]:
        """Remove all segments, do what needs an empty row, and start again at an offset. Without descriptors nothing
        has changed; any other error is fatal, because there may be no segment left to append to."""
        with self._names_open() as names, self._health.fatal():
            self._remove_after(None, names)
            yield
            self._add(Segment.create(self.files, self.directory, offset, config, 0))
            names.sync()

    def _remove_after(self, kept: Segment | None, names: File) -> None:
        """One by one: of two removals without a sync between them, a crash may undo the first and not the second."""
        while self.segments and self.segments[-1] is not kept:
            segment = self.segments.pop()
            self.durability.forget(segment.files)
            segment.remove()
            names.sync()
        if kept is not None:
            self.active = kept

    # Removing at the start, replacing in between

    def drop_oldest(self, count: int, due_ms: int) -> None:
        """They are renamed now, and removed later. They are no longer part of the row, even if one could not be
        renamed."""
        try:
            self._retire(self.segments[:count], due_ms)
        finally:
            del self.segments[:count]

    def replace(self, old: list[Segment], new: list[Segment], due_ms: int) -> None:
        """See `Log.replace_segments`."""
        swap_in(self.files, self.directory, new, lambda: self._retire(old, due_ms))
        self._watch(new)
        first = self.segments.index(old[0])
        self.segments[first : first + len(old)] = new

    def _retire(self, segments: list[Segment], due_ms: int) -> None:
        for segment in segments:
            self.durability.forget(segment.files)
            self._retired.add(segment, due_ms)

    # The files as a whole

    @contextmanager
    def _names_open(self, *others: File) -> Iterator[File]:
        """The directory, whose sync makes the names of files durable, and other files: all open, or none."""
        names = self.files.to_sync(self.directory)
        with pinned(names, *others):
            yield names

    def sync_names(self) -> None:
        with self._names_open() as names:
            self.durability.sync_open(names)

    def move(self, directory: str) -> None:
        """The directory was renamed."""
        segments = (*self.segments, *self._retired)
        files = {file for segment in segments for file in segment.files}.union(self.durability.dirty)
        for file in files:
            if file.path.startswith(self.directory):
                file.path = directory + file.path.removeprefix(self.directory)
        self.directory = directory

    def close(self) -> None:
        for segment in (*self.segments, *self._retired):
            segment.close()
