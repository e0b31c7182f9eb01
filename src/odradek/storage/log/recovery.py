"""Finding out what a log contains when it is opened, and repairing it after a crash.

After a clean shutdown nothing is scanned: the end of the log is found from the last index entry. After a
crash every segment that was not known to be synced is read again from its start. Each batch must be whole,
offsets must increase and stay below the next segment, and leader epochs must not decrease. From the recovery
point on, the CRC must be right and the leader epoch must be the one on record for that offset. The log is cut
before the first batch that fails, and everything after it is dropped. The indexes of the segments read are rebuilt.

A gap in the offsets is never damage: compaction leaves gaps, followers copy them, and the topic's cleanup
policy may have changed since. But the base offset is not covered by the CRC. A flipped bit that lowers it, or
raises it into the next segment or by more than a segment can span, is detected at that batch. One that
raises it less is detected if an intact batch follows in the segment and contradicts it; the batch that jumped
ahead is then the damaged one. What is not detected: the last batch of a segment raised within these bounds
(its records keep their content under larger offsets), and damage to records below the recovery point, which
were synced and are not read again.

The files in the directory are authoritative. If a checkpoint contradicts them, it never removes a record: a recovery
point beyond the end of the log is ignored and everything is checked, and a log start offset beyond the end is ignored
unless the log has no record at all. But a recovery point names only what was committed and synced, so a log that ends
before it has lost committed records, even if the last shutdown was clean: it is damaged (`Contents.missing_until`).

A strict opening, which the metadata log asks for, tolerates less: see `Opening.strict`. It also writes again what is
beyond the recovery point: a sync that failed may have left it in the page cache alone, where it is read like anything
else and no later sync writes it.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from odradek.errors import DamagedData, KafkaError
from odradek.records.batch import BatchHeader
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import File
from odradek.storage.log.contents import Contents, LogHome
from odradek.storage.log.epochs import NO_EPOCH, LeaderEpochs
from odradek.storage.log.report import RecoveryReport
from odradek.storage.log.scan import SegmentScan
from odradek.storage.producers.replay import rebuild_producers, replay_batch
from odradek.storage.producers.snapshots import Snapshots
from odradek.storage.producers.state import Producers
from odradek.storage.segments.damage import DamagedSegment
from odradek.storage.segments.indexes import MAX_RELATIVE_OFFSET
from odradek.storage.segments.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
)
from odradek.storage.segments.swap import offset_of
from odradek.wording import count_of

logger = logging.getLogger(__name__)

REWRITE_BYTES = 1 << 20


class Opening(NamedTuple):
    """The facts about a log that are known before its directory is read.

    `strict` is for a log that must be complete or not be opened: it has no gaps, and the only damage that is
    cut off is a torn last batch beyond the recovery point, with no intact batch after it, unless it lies in an
    `unsynced_run`: from that offset on, batches were written without a sync between them that is known to have
    succeeded. Anything else raises `DamagedData` and removes nothing. All of it is checked, whatever the recovery
    point, but for segments that end before `needed_from`: what they hold is in a snapshot as well.
    """

    clean: bool  # the last shutdown was, so nothing needs recovery
    recovery_point: int = 0
    log_start_offset: int = 0
    strict: bool = False
    needed_from: int = 0
    unsynced_run: int | None = None
    missing_until: int = 0  # an earlier start found that the log had lost committed records up to here


class Recovery:
    """Brings the segments of one directory into a consistent state."""

    def __init__(
        self,
        home: LogHome,
        config: LogConfig,
        opening: Opening,
        epochs: LeaderEpochs,
        snapshots: Snapshots,
        report: RecoveryReport,
        now_ms: int,
    ) -> None:
        self.files = home.files
        self.directory = home.directory
        self.config = config
        self.opening = opening
        self.epochs = epochs
        self.snapshots = snapshots
        self.report = report
        self.now_ms = now_ms
        self.recovery_point = opening.recovery_point
        self.recovered: list[File] = []  # files that recovery went through
        self.producers: Producers | None = None  # as recovery left them
        self._epochs_on_record = bool(epochs.entries)

    def load(self, sizes: dict[str, int]) -> Contents:
        return self._load_segments(self._open_segments(sizes))

    def _load_segments(self, segments: list[Segment]) -> Contents:
        if not self.opening.clean or self._was_cut_short(segments):
            segments = self._recover_all(segments)
        start_offset = self.opening.log_start_offset
        if not any(segment.size for segment in segments):
            segments = self._begin_at(start_offset, segments)
        try:
            end_offset = segments[-1].next_offset()
            if self.opening.clean and end_offset > self.recovery_point > 0:
                self._check_last_offset(segments[-1])
        except DamagedSegment as damage:
            return self._open_damaged(segments, damage)
        if start_offset > end_offset:
            logger.warning(
                "%s ends at offset %d: ignoring log start offset %d of the checkpoint, which belongs to another log",
                self.directory,
                end_offset,
                start_offset,
            )
            start_offset = 0
        return self._contents(segments, max(start_offset, segments[0].base_offset), end_offset)

    def _check_last_offset(self, segment: Segment) -> None:
        """A clean stop leaves a recovery point at the end of the log. If the log ends after it, and would end there but
        for a gap before its last batch, the offset of that batch is damaged."""
        end_offset, suspect = segment.base_offset, None
        for position, header in segment.batches():
            gap = header.base_offset - end_offset
            suspect = (
                (position, end_offset) if gap and header.next_offset - gap == self.recovery_point else None
            )
            end_offset = header.next_offset
        if suspect is not None:
            raise segment.damaged_at(*suspect, "the batch there has an offset of a later one")

    def _was_cut_short(self, segments: list[Segment]) -> bool:
        """After a clean stop the log ends before its recovery point, though all that is left of it is sound."""
        with suppress(DamagedSegment):
            return (segments[-1].next_offset() if segments else 0) < self.recovery_point
        return False

    def _open_damaged(self, segments: list[Segment], damage: DamagedSegment) -> Contents:
        """After a clean stop the newest segment is damaged near its end. The checkpoint says where the log ended, and
        the next segment begins there: nothing is cut, since this may be the last copy. Without a checkpoint the log is
        recovered as after a crash."""
        end_offset, start_offset = self.opening.recovery_point, self.opening.log_start_offset
        if end_offset <= damage.offset or start_offset > end_offset:
            self.opening = self.opening._replace(clean=False)
            return self._load_segments(segments)
        following = Segment.create(self.files, self.directory, end_offset, self.config, self.now_ms)
        self.files.sync_directory(self.directory)
        segments = [*segments, following]
        return self._contents(segments, max(start_offset, segments[0].base_offset), end_offset)

    def _contents(self, segments: list[Segment], start_offset: int, end_offset: int) -> Contents:
        self.epochs.truncate_from_end(end_offset)
        self.epochs.truncate_from_start(start_offset)
        producers = self.producers
        if producers is None:
            producers = Producers()
            self._rebuild(producers, segments, end_offset)
        missing_until = max(self.opening.recovery_point, self.opening.missing_until)
        if end_offset >= missing_until:
            missing_until = 0
        return Contents(
            segments, self.epochs, self.snapshots, producers, start_offset, end_offset, missing_until
        )

    def _begin_at(self, offset: int, segments: list[Segment]) -> list[Segment]:
        """A log without records starts where its files or its log start offset say, whichever is later."""
        if segments and segments[-1].base_offset >= offset:
            return segments
        self._drop(segments, "it is empty, and before the log start offset")
        segment = Segment.create(self.files, self.directory, offset, self.config, self.now_ms)
        self.files.sync_directory(self.directory)
        self.producers = None
        self.recovered.clear()
        return [segment]

    def _open_segments(self, sizes: dict[str, int]) -> list[Segment]:
        bases = sorted(offset_of(name) for name in sizes if name.endswith(LOG_SUFFIX))
        known = set(bases)
        for name in [name for name in sizes if name.endswith(SEGMENT_SUFFIXES)]:
            if offset_of(name) not in known:
                self.files.remove(f"{self.directory}/{name}")  # an index without a log
        return [self._open_segment(base, sizes) for base in bases]

    def _open_segment(self, base_offset: int, sizes: dict[str, int]) -> Segment:
        missing = [
            suffix
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
            if file_name(base_offset, suffix) not in sizes
        ]
        for suffix in missing:
            self.files.create(f"{self.directory}/{file_name(base_offset, suffix)}").close()
        segment = Segment.open(self.files, self.directory, base_offset, sizes, self.config, self.now_ms)
        if missing:
            with suppress(DamagedSegment):  # the end is torn, or whoever reads there is told
                segment.rebuild_indexes()
        return segment

    def _recover_all(self, segments: list[Segment]) -> list[Segment]:
        point = self.recovery_point
        if self.opening.strict:
            self._check_continuity(segments)
            segments = self._without_leftovers(segments)
        recovered = self._recover(segments)
        end_offset = _end_of(recovered[-1]) if recovered else 0
        if end_offset >= point:
            return recovered
        if self.opening.strict:
            raise DamagedData(
                f"{self.directory} ends at offset {end_offset}, but it was synced up to offset {point}"
            )
        logger.warning(
            "%s is damaged: it ends at offset %d, but it was synced up to offset %d. Checking all of it; what is "
            "missing is copied from another replica, if there is one",
            self.directory,
            end_offset,
            point,
        )
        self.recovery_point = 0
        return self._recover(recovered)

    def _check_continuity(self, segments: list[Segment]) -> None:
        expected, segments = self.opening.needed_from, segments[self._first_to_read(segments) :]
        for slot, segment in enumerate(segments):
            if slot and segment.base_offset > expected and self._may_end_at(expected, segments[slot:]):
                return
            if segment.base_offset > expected or (slot and segment.base_offset < expected):
                raise DamagedData(
                    f"{segment.log.path} begins at offset {segment.base_offset}, but the segment before it "
                    f"ends at offset {expected}: a file is missing or damaged"
                )
            expected = _end_of(segment)

    def _may_end_at(self, offset: int, following: list[Segment]) -> bool:
        """A crash may lose what was not synced, and so what a roll has taken for synced by mistake: a sync that comes
        after one that failed succeeds. Then there is nothing yet in the new segment, or it is part of the run."""
        return offset >= self.recovery_point and (
            self._is_in_run(offset) or not any(segment.size for segment in following)
        )

    def _without_leftovers(self, segments: list[Segment]) -> list[Segment]:
        """A crash may undo the deletion of a segment, but not that of a later one. The segments before such a hole
        were deleted because they are in a snapshot."""
        for slot in range(self._first_to_read(segments), 0, -1):
            if _end_of(segments[slot - 1]) != segments[slot].base_offset:
                self._drop(
                    segments[:slot], "it was deleted before the crash, and the segments after it are gone"
                )
                return segments[slot:]
        return segments

    def _first_to_read(self, segments: list[Segment]) -> int:
        """The last segment that starts at or before the position to read from."""
        offset = self.opening.needed_from if self.opening.strict else self.recovery_point
        below = [slot for slot, segment in enumerate(segments) if segment.base_offset <= offset]
        return below[-1] if below else 0

    def _recover(self, segments: list[Segment]) -> list[Segment]:
        """Read everything again that may not have been synced, and cut at the first batch that is not whole."""
        self.recovered.clear()
        if not segments:
            return segments
        first = self._first_to_read(segments)
        producers = self.producers = Producers()
        self._rebuild(producers, segments[:first], segments[first].base_offset)
        for slot, segment in enumerate(segments[first:], first):
            snapshot = self.snapshots.write(producers, segment.base_offset)
            following = segments[slot + 1 :]
            is_whole = self._recover_segment(segment, producers, following)
            if self.opening.strict and following and segment.next_offset() < following[0].base_offset:
                self._drop(following if is_whole else [], "what comes before it was not synced, and is lost")
                is_whole = False
            self.recovered.extend(segment.files)
            if snapshot is not None:
                self.recovered.append(snapshot)
            if not is_whole:
                return segments[: slot + 1]
        return segments

    def _rebuild(self, producers: Producers, segments: list[Segment], end_offset: int) -> None:
        """A damaged log is opened all the same, without the producers whose batches cannot be reached."""
        with suppress(DamagedSegment):  # the log says so, once it has this segment
            rebuild_producers(producers, self.snapshots, segments, end_offset)

    def _recover_segment(self, segment: Segment, producers: Producers, following: list[Segment]) -> bool:
        """Check the batches, rebuild the indexes, cut what is damaged. True if nothing was. Otherwise those that follow
        are gone first: if a crash left one of them behind a segment that was cut, the hole would look lawful."""
        limit = following[0].base_offset - 1 if following else segment.base_offset + MAX_RELATIVE_OFFSET
        size, end_offset = segment.size, segment.base_offset
        segment.size = 0
        segment.reset_indexes()
        segment.aborted.truncate_to(0)
        self.report.segments_scanned += 1
        self.report.bytes_scanned += size
        scan = SegmentScan(segment.log, size)
        synced_size = 0
        for position, header in self._sound_batches(scan, segment.base_offset, limit):
            try:
                aborted = replay_batch(producers, segment, position, header)
            except KafkaError:
                break
            segment.appended(position, header.size, header.last_offset, header.max_timestamp)
            end_offset = header.next_offset
            if end_offset <= self.recovery_point:
                synced_size = segment.size
            if header.leader_epoch > self.epochs.latest:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            if aborted is not None:
                segment.aborted.append(aborted)
        if segment.size < size:
            if self.opening.strict:
                may_be_torn = self._may_end_at(end_offset, following)
                self._check_torn_tail(segment, scan, may_be_torn, may_be_torn and self._is_in_run(end_offset))
            self._report_cut(segment, scan, size, end_offset)
            self._drop(following, "it follows a damaged segment")
            segment.log.truncate(segment.size)
        if self.opening.strict:
            self._write_again(segment, synced_size)
        segment.finish()
        return segment.size == size

    @staticmethod
    def _write_again(segment: Segment, position: int) -> None:
        while position < segment.size:
            data = segment.log.read_at(position, min(REWRITE_BYTES, segment.size - position))
            if not data:
                raise DamagedData(
                    f"{segment.log.path} ends at {position}, and had {segment.size} bytes a moment ago"
                )
            segment.log.write_at(position, data)
            position += len(data)

    def _report_cut(self, segment: Segment, scan: SegmentScan, size: int, end_offset: int) -> None:
        records, position = 0, segment.size
        while (header := scan.header(position)) is not None:
            records += header.next_offset - header.base_offset
            position += header.size
        self.report.logs_cut += 1
        self.report.bytes_cut += size - segment.size
        self.report.records_cut += records
        lost = f"{count_of(records, 'record')} from there on {'is' if records == 1 else 'are'}"
        logger.warning(
            "cut %s from %d to %d bytes: the batch after offset %d is incomplete or damaged, so %s lost",
            segment.log.path,
            size,
            segment.size,
            end_offset - 1,
            lost if records else "it is",
        )

    def _is_in_run(self, offset: int) -> bool:
        return self.opening.unsynced_run is not None and offset >= self.opening.unsynced_run

    @staticmethod
    def _check_torn_tail(
        segment: Segment, scan: SegmentScan, may_be_torn: bool, may_be_followed: bool
    ) -> None:
        """A crash tears only batches that were not synced. There was one of them, unless they `may_be_followed` by
        others."""
        intact = scan.find_intact(segment.size)
        if (
            may_be_torn and intact == segment.size
        ):  # the CRC does not cover the base offset: it alone may be torn
            header = scan.header(segment.size)
            if header is not None and _is_torn(header.base_offset, segment.next_offset()):
                intact = scan.find_intact(segment.size + header.size)
        if (may_be_torn and intact is None) or may_be_followed:
            return
        what = f"{segment.log.path} is damaged at byte {segment.size}"
        if intact == segment.size:
            raise DamagedData(f"{what}: the batch there has the wrong offset or leader epoch")
        if intact is not None:
            raise DamagedData(f"{what}, and an intact batch follows at byte {intact}")
        raise DamagedData(f"{what}, which had been synced")

    def _sound_batches(
        self, scan: SegmentScan, expected_offset: int, limit: int
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from the start of a segment on, as far as they can be believed."""
        epoch, position = NO_EPOCH, 0
        while (header := scan.header(position)) is not None:
            if (
                header.base_offset < expected_offset
                or header.leader_epoch < epoch
                or header.last_offset > limit
                or (header.base_offset > expected_offset and not self._may_jump(scan, position, header))
            ):
                return
            if (self.opening.strict or header.base_offset >= self.recovery_point) and not (
                scan.is_intact(position, header) and self._has_its_epoch(header)
            ):
                return
            yield position, header
            expected_offset, epoch, position = header.next_offset, header.leader_epoch, position + header.size

    def _has_its_epoch(self, header: BatchHeader) -> bool:
        """An epoch is on record before its first batch is written, so any other is damage."""
        if not self._epochs_on_record:
            return True
        return self.epochs.epoch_for_offset(header.base_offset) in (NO_EPOCH, header.leader_epoch)

    def _may_jump(self, scan: SegmentScan, position: int, header: BatchHeader) -> bool:
        """A gap is allowed, unless the next batch is intact and goes back to before it: then the gap is not real."""
        following_position = position + header.size
        following = scan.header(following_position)
        return not self.opening.strict and (
            following is None
            or following.base_offset >= header.next_offset
            or not scan.is_intact(following_position, following)
        )

    def _drop(self, segments: list[Segment], reason: str) -> None:
        for segment in reversed(segments):
            logger.warning("removed %s of %d bytes: %s", segment.log.path, segment.size, reason)
            self.report.segments_removed += 1
            segment.remove()
            self.files.sync_directory(self.directory)  # before the next: see `SegmentRow`


def _end_of(segment: Segment) -> int:
    """The offset after the last batch that can be reached: before recovery, a segment may end with a torn one."""
    try:
        return segment.next_offset()
    except DamagedSegment as damage:
        return damage.offset


def _is_torn(found: int, written: int) -> bool:
    """True if an offset lacks its first bytes, which read as zeros because they were never on disk."""
    return found != written and any(found == written % 256**count for count in range(8))
