"""Ports for a process that has not started yet.

A port that the system chose could be given to another process before ours binds it. So it is bound here, without
listening, while the reservation exists: on Linux another socket may still bind and listen there if both allow it
(SO_REUSEADDR), and the system gives the port to no other process. On other systems the reservation ends before the
process starts, and the port could be lost.
"""

import errno
import socket
import sys

IS_SHARED = sys.platform == "linux"
ATTEMPTS = 20
ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


class PortInUse(Exception):
    def __init__(self, port: int) -> None:
        super().__init__(f"port {port} is in use")
        self.port = port


class Reservation:
    """A port of localhost, on IPv4 and IPv6."""

    def __init__(self, port: int = 0) -> None:
        """0: the system chooses. Raises PortInUse."""
        for _ in range(ATTEMPTS if port == 0 else 1):
            try:
                self._sockets = _bind_all(port)
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        else:
            raise PortInUse(port)
        self.port: int = self._sockets[0].getsockname()[1]

    def release(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets = []


def _bind_all(port: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    try:
        for family, address in ADDRESSES:
            if family == socket.AF_INET6 and not _has_ipv6():
                continue
            bound.append(_bind(family, address, port))
            port = bound[0].getsockname()[1]
    except OSError:
        for each in bound:
            each.close()
        raise
    return bound


def _bind(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
    except OSError:
        sock.close()
        raise
    return sock


def _has_ipv6() -> bool:
    try:
        _bind(socket.AF_INET6, "::1", 0).close()
        return True
    except OSError:
        return False
