"""One value of a type without parts, as the 64-bit cell that its column keeps.

Whole numbers, dates and times are themselves, decimals are unscaled, doubles and floats are the bits of a double,
strings are spans.
"""

import numpy as np
import numpy.typing as npt

from odradek.spark.compiled import compiled
from odradek.spark.typed.numbers import bits_of, fits_float, read_number, to_double, to_long, to_unscaled
from odradek.spark.typed.program import (
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    LOCAL_TIMESTAMP,
    TIMESTAMP,
    WHOLE,
)
from odradek.spark.typed.times import MICROSECONDS, read_date, read_timestamp

Bytes = npt.NDArray[np.uint8]
MAX_EPOCH_SECONDS = 10**11


@compiled
def number_cell(data: Bytes, position: int, end: int, kind: int, low: int, high: int) -> tuple[int, int]:
    """The position after a number, -1 if it is not decided, and its cell."""
    after, mantissa, fraction, exponent, negative, whole = read_number(data, position, end)
    if after < 0:
        return -1, 0
    good, cell = False, 0
    if kind == WHOLE:
        if whole:
            good, cell = to_long(mantissa, negative, low, high)
    elif kind in (DOUBLE, FLOAT):
        if not (whole and negative and mantissa == np.uint64(0)):  # is -0 negative as a double? Spark knows
            good, number = to_double(mantissa, exponent - fraction, negative)
            good = good and (kind == DOUBLE or fits_float(number))
            cell = bits_of(number)  # type: ignore[assignment]
    elif kind == DECIMAL:
        if exponent == 0:
            good, cell = to_unscaled(mantissa, fraction, negative, low, high)
    elif kind == TIMESTAMP and whole:
        good, cell = to_long(mantissa, negative, -MAX_EPOCH_SECONDS, MAX_EPOCH_SECONDS)
        cell *= MICROSECONDS
    return (after if good else -1), cell


@compiled
def time_cell(data: Bytes, start: int, end: int, kind: int, zone_s: int) -> tuple[bool, int]:
    """A date or a timestamp that is the whole text from start to end."""
    if kind == DATE:
        good, cell = read_date(data, start, end)
        return good and end - start == 10, cell
    if kind in (TIMESTAMP, LOCAL_TIMESTAMP):
        return read_timestamp(data, start, end, zone_s, kind == LOCAL_TIMESTAMP)
    return False, 0
