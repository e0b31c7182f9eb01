"""The newest batches of a log, against all of them."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.segments.tail import MAX_BATCHES, Tail


@given(st.integers(0, 3), st.integers(1, MAX_BATCHES * 2), st.integers(1, 4), st.integers(0, 2))
def test_every_offset_from_the_floor_on_is_found(floor: int, count: int, records: int, gap: int) -> None:
    tail = Tail()
    tail.reset(floor)
    batches = []
    offset = floor
    for number in range(count):
        last_offset = offset + gap + records - 1
        tail.add(last_offset, number * 100)
        batches.append((last_offset, number * 100))
        offset = last_offset + 1
    end = count * 100
    assert tail.floor <= max(floor, offset - MAX_BATCHES // 2 * (records + gap))
    for target in {tail.floor, min(tail.floor + 1, offset - 1), offset - 1, (tail.floor + offset - 1) // 2}:
        position = next(position for last_offset, position in batches if last_offset >= target)
        assert tail.locate(target, end) == (position, 100)
    assert tail.locate(offset, end) == (end, 0)
