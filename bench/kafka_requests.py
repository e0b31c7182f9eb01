"""The few requests of Kafka's protocol that the harness sends over bare sockets.

A bare socket is there within microseconds, which a client library is not: so the first accepted Produce after
a start is timed with it, and thousands of idle connections cost the harness next to nothing. Versions are old
ones without tagged fields that today's brokers still serve.
"""

import socket
import struct
import time

from odradek.records.record import Record, build_batch

PRODUCE, FETCH, METADATA = 0, 1, 3
PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION = 3, 4, 4
ACKS_ALL = -1
TIMEOUT_S = 5.0
CODE_FROM_END = 22  # error code, base offset and append time of the only partition, then the throttle time


def produce_request(topic: str, partition: int = 0, value: bytes = b"x" * 100) -> bytes:
    """One record to one partition, acks=all."""
    record = Record(offset=0, timestamp=int(time.time() * 1000), key=None, value=value, headers=())
    batch = bytes(build_batch([record]))
    data = _array(struct.pack(">ii", partition, len(batch)) + batch)
    head = struct.pack(">hhi", -1, ACKS_ALL, 30_000)
    return _frame(PRODUCE, PRODUCE_VERSION, head + _array(_string(topic) + data))


def fetch_request(topic: str, max_wait_ms: int, offset: int, partition: int = 0) -> bytes:
    """Build a Fetch; from the end of a partition, it waits for its whole time."""
    wanted = struct.pack(">iqi", partition, offset, 1 << 20)
    head = struct.pack(">iiiib", -1, max_wait_ms, 1, 1 << 20, 0)
    return _frame(FETCH, FETCH_VERSION, head + _array(_string(topic) + _array(wanted)))


def metadata_request(topic: str) -> bytes:
    """Creates the topic if it is not there."""
    return _frame(METADATA, METADATA_VERSION, _array(_string(topic)) + b"\x01")


def accepts_produce(port: int, topic: str, partition: int = 0) -> bool:
    """True if a record is taken now; if the topic is not there yet, it is asked for."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
            response = exchange(connection, produce_request(topic, partition))
            code = struct.unpack_from(">h", response, len(response) - CODE_FROM_END)[0] if response else -1
            if code != 0:
                exchange(connection, metadata_request(topic))
            return bool(code == 0)
    except OSError:
        return False


def exchange(connection: socket.socket, request: bytes) -> bytes:
    """The response without its length; empty if the connection ended."""
    connection.sendall(request)
    head = connection.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return b""
    return connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)


def _frame(api_key: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhi", api_key, version, 1) + _string("bench") + body
    return struct.pack(">i", len(request)) + request


def _array(*items: bytes) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
