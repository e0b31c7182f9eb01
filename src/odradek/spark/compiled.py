"""Compile a function over arrays to machine code, once per machine.

numba keeps what it compiled beside the source or in the user's cache directory, so that only the first worker
that ever calls a function pays for it (a second or two). Where neither can be written, each process pays.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The GIL is let go while it runs, and indices are not checked: the code must know its bounds."""
    try:
        result = njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba found no place for its cache
        result = njit(nogil=True)(function)
    return cast(Callable[P, R], result)
