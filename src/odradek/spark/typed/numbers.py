"""Decimal text to numbers, exactly as Java reads them, or not at all.

A number is read as a mantissa of at most 19 digits and a power of ten. A double is then the nearest one, ties to even,
as every correct parser finds: for small numbers a single division or multiplication of exact doubles is rounded
right (Clinger); for the others, the product with a 128-bit power of five (Eisel and Lemire). What neither can tell,
such as a subnormal number, is left alone.
"""

import numpy as np
import numpy.typing as npt

from odradek.spark.compiled import compiled, read_only

Bytes = npt.NDArray[np.uint8]

MAX_DIGITS = 19  # of a mantissa: it fits 64 bits
MAX_EXPONENT_DIGITS = 3
LOWEST_POWER, HIGHEST_POWER = -342, 308
MANTISSA_BITS = 52


def _powers_of_five() -> npt.NDArray[np.uint64]:
    """128 bits of each power, the highest bit set, as two numbers; negative powers are rounded up."""
    mask, found = (1 << 64) - 1, []
    for power in range(LOWEST_POWER, HIGHEST_POWER + 1):
        if power < 0:
            divisor = 5**-power
            bits = (divisor - 1).bit_length()
            scaled = (1 << (bits + 127 if power >= -27 else 2 * bits + 128)) // divisor + 1
        else:
            scaled = 5**power << 128
        scaled >>= scaled.bit_length() - 128
        found += [scaled >> 64, scaled & mask]
    return np.array(found, np.uint64)


POWERS_OF_FIVE = read_only(_powers_of_five())
EXACT_POWERS = read_only(np.array([10.0**power for power in range(23)]))
WHOLE_POWERS = read_only(np.array([10**power for power in range(19)], np.int64))


@compiled
def read_number(data: Bytes, position: int, end: int) -> tuple[int, np.uint64, int, int, bool, bool]:
    """A number by JSON's grammar: (position after it, mantissa, fraction, exponent, is negative, is whole).

    The position is -1 if it is no number, or has too many digits. `fraction` counts the digits after the point, so the
    mantissa's power of ten is `exponent - fraction`.
    """
    mantissa, digits, fraction, exponent = np.uint64(0), 0, 0, 0
    failed = (-1, mantissa, 0, 0, False, False)
    negative = position < end and data[position] == 45
    if negative:
        position += 1
    start = position
    while position < end and 48 <= data[position] <= 57:
        if digits > 0 or data[position] != 48:
            digits += 1
            mantissa = mantissa * np.uint64(10) + np.uint64(data[position] - 48)
        position += 1
    if position == start or (data[start] == 48 and position - start > 1):
        return failed
    whole = True
    if position < end and data[position] == 46:
        whole = False
        position += 1
        start = position
        while position < end and 48 <= data[position] <= 57:
            if digits > 0 or data[position] != 48:
                digits += 1
                mantissa = mantissa * np.uint64(10) + np.uint64(data[position] - 48)
            position += 1
        fraction = position - start
        if fraction == 0:
            return failed
    if digits > MAX_DIGITS or fraction > 300:
        return failed
    if position < end and (data[position] == 101 or data[position] == 69):
        whole = False
        position += 1
        below_zero = position < end and data[position] == 45
        if position < end and (data[position] == 45 or data[position] == 43):
            position += 1
        start = position
        while position < end and 48 <= data[position] <= 57 and position - start <= MAX_EXPONENT_DIGITS:
            exponent = exponent * 10 + data[position] - 48
            position += 1
        if position == start or position - start > MAX_EXPONENT_DIGITS:
            return failed
        if below_zero:
            exponent = -exponent
    return position, mantissa, fraction, exponent, negative, whole


@compiled
def skip_number(data: Bytes, position: int, end: int) -> int:
    """The position after a number by JSON's grammar, of any size that Jackson reads; -1 for none."""
    first = position
    if position < end and data[position] == 45:
        position += 1
    start = position
    while position < end and 48 <= data[position] <= 57:
        position += 1
    if position == start or (data[start] == 48 and position - start > 1):
        return -1
    if position < end and data[position] == 46:
        position += 1
        start = position
        while position < end and 48 <= data[position] <= 57:
            position += 1
        if position == start:
            return -1
    if position < end and (data[position] == 101 or data[position] == 69):
        position += 1
        if position < end and (data[position] == 45 or data[position] == 43):
            position += 1
        start = position
        while position < end and 48 <= data[position] <= 57:
            position += 1
        if position == start or position - start > MAX_EXPONENT_DIGITS:
            return -1
    return position if position - first <= 500 else -1


