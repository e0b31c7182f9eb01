"""Unsigned varints of at most 32 bits, seven of them in a byte."""

from odradek.wire.schema import Buffer


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits. Nearly all take one or two bytes."""
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    second = buffer[position + 1]
    if second < 0x80:
        return byte & 0x7F | second << 7, position + 2
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise ValueError("varint is longer than 5 bytes")
    if value > 0xFFFFFFFF:
        raise ValueError("varint is larger than 32 bits")
    return value, position


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
