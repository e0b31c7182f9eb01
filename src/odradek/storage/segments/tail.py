"""The positions of the newest batches of a log, so that reading at its end needs no index and no disk.

Consumers that keep up and followers ask for the last few batches over and over, and the high watermark is
among them. For each batch its last offset and its position are kept, compactly, a bounded number of them.
"""

from array import array
from bisect import bisect_left

MAX_BATCHES = 1024


class Tail:
    """The newest batches of the active segment, without a hole from `floor` on."""

    __slots__ = ("_last_offsets", "_positions", "floor")

    def __init__(self) -> None:
        self._last_offsets = array("q")
        self._positions = array("q")
        self.floor = 0  # offsets below are not covered

    def reset(self, floor: int) -> None:
        """Nothing is known below this offset, which is the log's end."""
        self.floor = floor
        del self._last_offsets[:], self._positions[:]

    def add(self, last_offset: int, position: int) -> None:
        self._last_offsets.append(last_offset)
        self._positions.append(position)
        if len(self._positions) > MAX_BATCHES:
            half = MAX_BATCHES // 2
            self.floor = self._last_offsets[half - 1] + 1
            del self._last_offsets[:half], self._positions[:half]

    def locate(self, offset: int, end: int) -> tuple[int, int]:
        """Position and size of the first batch that ends at or after an offset; `end` is the segment's."""
        slot = bisect_left(self._last_offsets, offset)
        positions = self._positions
        if slot >= len(positions):
            return end, 0
        position = positions[slot]
        return position, (positions[slot + 1] if slot + 1 < len(positions) else end) - position
