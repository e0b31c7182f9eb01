"""Wires between real nodes that can be cut: a proxy that knows frames, and who sends them.

Nodes advertise the proxy's ports instead of their own. Who opened a connection is in the client id of its first
request (`node-2`, or `broker-2` where it fetches as a replica), so a rule is about one direction between two nodes:
what node 2 sends to node 1 is its requests on the connections that it opened, and its responses on those that node 1
opened.

A frame that may not pass waits, and what is behind it on the connection waits with it: TCP loses nothing. When the rule
is lifted it arrives, late, even if its sender has given up and closed the connection meanwhile, as packets do that were
sent again and again. A frame is passed on only as a whole.

    proxy = Proxy()
    port = proxy.open(1)                     # where node 1 is to be reached for as long as the proxy lives
    proxy.lead_to(port, 43210)               # where node 1 listens, this time
    proxy.refuse(1)                          # its process has ended: nobody listens, until it is led to again
    proxy.cut(1, 2)                          # nothing passes between them
    proxy.cut_one_way(1, 2)                  # node 2 hears nothing of node 1
    held = proxy.hold_next(1, 2, api_key=52) # the next Vote of node 1 to node 2 waits
    held.wait(); held.release()
    proxy.heal()
"""

import asyncio
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

SIZE = struct.Struct(">i")
REQUEST_HEADER = struct.Struct(">hhih")  # API key, version, correlation id, length of the client id
CLIENT = -1  # a sender that is no node
HOST = "127.0.0.1"
RESPONSE_TIMEOUT_S = 30

Direction = tuple[int, int]  # sender and receiver
Result = TypeVar("Result")


class Held:
    """A frame that waits in the proxy."""

    def __init__(self, proxy: "Proxy", direction: Direction, api_key: int | None) -> None:
        self._proxy = proxy
        self.direction = direction
        self.api_key = api_key  # of the request; None: any frame
        self.has_come = threading.Event()
        self.is_released = asyncio.Event()

    def wait(self, timeout_s: float = RESPONSE_TIMEOUT_S) -> None:
        assert self.has_come.wait(timeout_s), f"no such frame came from {self.direction[0]}"

    def release(self) -> None:
        self._proxy.run(self._release)

    def _release(self) -> None:
        self.is_released.set()


