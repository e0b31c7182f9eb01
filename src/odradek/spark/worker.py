"""A Python worker of Spark serves many tasks, and collects garbage after each of them.

With numba, Arrow and pandas in memory that takes as long as a small task itself, and finds nothing: what the first
task has brought in stays for as long as the process. So it is left out of all later collections.
"""

import gc
from functools import cache


@cache
def spare_what_stays() -> None:
    """To be called at the end of a task; only the first call does something."""
    gc.freeze()
