"""A port that stays a broker's own while the broker is down.

Between the death of a broker and its next start nobody listens on its port, and the system may give it to anybody: to
another broker, or to a client for a connection of its own, even to the one that tries to reach the dead broker. A
socket that is bound and does not listen prevents both, and connections are refused all the same. Linux lets a broker
listen beside it, because both allow their address to be used again; other systems do not, and take their chance.
"""

import errno
import socket
import sys

ATTEMPTS = 20
CAN_BE_KEPT = sys.platform == "linux"


class KeptPort:
    """`number` is 0, for any, where a port cannot be kept."""

    def __init__(self) -> None:
        self._sockets = _bound_everywhere() if CAN_BE_KEPT else []
        self.number: int = self._sockets[0].getsockname()[1] if self._sockets else 0

    def close(self) -> None:
        for bound in self._sockets:
            bound.close()


def _bound_everywhere() -> list[socket.socket]:
    """On IPv4 and, where there is one, on IPv6: as a broker listens on localhost."""
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
