"""Where a node of the quorum is. The core does not know it; the messages on the wire, and those who send them, do."""

from typing import NamedTuple


class NodeAddress(NamedTuple):
    """Where a node's controller listener is."""

    host: str
    port: int
