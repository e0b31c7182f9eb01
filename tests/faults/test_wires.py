"""Wires that can be cut, over transports without sockets: what waits, what passes, and in which order."""

import asyncio

import pytest

from odradek.faults.wires import CLIENTS, Wires
from odradek.net.transport import OwnFrame, Transport
from odradek.wire.frame import SIZE, encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest
from tests.serving.wires import NotedTransport


class Listener:
    """A receiver that notes the correlation ids of what it hears, and responds with them."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.heard: list[int] = []
        self.ends: list[str] = []
        self.is_busy = False

    def receive(self, frame: memoryview) -> None:
        self.heard.append(int.from_bytes(frame[4:8], "big"))
        self.transport.output.add([bytes(frame[4:8])])

    def receive_own(self, own: OwnFrame) -> None:
        self.receive(own.frame)
        self.transport.give_back(own, is_reusable=True)

    def finish(self) -> None: ...

    def flushed(self) -> None: ...

    def reading_ended(self) -> None: ...

    def lost(self, reason: str) -> None:
        self.ends.append(reason)


class Wire:
    def __init__(self, wires: Wires, listener: str = "PLAINTEXT") -> None:
        self.transport = NotedTransport(wires.watching(self._begin), listener)

    def _begin(self, transport: Transport) -> Listener:
        self.end = Listener(transport)
        return self.end

    def arrive(self, *numbers: int, client_id: str = "a-client") -> None:
        frames = [encode_request(ApiVersionsRequest(), 18, 0, number, client_id) for number in numbers]
        self.transport.arrive(*(memoryview(frame)[SIZE.size :] for frame in frames))

    @property
    def said(self) -> list[int]:
        self.transport.flush()  # if one is due
        sent = b"".join(self.transport.sent)
        return [int.from_bytes(sent[at : at + 4], "big") for at in range(0, len(sent), 4)]


@pytest.fixture
def wires() -> Wires:
    wires = Wires()
    wires.know({"localhost:1": 2, "localhost:2": 2, "localhost:3": 3})
    return wires


def test_a_whole_wire_passes_everything(wires: Wires) -> None:
    wire = Wire(wires)
    wire.arrive(1, 2)
    assert wire.end.heard == wire.said == [1, 2]


def test_a_deaf_node_reads_no_more_and_hears_what_waited_first(wires: Wires) -> None:
    wire = Wire(wires)
    wire.arrive(1)
    wires.cut([CLIENTS], [])
    assert not wire.transport.is_reading
    wire.arrive(2, 3)  # was read already
    assert wire.end.heard == [1]
    wires.cut([], [])
    assert wire.transport.is_reading
    wire.arrive(4)
    assert wire.end.heard == wire.said == [1, 2, 3, 4]


def test_reading_stays_paused_if_the_receiver_wants_that(wires: Wires) -> None:
    wire = Wire(wires)
    wire.arrive(1)
    wire.end.transport.pause_reading()
    wires.cut([CLIENTS], [])
    wires.cut([], [])
    assert not wire.transport.is_reading
    wires.cut([CLIENTS], [])
    wire.end.transport.resume_reading()
    assert not wire.transport.is_reading
    wires.cut([], [])
    assert wire.transport.is_reading


def test_a_mute_node_hears_and_says_later_what_it_had_to_say(wires: Wires) -> None:
    wire = Wire(wires)
    wires.cut([], [CLIENTS])
    wire.arrive(1, 2)
    assert wire.end.heard == [1, 2]
    assert wire.said == []
    assert wire.end.transport.output.size == 8, "it counts as output that the client does not read"
    wires.cut([], [])
    assert wire.said == [1, 2]


def test_peers_are_known_by_the_name_of_their_first_request(wires: Wires) -> None:
    wires.cut([2], [])
    named = {
        name: Wire(wires) for name in ("broker-2", "node-2", "broker-3", "broker-9", "broker-x", "rdkafka")
    }
    for name, wire in named.items():
        wire.arrive(1, client_id=name)
    assert [name for name, wire in named.items() if not wire.end.heard] == ["broker-2", "node-2"]


def test_connections_of_our_own_are_known_by_their_address(wires: Wires) -> None:
    wires.know({"127.0.0.1:1": 2})
    wires.cut([2], [])
    wire = Wire(wires, listener="")
    wire.arrive(1)
    assert wire.end.heard == []


def test_a_connection_that_ends_while_it_is_cut_is_forgotten(wires: Wires) -> None:
    wire = Wire(wires)
    wire.arrive(1)
    wires.cut([CLIENTS], [CLIENTS])
    own = wire.transport.arrive_own(
        memoryview(encode_request(ApiVersionsRequest(), 18, 0, 2, "a-client"))[SIZE.size :], 100
    )
    wire.end.transport.close("nobody needs it")
    assert wire.end.ends == ["nobody needs it"]
    assert wire.transport.given_back == [(own, False)]
    wires.cut([], [])
    assert wire.end.heard == [1]


def test_no_connection_is_made_to_a_peer_that_cannot_respond(wires: Wires) -> None:
    async def scenario() -> None:
        wires.cut([], [3])
        await wires.reachable("localhost:1")
        await wires.reachable("localhost:99")
        waiting = asyncio.ensure_future(wires.reachable("localhost:3"))
        for deaf_to, mute_to in (([3], [3]), ([3], [])):
            wires.cut(deaf_to, mute_to)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not waiting.done()
        wires.cut([], [])
        await waiting

    asyncio.run(scenario())
