"""A pair of connected sockets, for tests of what is at one end of a connection."""

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs
