"""Descriptors: as many as the system lets us have, half of them for files, the rest for connections.

Most systems start a process with a soft limit of 1,024, which a few hundred partitions use up. The hard limit is what
was meant for servers, and any process may raise itself to it.

Connections may not take what files need, or a crowd of idle clients would keep the broker from writing. Some
descriptors belong to neither: the event loop, the listeners, the cleaner's process; and a few are held back for a
moment in which there are no others (`storage.disk.shortage`).
"""

import resource
import sys

from odradek.storage.disk.files import DEFAULT_MAX_OPEN_FILES

MAX_RESERVE = 16
OTHERS = 32


def claim_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass  # macOS has a lower limit than the one it tells


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft < 0 else soft


def max_open_files() -> int:
    """What storage may keep open at a time."""
    return min(DEFAULT_MAX_OPEN_FILES, _limit() // 2)


def reserve() -> int:
    """What is held back for storage."""
    return min(MAX_RESERVE, _limit() // 16)


def max_connections() -> int:
    """What is left for clients."""
    return max(1, _limit() - max_open_files() - reserve() - OTHERS)
