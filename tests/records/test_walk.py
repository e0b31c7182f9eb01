"""Stepping from batch to batch, over files in pieces and over buffers."""

import pytest

from odradek.records.batch import HEADER_SIZE, LENGTH_END, BatchHeader
from odradek.records.record import Record, build_batch
from odradek.records.walk import header_at, walk, whole_batches


def batch_at(offset: int, value_bytes: int = 10) -> bytes:
    return bytes(build_batch([Record(offset, 0, None, bytes(value_bytes))]))


BATCHES = [batch_at(offset, size) for offset, size in enumerate((10, 3000, 1, 500))]
DATA = b"".join(BATCHES)


class Source:
    """Bytes that remember which of them were read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[tuple[int, int]] = []

    def read_at(self, position: int, length: int) -> bytes:
        self.reads.append((position, length))
        return self.data[position : position + length]


@pytest.mark.parametrize("piece_bytes", [HEADER_SIZE, HEADER_SIZE + 1, 200, 8192])
def test_a_walk_finds_every_batch_however_small_the_pieces_are(piece_bytes: int) -> None:
    found = list(walk(Source(DATA).read_at, 0, len(DATA), piece_bytes))
    assert [DATA[position : position + header.size] for position, header in found] == BATCHES


def test_a_walk_reads_headers_and_not_the_records_between() -> None:
    source = Source(DATA)
    list(walk(source.read_at, 0, len(DATA), HEADER_SIZE))
    assert sum(length for _, length in source.reads) == len(BATCHES) * HEADER_SIZE


@pytest.mark.parametrize("cut", range(1, len(BATCHES[-1]) + 1))
def test_a_batch_that_is_cut_short_is_left_out(cut: int) -> None:
    data = memoryview(DATA)[:-cut]
    assert [bytes(batch) for _, batch in whole_batches(data)] == BATCHES[:-1]


def test_a_walk_ends_where_the_file_does_though_more_was_promised() -> None:
    found = walk(Source(DATA[: -len(BATCHES[-1])]).read_at, 0, len(DATA), 8192)
    assert len(list(found)) == len(BATCHES) - 1


@pytest.mark.parametrize(
    ("position", "value"),
    [(16, b"\x01"), (8, (HEADER_SIZE - LENGTH_END - 1).to_bytes(4, "big")), (8, b"\xff\xff\xff\xff")],
    ids=["another format", "too short for a header", "a negative length"],
)
def test_a_walk_ends_before_what_cannot_be_a_batch(position: int, value: bytes) -> None:
    damaged = bytearray(DATA)
    at = len(BATCHES[0]) + position
    damaged[at : at + len(value)] = value
    refused: list[BatchHeader] = []
    assert [batch.header.base_offset for batch in whole_batches(memoryview(damaged), refused.append)] == [0]
    assert [header.base_offset for header in refused] == [1]
    assert header_at(Source(bytes(damaged)).read_at, len(BATCHES[0]), len(damaged)) is None


def test_who_refuses_may_raise() -> None:
    def refuse(header: BatchHeader) -> None:
        raise ValueError(header.magic)

    with pytest.raises(ValueError, match="1"):
        list(whole_batches(memoryview(DATA[:16] + b"\x01" + DATA[17:]), refuse))
