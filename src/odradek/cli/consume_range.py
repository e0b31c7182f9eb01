"""Decide where `odradek consume` starts and stops in each partition.

    -o earliest | latest      the oldest message, or only new ones
    -o N | -N                 this offset, or this many before the end
    -o @TIME                  the first message of that time or later
    -o A:B                    from offset A to before B, or to the current end; either may be left out
    --until latest | @TIME    the current end, or the first message of that time or later

An end is an offset if it can be known at the start. For a time in the future, the first message of that time or later
ends its partition, and so does the clock, once everything before has been read.
"""

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.admin.access import REQUEST_TIMEOUT_S
from odradek.admin.librdkafka import kafka
from odradek.admin.places import Place
from odradek.cli.arguments import offset_of, time_ms_of
from odradek.cli.framework import BadParameter
from odradek.wording import counted

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition


SHORT_SHOWN = 3
EARLIEST, LATEST = ("earliest", "beginning"), ("latest", "end")
OFFSETS = re.compile(r"(\d*):(\d*)")


@dataclass(frozen=True)
class Range:
    """The options as given: at most one of them names the start; without any, start at the end."""

    start: str = "latest"
    end_offset: int | None = None
    until: str | None = None

    @classmethod
    def of(
        cls, from_beginning: bool, offset: str | None, from_time: str | None, until: str | None
    ) -> "Range":
        if sum((from_beginning, offset is not None, from_time is not None)) > 1:
            raise BadParameter("give only one of --from-beginning, --offset and --from-time")
        if from_beginning:
            return cls("earliest", None, until)
        if from_time is not None:
            return cls(f"@{from_time}", None, until)
        if offset is None:
            return cls(until=until)
        between = OFFSETS.fullmatch(offset)
        if between is None:
            return cls(offset, None, until)
        if until is not None and between[2]:
            raise BadParameter("give the end either as --offset A:B or as --until")
        end = offset_of(between[2]) if between[2] else None
        return cls(between[1] or "earliest", end, until)

    def check(self) -> None:
        """Refuse bad usage before anything is asked of a cluster."""
        if self.start.startswith("@"):
            time_ms_of(self.start[1:])
        elif self.start not in EARLIEST + LATEST:
            offset_of(self.start)
        if self.until is not None and self.until not in LATEST:
            self.until_ms()

    def until_ms(self) -> int | None:
        if self.until is None or self.until in LATEST:
            return None
        return time_ms_of(self.until.removeprefix("@"))


@dataclass
class Ends:
    """The offset at which each partition ends; a partition without an end is followed."""

    offsets: dict[Place, int] = field(default_factory=dict)
    until_ms: int | None = None  # for partitions without a message that late

    @property
    def are_known(self) -> bool:
        return bool(self.offsets) or self.until_ms is not None

    def is_past(self, place: Place, offset: int, timestamp_ms: int | None) -> bool:
        """True if a message is at or after the end."""
        if place in self.offsets:
            return offset >= self.offsets[place]
        return self.until_ms is not None and timestamp_ms is not None and timestamp_ms >= self.until_ms

    def is_reached(self, place: Place, next_offset: int) -> bool:
        """True if everything before the end has been read, given that everything before `next_offset` has."""
        return place in self.offsets and next_offset >= self.offsets[place]

    def is_over(self, place: Place) -> bool:
        """True if the clock has passed the end of a partition that has been read completely."""
        return place not in self.offsets and self.until_ms is not None and _now_ms() >= self.until_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Starts:
    """The offset at which reading begins in each partition."""

    positions: "list[TopicPartition]"
    short: dict[Place, int] = field(
        default_factory=dict
    )  # partitions that end before the wanted offset, and where

    @property
    def are_all_short(self) -> bool:
        return bool(self.short) and len(self.short) == len(self.positions)

    def shortage(self, offset: str) -> str:
        """A sentence about the partitions that end before the wanted offset."""
        named = [f"{place.topic}-{place.partition} at {end}" for place, end in sorted(self.short.items())]
        more = len(named) - SHORT_SHOWN
        listed = ", ".join(named[:SHORT_SHOWN]) + (f" and {more} more" if more > 0 else "")
        return f"offset {offset} is beyond the end of {counted(len(named), 'partition')}: {listed}"


def starts(consumer: Any, places: Sequence[Place], wanted: Range) -> Starts:
    if wanted.start.startswith("@"):
        time_ms = time_ms_of(wanted.start[1:])
        at_time = [kafka.TopicPartition(*place, time_ms) for place in places]
        return Starts(list(consumer.offsets_for_times(at_time, timeout=REQUEST_TIMEOUT_S)))
    found = Starts([])
    for place in places:
        offset, end = _start_offset(consumer, place, wanted.start)
        if end is not None and offset > end:
            found.short[place] = offset = end
        found.positions.append(kafka.TopicPartition(*place, offset))
    return found


def _start_offset(consumer: Any, place: Place, start: str) -> tuple[int, int | None]:
    """The offset to start at, and that of the partition's end where it is known."""
    if start in EARLIEST:
        return int(kafka.OFFSET_BEGINNING), None
    first, end = watermarks(consumer, place)
    if start in LATEST:
        # Look it up now instead of leaving it to librdkafka, so that no message sent from now on is missed.
        return end, end
    offset = offset_of(start)
    return max(first, offset if offset >= 0 else end + offset), end


def ends(consumer: Any, places: Iterable[Place], wanted: Range) -> Ends:
    places = list(places)
    if wanted.end_offset is not None:
        last = wanted.end_offset  # a partition that is shorter would never reach it
        return Ends({place: min(last, watermarks(consumer, place)[1]) for place in places})
    if wanted.until is None:
        return Ends()
    until_ms = wanted.until_ms()
    if until_ms is None:
        return Ends({place: watermarks(consumer, place)[1] for place in places})
    at_time = [kafka.TopicPartition(*place, until_ms) for place in places]
    found = consumer.offsets_for_times(at_time, timeout=REQUEST_TIMEOUT_S)
    offsets = {Place(one.topic, one.partition): one.offset for one in found if one.offset >= 0}
    late = [place for place in places if place not in offsets]
    if until_ms <= _now_ms():
        offsets |= {place: watermarks(consumer, place)[1] for place in late}
    return Ends(offsets, until_ms)


def watermarks(consumer: Any, place: Place) -> tuple[int, int]:
    """The first offset of the log, and the offset of the next message."""
    first, end = consumer.get_watermark_offsets(kafka.TopicPartition(*place), timeout=REQUEST_TIMEOUT_S)
    return int(first), int(end)
