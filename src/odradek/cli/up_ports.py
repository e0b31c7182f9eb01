"""Ports for a process that has not started yet.

A port that the system chose could be given to another process before ours binds it. So it is bound here, without
listening, while the reservation exists: on Linux another socket may still bind and listen there if both allow it
(SO_REUSEADDR), and the system gives the port to no other process. On other systems the reservation ends before the
process starts, and the port could be lost.
"""

import errno
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

IS_SHARED = sys.platform == "linux"
ATTEMPTS = 20
LISTENING = "0A"  # as /proc/net/tcp writes it
ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


class PortInUse(Exception):
    def __init__(self, port: int) -> None:
        super().__init__(f"port {port} is in use{by_process(port)}")
        self.port = port


class Reservation:
    """A port of localhost, on IPv4 and IPv6."""

    def __init__(self, port: int = 0) -> None:
        """Reserve a port; 0 lets the system choose. Raises PortInUse."""
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


def is_in_use(host: str, port: int) -> bool:
    """True if somebody listens there. Other reasons why it cannot be bound are left to whoever binds it."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in found:
            _bind(family, str(address[0]), port).close()
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def by_process(port: int) -> str:
    """Return words that name the process that listens on a port; empty if the system does not tell us."""
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not inodes:
        return ""
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(os.readlink(one) in inodes for one in (directory / "fd").iterdir()):
                name = (directory / "comm").read_text().strip()
                return f" by process {directory.name} ({name})"
    return ""


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found
