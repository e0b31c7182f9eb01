"""Compile a function over arrays to machine code, once per machine.

numba caches compiled code next to the source or in the user's cache directory, so that only the first worker
that ever calls a function pays for it (a second or two). If neither can be written, each process pays.

To numba a writable array has another type than a read-only one, and the function would be compiled
again: arrays that a kernel only reads are passed as `read_only`.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit

P = ParamSpec("P")
R = TypeVar("R")
Scalar = TypeVar("Scalar", bound=np.generic)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """It runs without the GIL, and indices are not checked: the code must check its bounds."""
    try:
        result = njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba found no place for its cache
        result = njit(nogil=True)(function)
    return cast(Callable[P, R], result)


def read_only(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    view = array.view()
    view.flags.writeable = False
    return view


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compiled as a part of each function that calls it: a call with arrays costs more than a few steps."""
    return cast(Callable[P, R], njit(nogil=True, inline="always")(function))
