"""Compile a function over arrays to machine code, once per machine.

numba keeps what it compiled beside the source or in the user's cache directory, so that only the first worker
that ever calls a function pays for it (a second or two). Where neither can be written, each process pays.

An array that may be written to is another type to numba than one that may not, and would be compiled for
again: what a kernel only reads is handed to it `read_only`.
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
    """The GIL is let go while it runs, and indices are not checked: the code must know its bounds."""
    try:
        result = njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba found no place for its cache
        result = njit(nogil=True)(function)
    return cast(Callable[P, R], result)


def read_only(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    view = array.view()
    view.flags.writeable = False
    return view
