"""Text to dates and timestamps: only the full ISO forms, which every parser reads alike.

    date       2026-01-31
    timestamp  2026-01-31T10:20:30 or with a blank for the T, up to nine digits of a second, and Z, ±hh:mm or nothing

Nothing means the session's time zone. Its offset is known here only if it never changes (UTC, +02:00): rules of
zones differ between the time zone databases of Java and Python, so other zones are left to Spark.
"""

import re

import numpy as np
import numpy.typing as npt

from odradek.spark.compiled import compiled

Bytes = npt.NDArray[np.uint8]

UNKNOWN_ZONE = 1 << 62
MICROSECONDS = 1_000_000
MAX_OFFSET_HOURS = 18
UTC_NAMES = {"utc", "z", "gmt", "etc/utc", "etc/gmt", "ut"}


def offset_of_zone(name: str | None) -> int:
    """Seconds east of UTC for a session time zone that has one offset for ever; otherwise `UNKNOWN_ZONE`."""
    if name is None:
        return UNKNOWN_ZONE
    if name.strip().lower() in UTC_NAMES:
        return 0
    match = re.fullmatch(r"([+-])(\d\d):(\d\d)", name.strip())
    if match is None or int(match[2]) >= MAX_OFFSET_HOURS or int(match[3]) > 59:
        return UNKNOWN_ZONE
    seconds = int(match[2]) * 3600 + int(match[3]) * 60
    return -seconds if match[1] == "-" else seconds


@compiled
def two_digits(data: Bytes, position: int) -> int:
    """Far below zero if they are no digits, so that a sum of two such is as well."""
    first, second = data[position], data[position + 1]
    if not 48 <= first <= 57 or not 48 <= second <= 57:
        return -1000
    return (first - 48) * 10 + second - 48  # type: ignore[no-any-return]


@compiled
def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970 of a date in the Gregorian calendar."""
    shifted = year - 1 if month <= 2 else year
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@compiled
def read_date(data: Bytes, start: int, end: int) -> tuple[bool, int]:
    """Days since 1970."""
    if end - start < 10 or data[start + 4] != 45 or data[start + 7] != 45:
        return False, 0
    year = two_digits(data, start) * 100 + two_digits(data, start + 2)
    month, day = two_digits(data, start + 5), two_digits(data, start + 8)
    if year < 1 or month < 1 or month > 12 or day < 1:
        return False, 0
    last = 31
    if month == 2:
        last = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    elif month == 4 or month == 6 or month == 9 or month == 11:
        last = 30
    if day > last:
        return False, 0
    return True, days_of(year, month, day)


@compiled
def read_time(data: Bytes, start: int, end: int) -> tuple[int, int]:
    """Convert hh:mm:ss and a fraction to microseconds, and return the position after it: -1 for anything else."""
    if end - start < 8 or data[start + 2] != 58 or data[start + 5] != 58:
        return 0, -1
    hour, minute, second = two_digits(data, start), two_digits(data, start + 3), two_digits(data, start + 6)
    if not 0 <= hour <= 23 or not 0 <= minute <= 59 or not 0 <= second <= 59:
        return 0, -1
    position, fraction = start + 8, 0
    if position < end and data[position] == 46:
        position += 1
        first = position
        while position < end and 48 <= data[position] <= 57:
            if position - first < 6:
                fraction = fraction * 10 + data[position] - 48
            position += 1
        digits = position - first
        if digits == 0 or digits > 9:
            return 0, -1
        for _ in range(digits, 6):
            fraction *= 10
    return (hour * 3600 + minute * 60 + second) * MICROSECONDS + fraction, position


@compiled
def read_offset(data: Bytes, start: int, end: int, default_s: int) -> tuple[bool, int]:
    """Seconds east of UTC, as Z, ±hh:mm, or the default if there is nothing."""
    if start == end:
        return default_s != UNKNOWN_ZONE, default_s
    if data[start] == 90:
        return end - start == 1, 0
    if end - start != 6 or data[start + 3] != 58 or (data[start] != 43 and data[start] != 45):
        return False, 0
    hours, minutes = two_digits(data, start + 1), two_digits(data, start + 4)
    if not 0 <= hours < MAX_OFFSET_HOURS or not 0 <= minutes <= 59:
        return False, 0
    seconds = hours * 3600 + minutes * 60
    return True, -seconds if data[start] == 45 else seconds


@compiled
def read_timestamp(data: Bytes, start: int, end: int, default_s: int, is_local: bool) -> tuple[bool, int]:
    """Microseconds since 1970. A local one has no zone, and nothing is made of it."""
    good, days = read_date(data, start, end)
    if not good or end - start < 19 or (data[start + 10] != 84 and data[start + 10] != 32):
        return False, 0
    of_day, position = read_time(data, start + 11, end)
    if position < 0:
        return False, 0
    local = days * 86400 * MICROSECONDS + of_day
    if is_local:
        return position == end, local
    good, offset_s = read_offset(data, position, end, default_s)
    return good, local - offset_s * MICROSECONDS
