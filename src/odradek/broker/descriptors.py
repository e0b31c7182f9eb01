"""Descriptors: as many as the system lets us have, half of them for files, the rest for connections.

Most systems start a process with a soft limit of 1,024, which a few hundred partitions use up. The hard limit is what
was meant for servers, and any process may raise itself to it.
"""

import resource

from odradek.storage.files import DEFAULT_MAX_OPEN_FILES


def claim_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass  # macOS has a lower limit than the one it tells


def max_open_files() -> int:
    """What storage may keep open at a time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DEFAULT_MAX_OPEN_FILES if soft < 0 else min(DEFAULT_MAX_OPEN_FILES, soft // 2)
