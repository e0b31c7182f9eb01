"""Raises the limit of file descriptors as far as the system allows.

Most systems start a process with a soft limit of 1,024, which a few hundred partitions use up. The hard limit is meant
for servers, and any process may raise its soft limit to it.
"""

import resource


def claim_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass  # the real limit of macOS is lower than the one it reports
