"""Strings within a value: where they end, whether they are UTF-8, and what their escapes mean.

A kernel notes where a string is, as a *span* in one number; `gather` copies the strings of a column afterwards.
"""

import numpy as np
import numpy.typing as npt

from odradek.spark.compiled import compiled, read_only
from odradek.spark.decoding_kernel import copy_bytes

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

QUOTE, BACKSLASH = 34, 92


def _plain_bytes() -> npt.NDArray[np.uint8]:
    """1 for bytes that need no look within a string: ASCII but control characters, quote and backslash."""
    plain = np.zeros(256, np.uint8)
    plain[0x20:0x80] = 1
    plain[[QUOTE, BACKSLASH]] = 0
    return plain


def _escapes() -> npt.NDArray[np.uint8]:
    """Return what each letter after a backslash stands for; 0 for letters that mean nothing."""
    escapes = np.zeros(256, np.uint8)
    for letter, meaning in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
        escapes[letter] = meaning
    return escapes


PLAIN, ESCAPES = read_only(_plain_bytes()), read_only(_escapes())


@compiled
def span_of(start: int, end: int, has_escapes: bool) -> int:
    return start << 32 | (end - start) << 1 | (1 if has_escapes else 0)


@compiled
def after_character(data: Bytes, position: int, end: int) -> int:
    """The position after a character of more than one byte; -1 if it is not UTF-8."""
    first = data[position]
    if 0xC2 <= first <= 0xDF:
        size, lowest, highest = 2, 0x80, 0xBF
    elif 0xE0 <= first <= 0xEF:
        size, lowest, highest = 3, 0xA0 if first == 0xE0 else 0x80, 0x9F if first == 0xED else 0xBF
    elif 0xF0 <= first <= 0xF4:
        size, lowest, highest = 4, 0x90 if first == 0xF0 else 0x80, 0x8F if first == 0xF4 else 0xBF
    else:
        return -1
    if position + size > end or not lowest <= data[position + 1] <= highest:
        return -1
    for index in range(position + 2, position + size):
        if not 0x80 <= data[index] <= 0xBF:
            return -1
    return position + size


@compiled
def is_utf8(data: Bytes, position: int, end: int) -> bool:
    while position < end:
        if data[position] < 0x80:
            position += 1
        else:
            position = after_character(data, position, end)
            if position < 0:
                return False
    return True


@compiled
def utf8_rows(data: Bytes, ends: Int32s) -> npt.NDArray[np.bool_]:
    good = np.empty(ends.size - 1, np.bool_)
    for row in range(good.size):
        start, end = np.int64(ends[row]), np.int64(ends[row + 1])
        good[row] = is_utf8(data, start, end)  # type: ignore[arg-type]
    return good


@compiled
def hexadecimal(data: Bytes, position: int) -> int:
    """Four hexadecimal digits; -1 if they are none."""
    number = 0
    for index in range(position, position + 4):
        digit = data[index]
        if 48 <= digit <= 57:
            number = number * 16 + digit - 48
        elif 97 <= digit | 32 <= 102:
            number = number * 16 + (digit | 32) - 87
        else:
            return -1
    return number


@compiled
def escaped_character(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """The character that an escape stands for, and the position after it: -1 for half of a surrogate pair."""
    if position + 1 >= end:
        return 0, -1
    letter = data[position + 1]
    if letter != 117:
        return np.int64(ESCAPES[letter]), position + 2 if ESCAPES[letter] else -1  # type: ignore[return-value]
    if position + 6 > end:
        return 0, -1
    code = hexadecimal(data, position + 2)
    if code < 0 or 0xDC00 <= code <= 0xDFFF:
        return 0, -1
    if code < 0xD800:
        return code, position + 6
    if code > 0xDFFF:
        return code, position + 6
    if position + 12 > end or data[position + 6] != BACKSLASH or data[position + 7] != 117:
        return 0, -1
    low = hexadecimal(data, position + 8)
    if not 0xDC00 <= low <= 0xDFFF:
        return 0, -1
    return 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00, position + 12


@compiled
def scan_string(data: Bytes, position: int, end: int) -> tuple[int, bool]:
    """Scan from after the opening quote: return the position of the closing one (-1: not a plain string), and whether
    there are escapes.
    """
    has_escapes = False
    while position < end:
        byte = data[position]
        if PLAIN[byte]:
            position += 1
        elif byte == QUOTE:
            return position, has_escapes
        elif byte == BACKSLASH:
            has_escapes = True
            _, position = escaped_character(data, position, end)
        elif byte >= 0x80:
            position = after_character(data, position, end)
        else:
            return -1, False
        if position < 0:
            return -1, False
    return -1, False


@compiled
def put_character(code: int, target: Bytes, at: int) -> int:
    """Append a character as UTF-8; returns the position after it."""
    if code < 0x80:
        target[at] = code
        return at + 1
    if code < 0x800:
        target[at] = 0xC0 | code >> 6
        target[at + 1] = 0x80 | code & 0x3F
        return at + 2
    if code < 0x10000:
        target[at] = 0xE0 | code >> 12
        target[at + 1] = 0x80 | code >> 6 & 0x3F
        target[at + 2] = 0x80 | code & 0x3F
        return at + 3
    target[at] = 0xF0 | code >> 18
    target[at + 1] = 0x80 | code >> 12 & 0x3F
    target[at + 2] = 0x80 | code >> 6 & 0x3F
    target[at + 3] = 0x80 | code & 0x3F
    return at + 4


@compiled
def unescape(data: Bytes, position: int, end: int, target: Bytes, at: int) -> int:
    while position < end:
        if data[position] == BACKSLASH:
            code, position = escaped_character(data, position, end)
            at = put_character(code, target, at)
        else:
            target[at] = data[position]
            at += 1
            position += 1
    return at


@compiled
def spanned_bytes(spans: Int64s, present: Bytes) -> int:
    total = 0
    for row in range(spans.size):
        if present[row]:
            total += (spans[row] & 0xFFFFFFFF) >> 1
    return total


@compiled
def gather(data: Bytes, spans: Int64s, present: Bytes, ends: Int32s, target: Bytes) -> int:
    """Copy the strings of a column one after the other. `target` has room for all; escapes make them shorter."""
    at: int = np.int64(0)  # type: ignore[assignment]  # to numba, a literal is of another type
    ends[0] = 0
    for row in range(spans.size):
        if present[row]:
            span = spans[row]
            start, length = span >> 32, (span & 0xFFFFFFFF) >> 1
            if span & 1:
                at = unescape(data, start, start + length, target, at)
            else:
                copy_bytes(data, start, target, at, length)
                at += length
        ends[row + 1] = at
    return at
