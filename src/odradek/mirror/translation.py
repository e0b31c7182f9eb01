"""Offsets of the source to offsets of its copy, and back, by the positions that are kept.

**Never skip a record; repeat few.** Between two kept positions it is known how many records were copied, not which. Of
the n records from the earlier one up to the later one's end b, at most b - s are at the source offset s or after it, so
at least n - (b - s) are before it, and so many offsets of the copy may be skipped. That is exact as long as every
offset between is a record. Each that is not (markers, aborted records, those that compaction took) costs one repeated
record at most, on either side.

The way back asks the same question with the roles exchanged: how many of the records are surely before an offset of the
copy?
"""

from collections.abc import Iterable
from typing import NamedTuple

from odradek.mirror.position import NO_TARGET, Position


class Span(NamedTuple):
    """Records that were copied from source offsets `[begin, end)` to target offsets `[target, target_end)`."""

    begin: int
    end: int
    target: int
    target_end: int
    records: int

    def exchanged(self) -> "Span":
        return Span(self.target, self.target_end, self.begin, self.end, self.records)


def spans_of(positions: Iterable[Position]) -> list[Span]:
    """The kept transactions, and before each what was copied by those that are not kept. All are of one pair of
    topics; those whose place in the copy is not known count as not kept."""
    spans: list[Span] = []
    total, source, target = 0, -1, 0  # where the span before has ended
    for one in sorted(positions, key=lambda position: position.number):
        if one.target == NO_TARGET:
            continue
        spans.append(
            Span(
                one.origin if source < 0 else source,
                one.begin,
                target,
                one.target,
                one.total - one.records - total,
            )
        )
        spans.append(Span(one.begin, one.next, one.target, one.target_next, one.records))
        total, source, target = one.total, one.next, one.target_next
    return spans


def to_target(positions: Iterable[Position], offset: int) -> int | None:
    """An offset of the copy from which no record is missing that is at the source's offset or after it. None: nothing
    is known about offsets so low, and the copy's first record is the response."""
    return _translated(spans_of(positions), offset)


def to_source(positions: Iterable[Position], offset: int) -> int | None:
    """The way back: an offset of the source from which no record is missing that is at the copy's or after it."""
    return _translated([one.exchanged() for one in spans_of(positions)], offset)


def _translated(spans: Iterable[Span], offset: int) -> int | None:
    response = None
    for span in spans:
        if offset < span.begin:
            break
        at_or_after = span.end - offset
        reached = span.target + max(span.records - at_or_after, 0) if at_or_after > 0 else span.target_end
        response = max(response or 0, reached)
    return response
