"""File descriptors: half of them for files, the rest for connections. `odradek.descriptors` claims all there are.

Connections may not take what files need, or many idle clients would keep the broker from writing. Some descriptors are
for neither: the event loop, the listeners, the cleaner's process. A few are held in reserve for when no others are left
(`storage.disk.shortage`).
"""

import resource
import sys

from odradek.storage.disk.files import DEFAULT_MAX_OPEN_FILES

MAX_RESERVE = 16
OTHERS = 32


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft < 0 else soft


def max_open_files() -> int:
    """Return the number of files that storage may keep open at a time."""
    return min(DEFAULT_MAX_OPEN_FILES, _limit() // 2)


def reserve() -> int:
    """Return the number of descriptors held in reserve for storage."""
    return min(MAX_RESERVE, _limit() // 16)


def max_connections() -> int:
    """Return the number of descriptors left for connections."""
    return max(1, _limit() - max_open_files() - reserve() - OTHERS)
