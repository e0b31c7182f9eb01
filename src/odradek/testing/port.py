"""A port that stays reserved for a broker while the broker is down.

Between the death of a broker and its next start its port is free, and the system may give it to any process: to another
broker, or to a client for an outgoing connection, even to the one that tries to reach the dead broker. A socket that is
bound but does not listen prevents both, and connections are still refused. Linux lets a broker listen next to it,
because both allow their address to be reused; other systems do not, and take the risk.
"""

import errno
import socket
import sys

ATTEMPTS = 20
CAN_BE_KEPT = sys.platform == "linux"


class KeptPort:
    """`number` is 0, for any, where a port cannot be kept, unless it has to be known before the broker starts."""

    def __init__(self, *, must_be_known: bool = False) -> None:
        self._sockets = _bound_everywhere() if CAN_BE_KEPT or must_be_known else []
        self.number: int = self._sockets[0].getsockname()[1] if self._sockets else 0
        if not CAN_BE_KEPT:
            self.close()

    def close(self) -> None:
        for bound in self._sockets:
            bound.close()


def _bound_everywhere() -> list[socket.socket]:
    """Bind a free port on IPv4 and, if available, on IPv6, as a broker listens on localhost."""
    for _ in range(ATTEMPTS):
        first = _bound(socket.AF_INET, "127.0.0.1", 0)
        try:
            return [first, _bound(socket.AF_INET6, "::1", first.getsockname()[1])]
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return [first]
            first.close()
    raise OSError(errno.EADDRINUSE, "no port is free on every address of localhost")


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    bound = socket.socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
    except OSError:
        bound.close()
        raise
    return bound
