"""Hints about a partition's leader, in the response of a broker that does not lead it (KIP-951): the client need not
ask for metadata.

A refused partition names the leader and its epoch in a tagged field. The response has the addresses of these leaders in
another one, each of them once.
"""

from collections.abc import Collection
from struct import Struct
from typing import NamedTuple

from odradek.wire.codec import write_uvarint

LEADER = Struct(">iix")  # its id, its epoch, and no tagged fields
NODE_ENDPOINTS_TAG = 0
INT32 = Struct(">i")


class Address(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class LeaderHint(NamedTuple):
    leader_id: int  # -1: nobody leads it
    leader_epoch: int
    address: Address | None  # None: it cannot be reached on the client's listener


def encoded_leader(hint: LeaderHint) -> bytes:
    """The value of a partition's field."""
    return LEADER.pack(hint.leader_id, hint.leader_epoch)


def encoded_addresses(addresses: Collection[Address]) -> bytes:
    """All tagged fields of the response."""
    if not addresses:
        return b"\0"
    field = bytearray()
    write_uvarint(field, len(addresses) + 1)
    for node_id, host, port, rack in addresses:
        field += INT32.pack(node_id)
        _write_string(field, host)
        field += INT32.pack(port)
        _write_string(field, rack)
        field.append(0)
    out = bytearray((1, NODE_ENDPOINTS_TAG))
    write_uvarint(out, len(field))
    return bytes(out + field)


def _write_string(out: bytearray, text: str | None) -> None:
    encoded = b"" if text is None else text.encode()
    write_uvarint(out, 0 if text is None else len(encoded) + 1)
    out += encoded
