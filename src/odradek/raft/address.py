"""The address of a node of the quorum. The core does not know it; the messages on the wire, and those who send them,
do.
"""

from typing import NamedTuple


class NodeAddress(NamedTuple):
    """The address of a node's controller listener."""

    host: str
    port: int
