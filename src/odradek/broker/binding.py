"""Binding a node's listeners to addresses."""

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from odradek.config.listeners import Listener
from odradek.net.network import Server
from odradek.net.security import Security

SecurityOf = Callable[[Listener], Security]


def bind(server: Server, listeners: Iterable[Listener], security_of: SecurityOf) -> list[Listener]:
    """Listen on them. Returns them with the ports that the system chose."""
    bound = []
    for listener in listeners:
        with names_address(listener.host, listener.port):
            port = server.listen(listener.name, listener.host, listener.port, security_of(listener))
        bound.append(listener._replace(port=port))
    return bound


def bind_again(
    server: Server, wanted: Sequence[Listener], known: Mapping[str, int], security_of: SecurityOf
) -> list[Listener]:
    """Bind the listeners. A port that the system chooses is that of the last start (`known`) if it is free: nodes
    that have joined this one know no other.
    """
    again = [item._replace(port=item.port or known.get(item.name, 0)) for item in wanted]
    try:
        return bind(server, again, security_of)
    except OSError as error:
        if error.errno != errno.EADDRINUSE or again == list(wanted):
            raise
        return bind(server, wanted, security_of)


@contextmanager
def names_address(host: str, port: int) -> Iterator[None]:
    """Adds the address to an error."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {host or '*'}:{port}: {error}") from error
