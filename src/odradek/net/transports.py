"""Which transport carries the bytes of a connection: the one that its security protocol names."""

from collections.abc import Callable

from odradek.config.listeners import SecurityProtocol
from odradek.net.plaintext import PlaintextTransport
from odradek.net.pool import Pool
from odradek.net.stream import Connected, StreamOwner, StreamTransport
from odradek.net.transport import Converse

NewTransport = Callable[[Pool, Connected, Converse, StreamOwner], StreamTransport]


def tls_transport(
    pool: Pool, connected: Connected, converse: Converse, owner: StreamOwner
) -> StreamTransport:
    from odradek.net.tls import TlsTransport  # which most nodes do not need

    return TlsTransport(pool, connected, converse, owner)


TRANSPORTS: dict[SecurityProtocol, NewTransport] = {
    SecurityProtocol.PLAINTEXT: PlaintextTransport,
    SecurityProtocol.SSL: tls_transport,
    SecurityProtocol.SASL_PLAINTEXT: PlaintextTransport,
    SecurityProtocol.SASL_SSL: tls_transport,
}


def new_transport(
    pool: Pool, connected: Connected, converse: Converse, owner: StreamOwner
) -> StreamTransport:
    return TRANSPORTS[connected.security.protocol](pool, connected, converse, owner)
