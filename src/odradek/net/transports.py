"""Which transport carries the bytes of a connection: the one that its security protocol names."""

from collections.abc import Callable

from odradek.config.listeners import SecurityProtocol
from odradek.net.plaintext import PlaintextTransport
from odradek.net.pool import Pool
from odradek.net.stream import Connected, StreamOwner, StreamTransport
from odradek.net.transport import Converse

NewTransport = Callable[[Pool, Connected, Converse, StreamOwner], StreamTransport]

TRANSPORTS: dict[SecurityProtocol, NewTransport] = {
    SecurityProtocol.PLAINTEXT: PlaintextTransport,
    SecurityProtocol.SASL_PLAINTEXT: PlaintextTransport,
}


def new_transport(
    pool: Pool, connected: Connected, converse: Converse, owner: StreamOwner
) -> StreamTransport:
    return TRANSPORTS[connected.security.protocol](pool, connected, converse, owner)
