"""Reading record batches without the product's own walk and checks, which may be what is broken."""

from collections.abc import Iterator

from crc32c import crc32c

from odradek.records.batch import CRC_START, HEADER_SIZE, BatchHeader, read_header


def whole_batches(data: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Up to the first that is cut short."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        end = position + header.size
        if header.size < HEADER_SIZE or end > len(data):
            return
        yield header, data[position:end]
        position = end


def is_intact(batch: memoryview, header: BatchHeader) -> bool:
    return bool(crc32c(batch[CRC_START:]) == header.crc)
