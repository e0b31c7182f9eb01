"""Asks whether a majority of the controllers may still be running: a node that stops need not wait for ones that left.

A refused connection proves that the process has ended; silence does not. When all nodes of a cluster are stopped at
once, this is how the last ones learn that no controller is left to consent.
"""

import asyncio

from odradek.net.network import Dialer
from odradek.services.cluster.quorum import Quorum

LOOK_SECONDS = 0.1  # most nodes have the controller's consent sooner
CONNECT_TIMEOUT_SECONDS = 0.5


async def majority_gone(quorum: Quorum, dialer: Dialer) -> None:
    """Returns once the voters that may still be running are no majority."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        voters = quorum.voter_addresses
        others = [address for node_id, address in voters.items() if node_id != quorum.node_id]
        gone = sum(await asyncio.gather(*(_is_gone(dialer, address) for address in others)))
        if 2 * (len(voters) - gone) <= len(voters):
            return


async def _is_gone(dialer: Dialer, address: tuple[str, int] | None) -> bool:
    if address is None:
        return False
    try:
        channel = await dialer.connect(address, CONNECT_TIMEOUT_SECONDS)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    channel.close()
    return False