class Proxy:
    """Runs in a thread of its own. Every method may be called from any other."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._leads_to: dict[int, int] = {}  # real port by the proxy's
        self._cut: dict[Direction, asyncio.Event] = {}  # set when it is healed
        self._delay_s: defaultdict[Direction, float] = defaultdict(float)
        self._holds: list[Held] = []
        self._tasks: dict[asyncio.Task[None], int] = {}  # of connections: the node that they lead to
        self._nodes: dict[int, int] = {}  # by port
        self._listening: dict[int, socket.socket] = {}  # by port, of nodes that run
        self._kept: list[socket.socket] = []  # keep the ports meanwhile: bound, and not listening

    def run(self, work: Callable[[], Result]) -> Result:
        """Do something in the proxy's thread."""

        async def do() -> Result:
            return work()

        return self._complete(do())

    def _complete(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(RESPONSE_TIMEOUT_S)

    def open(self, node_id: int) -> int:
        """A port where this node can be reached, once it is known where it listens itself."""
        kept = socket.socket()
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind((HOST, 0))
        self._kept.append(kept)
        port: int = kept.getsockname()[1]
        self._nodes[port] = node_id
        return port

    def lead_to(self, port: int, real_port: int) -> None:
        self._leads_to[port] = real_port

        def listen() -> None:
            if port not in self._listening:
                listener = self._listening[port] = socket.create_server((HOST, port))
                listener.setblocking(False)
                self._loop.add_reader(listener, self._accept, listener, port)

        self.run(listen)

    def refuse(self, node_id: int) -> None:
        """The connections of this node are closed, and others refused, as the system does when a process ends."""

        def end() -> None:
            for port in [port for port in self._listening if self._nodes[port] == node_id]:
                self._stop_listening(port)
            for task in [task for task, leads_to in self._tasks.items() if leads_to == node_id]:
                task.cancel()

        self.run(end)

    # Rules

    def cut(self, one: int, *others: int) -> None:
        """Nothing passes between a node and others."""
        self._stop_all([(one, other) for other in others] + [(other, one) for other in others])

    def cut_one_way(self, sender: int, *receivers: int) -> None:
        """Let nothing arrive of what this node sends."""
        self._stop_all([(sender, receiver) for receiver in receivers])

    def _stop_all(self, directions: Iterable[Direction]) -> None:
        def stop() -> None:
            for direction in directions:
                self._cut.setdefault(direction, asyncio.Event())

        self.run(stop)

    def delay(self, sender: int, receiver: int, seconds: float) -> None:
        self.run(lambda: self._delay_s.update({(sender, receiver): seconds}))

    def hold_next(self, sender: int, receiver: int, api_key: int | None = None) -> Held:
        """Hold one frame, and what follows it on its connection: a request, or the response to such a request."""
        held = Held(self, (sender, receiver), api_key)
        self.run(lambda: self._holds.append(held))
        return held

    def heal(self) -> None:
        """Lift all rules: what has waited arrives."""

        def lift() -> None:
            for healed in self._cut.values():
                healed.set()
            for held in self._holds:
                held.is_released.set()
            self._cut.clear()
            self._delay_s.clear()
            self._holds.clear()

        self.run(lift)

    def close(self) -> None:
        async def end() -> None:
            for port in list(self._listening):
                self._stop_listening(port)
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._complete(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(RESPONSE_TIMEOUT_S)
        self._loop.close()
        for kept in self._kept:
            kept.close()

    # Connections

    def _accept(self, listener: socket.socket, port: int) -> None:
        """Every connection is known from the moment it is accepted. One that `asyncio.start_server` has accepted, but
        not attached yet when the server is closed, stays open for ever, and its client waits for a dead node."""
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # it is gone already
        connection.setblocking(False)
        task = self._loop.create_task(self._attend(self._nodes[port], port, connection))
        self._tasks[task] = self._nodes[port]
        task.add_done_callback(self._tasks.pop)

    def _stop_listening(self, port: int) -> None:
        listener = self._listening.pop(port)
        self._loop.remove_reader(listener)
        listener.close()

    async def _attend(self, node_id: int, port: int, connection: socket.socket) -> None:
        writers: list[asyncio.StreamWriter] = []
        try:
            reader, writer = await asyncio.open_connection(sock=connection)
            writers.append(writer)
            await self._serve(node_id, port, reader, writers)
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # one side is gone, and the other hears of it below
        finally:
            for one in writers:
                one.close()
            if not writers:
                connection.close()

    async def _serve(
        self, node_id: int, port: int, reader: asyncio.StreamReader, writers: list[asyncio.StreamWriter]
    ) -> None:
        first = await read_frame(reader)
        there = (sender_of(first), node_id)
        api_keys: asyncio.Queue[int] = asyncio.Queue()  # of requests that are not answered yet, in order

        async def pass_request(frame: bytes) -> None:
            api_key = REQUEST_HEADER.unpack_from(frame)[0]
            await self._may_pass(there, api_key)
            api_keys.put_nowait(api_key)

        async def pass_response(frame: bytes) -> None:
            await self._may_pass((there[1], there[0]), await api_keys.get())

        await pass_request(first)
        back, to_node = await asyncio.open_connection(HOST, self._leads_to[port])
        writers.append(to_node)
        await write_frame(to_node, first)
        pumps = [
            asyncio.ensure_future(pump(reader, to_node, pass_request)),
            asyncio.ensure_future(pump(back, writers[0], pass_response)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in pumps:
                one.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _may_pass(self, direction: Direction, api_key: int) -> None:
        for held in self._holds:
            if held.direction == direction and held.api_key in (None, api_key):
                self._holds.remove(held)
                held.has_come.set()
                await held.is_released.wait()
                break
        if self._delay_s[direction]:
            await asyncio.sleep(self._delay_s[direction])
        while (healed := self._cut.get(direction)) is not None:
            await healed.wait()


def sender_of(frame: bytes) -> int:
    """Which node a connection belongs to, by its first request."""
    length = REQUEST_HEADER.unpack_from(frame)[3]
    client_id = frame[REQUEST_HEADER.size : REQUEST_HEADER.size + max(length, 0)].decode()
    name, _, number = client_id.rpartition("-")
    return int(number) if name in ("node", "broker") and number.isdecimal() else CLIENT


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Raises EOFError at the end."""
    (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
    return await reader.readexactly(size)


async def write_frame(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(SIZE.pack(len(frame)) + frame)
    await writer.drain()


async def pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_pass: Callable[[bytes], Awaitable[None]]
) -> None:
    while True:
        frame = await read_frame(reader)
        await may_pass(frame)
        await write_frame(writer, frame)
