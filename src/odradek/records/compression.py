"""The five codecs of record batches, with a limit on the output.

A compressed batch may claim anything: a kilobyte of zstd can decompress to gigabytes. So output
goes into a buffer of our own size, which grows only while the codec says that it is too small, and never
beyond the caller's limit. The output is whole or refused:

    CORRUPT_MESSAGE                the compressed bytes are damaged
    MESSAGE_TOO_LARGE              they would decompress to more than the limit
    UNSUPPORTED_COMPRESSION_TYPE   a codec that Kafka does not know

Snappy is written in the framing of the Java library (xerial): a header of 16 bytes, then blocks that each
open with their length; plain snappy can be read as well, because some clients send it. LZ4 frames have
independent blocks, because the Java client reads no others. gzip and zstd may contain several frames in a row.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from types import ModuleType

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import Buffer

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_BYTES = 32 * 1024

FIRST_OUTPUT_BYTES = 64 * 1024
OUTPUT_GROWTH = 4
OUTPUT_FULL = "failed to write whole buffer"  # how cramjam says that the output buffer is too small

_INT32 = Struct(">i")


class Codec(IntEnum):
    """The values of the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


DEFAULT_GZIP_LEVEL = 6
DEFAULT_ZSTD_LEVEL = 3
DEFAULT_LZ4_LEVEL = 9  # Kafka's name for the fast compressor, which is level 1 in the C library
FAST_LZ4_LEVEL = 1


def codec_of(value: int) -> Codec:
    try:
        return Codec(value)
    except ValueError:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression codec {value}"
        ) from None


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """`level` is the codec's own; snappy has none."""
    return _COMPRESSORS[codec_of(codec)](data, level)


def decompress(codec: int, data: Buffer, limit: int) -> Buffer:
    """The decompressed bytes, or an error if there are more than `limit`."""
    codec = codec_of(codec)
    if codec is Codec.NONE:
        return _within_limit(data, limit)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(data, limit)
    return _decompress_stream(_stream_module(codec), data, limit)


def _within_limit(data: Buffer, limit: int) -> Buffer:
    if len(data) > limit:
        raise _too_large(limit)
    return data


def _too_large(limit: int) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"Records decompress to more than {limit} bytes")


def _corrupt(reason: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Compressed records are damaged: {reason}")


def _stream_module(codec: Codec) -> ModuleType:
    """Imported where first needed: a broker whose batches stay opaque never loads it."""
    import cramjam

    modules: dict[Codec, ModuleType] = {
        Codec.GZIP: cramjam.gzip,
        Codec.LZ4: cramjam.lz4,
        Codec.ZSTD: cramjam.zstd,
    }
    return modules[codec]


def _compress_none(data: Buffer, level: int | None) -> Buffer:
    return data


def _compress_gzip(data: Buffer, level: int | None) -> Buffer:
    return bytes(
        _stream_module(Codec.GZIP).compress(data, level=DEFAULT_GZIP_LEVEL if level is None else level)
    )


def _compress_zstd(data: Buffer, level: int | None) -> Buffer:
    return bytes(
        _stream_module(Codec.ZSTD).compress(data, level=DEFAULT_ZSTD_LEVEL if level is None else level)
    )


def _compress_lz4(data: Buffer, level: int | None) -> Buffer:
    if level is None or level == DEFAULT_LZ4_LEVEL:
        level = FAST_LZ4_LEVEL
    compressor = _stream_module(Codec.LZ4).Compressor(level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_snappy(data: Buffer, level: int | None) -> Buffer:
    from cramjam import snappy

    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts += [_INT32.pack(len(block)), block]
    return b"".join(parts)


_COMPRESSORS: dict[Codec, Callable[[Buffer, int | None], Buffer]] = {
    Codec.NONE: _compress_none,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}


def _decompress_stream(module: ModuleType, data: Buffer, limit: int) -> Buffer:
    """Frames do not reliably say how large their content is, and may lie: try, and grow."""
    from cramjam import DecompressionError

    size = min(limit, max(FIRST_OUTPUT_BYTES, OUTPUT_GROWTH * len(data)))
    while True:
        output = bytearray(size)
        try:
            written = module.decompress_into(data, output)
        except DecompressionError as error:
            if OUTPUT_FULL not in str(error):
                raise _corrupt(error) from None
            if size >= limit:
                raise _too_large(limit) from None
            size = min(limit, size * OUTPUT_GROWTH)
        else:
            del output[written:]
            return bytes(output)


def _decompress_snappy(data: Buffer, limit: int) -> Buffer:
    view = memoryview(data)
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit)
    if len(view) < len(XERIAL_HEADER):
        raise _corrupt("snappy header is cut short")
    parts: list[Buffer] = []
    total, position = 0, len(XERIAL_HEADER)
    while position < len(view):
        block, position = _next_snappy_block(view, position)
        part = _decompress_snappy_block(block, limit - total)
        total += len(part)
        parts.append(part)
    return b"".join(parts)


def _next_snappy_block(view: memoryview, position: int) -> tuple[memoryview, int]:
    if position + _INT32.size > len(view):
        raise _corrupt("snappy block length is cut short")
    (length,) = _INT32.unpack_from(view, position)
    start = position + _INT32.size
    if not 0 < length <= len(view) - start:
        raise _corrupt(f"snappy block of {length} bytes where {len(view) - start} remain")
    return view[start : start + length], start + length


def _decompress_snappy_block(block: memoryview, limit: int) -> Buffer:
    """A snappy block opens with its unfolded length, which is checked before anything is allocated."""
    from cramjam import DecompressionError, snappy

    try:
        size = snappy.decompress_raw_len(block)
        if size > limit:
            raise _too_large(limit)
        output = bytearray(size)
        written = snappy.decompress_raw_into(block, output)
    except DecompressionError as error:
        raise _corrupt(error) from None
    if written != size:
        raise _corrupt(f"snappy block has {written} bytes instead of {size}")
    return bytes(output)