@compiled
def to_long(mantissa: np.uint64, negative: bool, lowest: int, highest: int) -> tuple[bool, int]:
    """A whole number within limits."""
    if negative:
        if mantissa > np.uint64(1) << np.uint64(63):
            return False, 0
        number = -np.int64(mantissa)
    else:
        if mantissa >= np.uint64(1) << np.uint64(63):
            return False, 0
        number = np.int64(mantissa)
    return lowest <= number <= highest, number  # type: ignore[return-value]


@compiled
def product(one: np.uint64, other: np.uint64) -> tuple[np.uint64, np.uint64]:
    """All 128 bits, high and low."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    low_low = (one & mask) * (other & mask)
    low_high = (one & mask) * (other >> half)
    high_low = (one >> half) * (other & mask)
    middle = (low_low >> half) + (low_high & mask) + (high_low & mask)
    high = (one >> half) * (other >> half) + (low_high >> half) + (high_low >> half) + (middle >> half)
    return high, (middle << half) | (low_low & mask)


@compiled
def leading_zeros(number: np.uint64) -> int:
    zeros = 0
    for bits in (32, 16, 8, 4, 2, 1):
        if number >> np.uint64(64 - bits) == np.uint64(0):
            zeros += bits
            number <<= np.uint64(bits)
    return zeros


@compiled
def double_of(bits: np.uint64) -> float:
    return np.uint64(bits).view(np.float64)


@compiled
def bits_of(number: float) -> np.int64:
    return np.float64(number).view(np.int64)


@compiled
def to_double(mantissa: np.uint64, power: int, negative: bool) -> tuple[bool, float]:
    """The double that is nearest to mantissa · 10^power. False if that is not decided here."""
    if mantissa == np.uint64(0):
        return True, -0.0 if negative else 0.0
    if mantissa <= np.uint64(1) << np.uint64(53) and -22 <= power <= 22:
        number = np.float64(mantissa)
        number = number / EXACT_POWERS[-power] if power < 0 else number * EXACT_POWERS[power]
        return True, -number if negative else number
    if power < LOWEST_POWER or power > HIGHEST_POWER:
        return False, 0.0
    return _by_product(mantissa, power, negative)


@compiled
def _by_product(mantissa: np.uint64, power: int, negative: bool) -> tuple[bool, float]:
    zeros = leading_zeros(mantissa)
    normal, index = mantissa << np.uint64(zeros), 2 * (power - LOWEST_POWER)
    high, low = product(normal, POWERS_OF_FIVE[index])
    if high & np.uint64(0x1FF) == np.uint64(0x1FF):
        more, _ = product(normal, POWERS_OF_FIVE[index + 1])
        low += more
        if more > low:
            high += np.uint64(1)
    if low == np.uint64(0xFFFFFFFFFFFFFFFF) and (power < -27 or power > 55):
        return False, 0.0
    upper = np.int64(high >> np.uint64(63))
    shift = np.uint64(upper + 64 - MANTISSA_BITS - 3)
    bits = high >> shift
    exponent = ((217706 * power) >> 16) + 63 + upper - zeros + 1023
    if exponent <= 0:
        return False, 0.0
    if (
        low <= np.uint64(1)
        and -4 <= power <= 23
        and bits & np.uint64(3) == np.uint64(1)
        and bits << shift == high
    ):
        bits ^= np.uint64(1)
    bits = (bits + (bits & np.uint64(1))) >> np.uint64(1)
    if bits >= np.uint64(2) << np.uint64(MANTISSA_BITS):
        bits = np.uint64(1) << np.uint64(MANTISSA_BITS)
        exponent += 1
    if exponent >= 0x7FF:
        return False, 0.0
    bits &= (np.uint64(1) << np.uint64(MANTISSA_BITS)) - np.uint64(1)
    bits |= np.uint64(exponent) << np.uint64(MANTISSA_BITS)
    if negative:
        bits |= np.uint64(1) << np.uint64(63)
    return True, double_of(bits)


@compiled
def fits_float(number: float) -> bool:
    """True if rounding this double to a float gives the float nearest to the text that it was read from.

    That fails only next to the middle between two floats, and where floats end or become subnormal.
    """
    if number == 0.0:
        return True
    if not 1.2e-38 < abs(number) < 3.4e38:
        return False
    rest = bits_of(number) & np.int64(0x1FFFFFFF)
    return not 0x0FFFFFFF <= rest <= 0x10000001


@compiled
def to_unscaled(
    mantissa: np.uint64, fraction: int, negative: bool, precision: int, scale: int
) -> tuple[bool, int]:
    """The whole number that is a decimal of that scale, if it needs no rounding and fits 18 digits."""
    if fraction > scale or scale - fraction > 18:
        return False, 0
    limit = WHOLE_POWERS[min(precision, 18)]
    factor = WHOLE_POWERS[scale - fraction]
    if mantissa > np.uint64(limit // factor):
        return False, 0
    number = np.int64(mantissa) * factor
    if number >= limit:
        return False, 0
    return True, -number if negative else number
