"""Wires of a node that can be cut: nothing passes over its connections to some peers, in one direction or in both.

A peer is another node of the cluster, by its id, or `CLIENTS`, who are all others. Who is at the other end of a
connection is known by the address if this node opened it, and by the client id of the first request otherwise: nodes
call themselves `node-2` or `broker-2`.

TCP loses nothing. While the node is deaf to a peer it does not read what the peer sends, and while it is mute to one
its own output waits. Both pass once the wire is whole again, late, unless one end has closed the connection by then. A
new connection to a peer that cannot respond is never made, as if its first packet were lost. One that comes from such a
peer is accepted, because the kernel does that; but nothing passes over it.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakSet

from odradek.net.states import Sending
from odradek.net.transport import Converse, Output, OwnFrame, Part, Receiver, Transport
from odradek.storage.segments.row import Slice
from odradek.wire.frame import read_request_header

Peer = int | str
CLIENTS = "clients"
NODE_NAMES = ("node", "broker")


class Wires:
    """All connections of a node, and which peers it is deaf or mute to."""

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}  # by address: the other nodes of the cluster
        self._deaf_to: frozenset[Peer] = frozenset()
        self._mute_to: frozenset[Peer] = frozenset()
        self._gates: WeakSet[Gate] = WeakSet()
        self._changed = asyncio.Event()

    def know(self, nodes: Mapping[str, int]) -> None:
        """The other nodes of the cluster, by their addresses."""
        self._nodes = dict(nodes)

    def cut(self, deaf_to: Iterable[Peer], mute_to: Iterable[Peer]) -> None:
        """Cut these peers off, and no others."""
        self._deaf_to, self._mute_to = frozenset(deaf_to), frozenset(mute_to)
        for gate in list(self._gates):
            gate.wires_changed()
        self._changed.set()
        self._changed = asyncio.Event()

    def is_deaf_to(self, peer: Peer | None) -> bool:
        return peer in self._deaf_to

    def is_mute_to(self, peer: Peer | None) -> bool:
        return peer in self._mute_to

    async def reachable(self, address: str) -> None:
        """Wait until a connection to this address could be made."""
        peer = self.peer_at(address)
        while self.is_deaf_to(peer) or self.is_mute_to(peer):
            await self._changed.wait()

    def peer_at(self, address: str) -> Peer:
        return self._nodes.get(address, CLIENTS)

    def peer_named(self, client_id: str | None) -> Peer:
        """Return the peer that sends requests with this client id."""
        name, _, number = (client_id or "").rpartition("-")
        is_node = name in NODE_NAMES and number.isdecimal() and int(number) in self._nodes.values()
        return int(number) if is_node else CLIENTS

    def watching(self, converse: Converse) -> Converse:
        """Conversations as before, each of which can be cut."""

        def begin(transport: Transport) -> Gate:
            peer = None if transport.listener else self.peer_at(transport.address)
            gate = Gate(self, transport, converse, peer)
            self._gates.add(gate)
            return gate

        return begin


class Gate:
    """Between a transport and its receiver, and each of the two to the other one."""

    def __init__(self, wires: Wires, transport: Transport, converse: Converse, peer: Peer | None) -> None:
        self._wires = wires
        self._transport = transport
        self._peer = peer  # None: its first request has not arrived
        self._is_deaf = wires.is_deaf_to(peer)
        self._is_open = True
        self._is_paused = False  # by the receiver
        self._arrived: list[OwnFrame] = []  # read before it became deaf
        self.address, self.listener = transport.address, transport.listener
        self.output = GatedOutput(transport.output, wires.is_mute_to(peer))
        self.receiver: Receiver = converse(self)

    def wires_changed(self) -> None:
        if not self._is_open or self._peer is None:
            return
        if self.output.is_mute and not self._wires.is_mute_to(self._peer):
            self.output.pass_on()
            self._transport.flush_soon()
        self.output.is_mute = self._wires.is_mute_to(self._peer)
        was_deaf, self._is_deaf = self._is_deaf, self._wires.is_deaf_to(self._peer)
        if self._is_deaf and not was_deaf:
            self._transport.pause_reading()
        elif was_deaf and not self._is_deaf:
            self._hear_again()

    def _hear_again(self) -> None:
        arrived, self._arrived = self._arrived, []
        self._transport.gather()
        for own in arrived:
            if self._is_open:
                self.receiver.receive_own(own)
        self.receiver.finish()
        if self._is_open:
            if not self._is_paused:
                self._transport.resume_reading()
            self._transport.flush()

    def _recognize(self, frame: memoryview) -> None:
        if self._peer is None:
            self._peer = self._wires.peer_named(read_request_header(frame).client_id)
            self.wires_changed()

    # --- the receiver of the transport ---

    @property
    def is_busy(self) -> bool:
        return self.receiver.is_busy

    def receive(self, frame: memoryview) -> None:
        self._recognize(frame)
        if self._is_deaf:
            self._arrived.append(OwnFrame(memoryview(bytearray(frame)), 0))
        else:
            self.receiver.receive(frame)

    def receive_own(self, own: OwnFrame) -> None:
        self._recognize(own.frame)
        if self._is_deaf:
            self._arrived.append(own)
        else:
            self.receiver.receive_own(own)

    def finish(self) -> None:
        self.receiver.finish()

    def flushed(self) -> None:
        self.receiver.flushed()

    def reading_ended(self) -> None:
        self.receiver.reading_ended()

    def lost(self, reason: str) -> None:
        self._is_open = False
        for own in self._arrived:
            self._transport.give_back(own, is_reusable=False)
        self._arrived.clear()
        self.output.clear()
        self.receiver.lost(reason)

    # --- the transport of the receiver ---

    @property
    def peer_certificate(self) -> bytes | None:
        return self._transport.peer_certificate

    @property
    def sending(self) -> Sending:
        return self._transport.sending

    def gather(self) -> None:
        self._transport.gather()

    def flush(self) -> None:
        self._transport.flush()

    def flush_soon(self) -> None:
        self._transport.flush_soon()

    def flush_now(self) -> None:
        self._transport.flush_now()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if not self._is_deaf:
            self._transport.resume_reading()

    def give_back(self, own: OwnFrame, is_reusable: bool) -> None:
        self._transport.give_back(own, is_reusable)

    def begin_greeting(self, max_frame_size: int) -> None:
        self._transport.begin_greeting(max_frame_size)

    def end_greeting(self) -> None:
        self._transport.end_greeting()

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        self._transport.close(reason, level)


class GatedOutput:
    """Output that waits while the node is mute."""

    def __init__(self, output: Output, is_mute: bool) -> None:
        self._output = output
        self.is_mute = is_mute
        self._waiting = bytearray()

    @property
    def size(self) -> int:
        return self._output.size + len(self._waiting)

    def add(self, parts: Sequence[Part]) -> None:
        if not self.is_mute:
            self._output.add(parts)
            return
        for part in parts:
            if isinstance(part, Slice):
                part = part.file.read_at(part.position, part.length)
            self._waiting += part

    def pass_on(self) -> None:
        waiting, self._waiting = self._waiting, bytearray()
        self._output.add([waiting])

    def clear(self) -> None:
        self._waiting.clear()
