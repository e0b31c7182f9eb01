"""Codecs: what clients write is read, what we write they read, and nobody's bytes outgrow the limit."""

import gzip
import tracemalloc
from collections.abc import Callable

import aiokafka.codec
import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.errors import ErrorCode, KafkaError
from odradek.records.compression import XERIAL_HEADER, Codec, compress, decompress

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"the spool of thread outlives its keeper " * 3000
LIMIT = 1 << 20

data_of_any_kind = st.one_of(
    st.binary(max_size=2000),
    st.builds(lambda piece, count: piece * count, st.binary(max_size=50), st.integers(0, 5000)),
)


@pytest.mark.parametrize("codec", list(Codec))
@settings(max_examples=50, deadline=None, derandomize=True)
@given(data=data_of_any_kind)
def test_what_goes_in_comes_out(codec: Codec, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data), max(len(data), 1))) == data
    assert bytes(decompress(codec, memoryview(bytes(compress(codec, memoryview(data)))), LIMIT)) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_the_limit_holds_to_the_byte(codec: Codec) -> None:
    compressed = compress(codec, TEXT)
    assert bytes(decompress(codec, compressed, len(TEXT))) == TEXT
    with pytest.raises(KafkaError) as error:
        decompress(codec, compressed, len(TEXT) - 1)
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_does_not_go_off(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(KafkaError) as error:
        decompress(codec, bomb, LIMIT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert peak < 4 * LIMIT


def test_a_snappy_block_that_lies_about_its_size_allocates_nothing() -> None:
    four_gigabytes = b"\xff\xff\xff\xff\x0f" + b"\x00a"
    for data in (four_gigabytes, XERIAL_HEADER + len(four_gigabytes).to_bytes(4, "big") + four_gigabytes):
        with pytest.raises(KafkaError) as error:
            decompress(Codec.SNAPPY, data, LIMIT)
        assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", COMPRESSED)
def test_cut_short_at_every_byte(codec: Codec) -> None:
    data = b"some text, " * 20
    compressed = bytes(compress(codec, data))
    for length in range(len(compressed)):
        try:
            # Snappy's framing does not tell how many blocks there are, so a cut between them goes unnoticed.
            assert data.startswith(bytes(decompress(codec, compressed[:length], LIMIT)))
            assert codec is Codec.SNAPPY
        except KafkaError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("codec", COMPRESSED)
@settings(max_examples=200, deadline=None, derandomize=True)
@given(changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_are_refused_or_read_but_never_crash(
    codec: Codec, changes: list[tuple[int, int]]
) -> None:
    damaged = bytearray(compress(codec, b"some text, " * 40))
    for position, value in changes:
        damaged[position % len(damaged)] = value
    try:
        assert len(decompress(codec, damaged, LIMIT)) <= LIMIT
    except KafkaError as error:
        assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codecs(codec: int) -> None:
    for work in (lambda: compress(codec, b""), lambda: decompress(codec, b"", LIMIT)):
        with pytest.raises(KafkaError) as error:
            work()
        assert error.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


ENCODERS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: aiokafka.codec.gzip_encode,
    Codec.SNAPPY: aiokafka.codec.snappy_encode,
    Codec.LZ4: aiokafka.codec.lz4_encode,
    Codec.ZSTD: aiokafka.codec.zstd_encode,
}
DECODERS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: aiokafka.codec.gzip_decode,
    Codec.SNAPPY: aiokafka.codec.snappy_decode,
    Codec.LZ4: aiokafka.codec.lz4_decode,
    Codec.ZSTD: aiokafka.codec.zstd_decode,
}


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_client_reads_what_we_write_and_we_what_it_writes(codec: Codec) -> None:
    assert bytes(DECODERS[codec](bytes(compress(codec, TEXT)))) == TEXT
    assert bytes(decompress(codec, bytes(ENCODERS[codec](TEXT)), LIMIT)) == TEXT


def test_plain_snappy_is_read() -> None:
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), LIMIT)) == TEXT


def test_snappy_is_written_as_the_java_library_does() -> None:
    compressed = bytes(compress(Codec.SNAPPY, bytes(70_000)))
    assert compressed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    position, sizes = 16, []
    while position < len(compressed):
        length = int.from_bytes(compressed[position : position + 4], "big")
        block = compressed[position + 4 : position + 4 + length]
        sizes.append(cramjam.snappy.decompress_raw_len(block))
        position += 4 + length
    assert sizes == [32768, 32768, 70_000 - 65536]


def test_lz4_blocks_are_independent() -> None:
    """The Java client refuses dependent ones."""
    compressed = bytes(compress(Codec.LZ4, TEXT))
    assert compressed[:4] == b"\x04\x22\x4d\x18"
    version_bits, independent_bit = compressed[4] >> 6, compressed[4] >> 5 & 1
    assert (version_bits, independent_bit) == (1, 1)


def test_several_frames_in_a_row() -> None:
    for codec, one in ((Codec.GZIP, gzip.compress), (Codec.ZSTD, cramjam.zstd.compress)):
        frames = bytes(one(b"first ")) + bytes(one(b"second"))
        assert bytes(decompress(codec, frames, LIMIT)) == b"first second"


def test_a_zstd_frame_that_does_not_tell_its_size() -> None:
    compressor = cramjam.zstd.Compressor()
    compressor.compress(TEXT)
    assert bytes(decompress(Codec.ZSTD, bytes(compressor.finish()), LIMIT)) == TEXT


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, [1, 6, 9]), (Codec.LZ4, [1, 9, 12, 17]), (Codec.ZSTD, [-131072, -1, 3, 22])],
)
def test_levels_that_kafka_allows(codec: Codec, levels: list[int]) -> None:
    for level in levels:
        assert bytes(decompress(codec, compress(codec, TEXT, level), LIMIT)) == TEXT
