"""Which other protocol a peer speaks, by the first bytes that it sends.

A broker would read them as the size of a frame, an absurd one. A TLS handshake is "a frame of 369295616 bytes"; readers
of the log should not have to know that.
"""

from typing import NamedTuple

START = 4  # bytes that are looked at: where the size of a frame would be


class Stranger(NamedTuple):
    speaks: str
    advice: str


class Where(NamedTuple):
    """The place that such a peer has connected to."""

    listener: str  # "": it is we who connected
    protocol: str

    def __str__(self) -> str:
        if not self.listener:
            return "this connection"
        return "this listener" if self.listener == self.protocol else f"listener {self.listener}"


TLS = Stranger("TLS", "let it connect without TLS (security.protocol={protocol})")
HTTP = Stranger("HTTP", "this port is for Kafka clients: check the URL or the probe that names it")
SSH = Stranger("SSH", "this port is for Kafka clients: check the port that it connects to")
PROXY = Stranger("the PROXY protocol", "turn that off for this port in the load balancer")
AMQP = Stranger("AMQP", "this port is for Kafka clients: check the port that it connects to")

STARTS = {
    b"GET ": HTTP,
    b"HEAD": HTTP,
    b"POST": HTTP,
    b"PUT ": HTTP,
    b"DELE": HTTP,
    b"OPTI": HTTP,
    b"PATC": HTTP,
    b"CONN": HTTP,
    b"TRAC": HTTP,
    b"PRI ": HTTP,  # HTTP/2
    b"SSH-": SSH,
    b"PROX": PROXY,
    b"\r\n\r\n": PROXY,  # its second version
    b"AMQP": AMQP,
}
TLS_HANDSHAKE = b"\x16\x03"


def stranger(start: bytes) -> Stranger | None:
    start = start[:START]
    if start.startswith(TLS_HANDSHAKE) or (
        len(start) == START and start[0] & 0x80 and start[2:] == b"\x01\x03"
    ):
        return TLS  # or the hello of SSL 2, with which old clients begin TLS
    return STARTS.get(start)


def why_no_frame(start: bytes, size: int, max_size: int, where: Where, is_greeting: bool = False) -> str:
    """Why a connection is closed whose frame starts with these bytes, and so announces this size."""
    who = stranger(start)
    if who is not None:
        advice = who.advice.format(protocol=where.protocol)
        return f"it speaks {who.speaks}, but {where} is {where.protocol}: {advice}"
    text = start[:START].decode("ascii", "replace")
    if text.isascii() and text.isprintable():
        return f'it sent "{text}…", which is not Kafka\'s protocol: check the port that it connects to'
    if size < 0:
        return f"it announced a frame of {size} bytes: it does not speak Kafka's protocol correctly"
    if is_greeting:
        return (
            f"it announced a frame of {size} bytes before it has authenticated, when {max_size} are allowed"
        )
    return f"it announced a frame of {size} bytes, but socket.request.max.bytes is {max_size}"


def why_no_tls(start: bytes, where: Where) -> str:
    """Why a connection is closed that starts with these bytes instead of a TLS handshake; empty if it is one."""
    who = stranger(start)
    if who is TLS or start[:1] == TLS_HANDSHAKE[:1]:
        return ""
    if who is not None:
        return f"it speaks {who.speaks}, but {where} is {where.protocol}: {who.advice}"
    advice = f"let it connect with TLS (security.protocol={where.protocol})"
    return f"it does not speak TLS, but {where} is {where.protocol}: {advice}"
