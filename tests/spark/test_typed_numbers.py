"""Decimal text to doubles and floats: the nearest one, as Python's own parser finds it, or none."""

import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.spark.compiled import compiled, read_only
from odradek.spark.typed.numbers import fits_float, read_number, skip_number, to_double


@compiled
def parsed(text):
    after, mantissa, fraction, exponent, negative, _ = read_number(text, 0, text.size)
    if after != text.size:
        return False, 0.0
    return to_double(mantissa, exponent - fraction, negative)


def array_of(text: str):
    return read_only(np.frombuffer(text.encode(), np.uint8))


def check(text: str) -> bool:
    decided, number = parsed(array_of(text))
    if decided:
        assert struct.pack("d", number) == struct.pack("d", float(text)), text
        if fits_float(number):
            assert np.float32(number) == np.float32(text), text  # numpy reads the text as a float by itself
    return decided


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=3000, deadline=None)
@given(FINITE)
@example(-0.0)
@example(1.7976931348623157e308)
@example(2.2250738585072014e-308)
def test_doubles_as_they_are_written(number):
    is_subnormal = 0 < abs(number) < 2.2250738585072014e-308
    assert check(repr(number)) or is_subnormal


@settings(max_examples=3000, deadline=None)
@given(st.integers(0, 10**19), st.integers(-340, 320))
@example(9007199254740993, 0)
@example(9007199254740993, -3)
@example(4503599627370497, -1)
@example(10**19 - 1, 289)
def test_any_mantissa_and_power(mantissa, power):
    check(f"{mantissa}e{power}")


@settings(max_examples=2000, deadline=None)
@given(st.integers(1 << 23, (1 << 24) - 1), st.integers(-20, 20), st.sampled_from([-1, 0, 1]))
def test_the_middle_between_two_floats(mantissa, power, beside):
    """There a float rounded from a double may differ from the one that is nearest to the text."""
    check(repr(float((2 * mantissa + 1) * 2.0**power) * (1 + beside * 2.0**-52)))


@pytest.mark.parametrize(
    "text",
    ["", "-", "+1", "01", "-01", "1.", ".5", "1.e3", "1e", "1e+", "--1", "0x1", "NaN", "1_0", "1e1234"],
)
def test_what_is_no_number(text):
    assert not parsed(array_of(text))[0]
    after = skip_number(array_of(text), 0, len(text))
    assert after < len(text) or not text
