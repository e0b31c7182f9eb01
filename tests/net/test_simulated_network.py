"""The simulated network: what a seed may do to connections, and what TCP promises all the same."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, copy_context

import pytest

from odradek.broker.node import Node
from odradek.config.broker import BrokerConfig
from odradek.host.simulated import SimulatedHost, VirtualLoop
from odradek.net.channel import Channel, ChannelClosed
from odradek.net.security import Endpoint
from odradek.net.simulated import SimulatedNetwork
from odradek.net.simulated_wire import GIVE_UP_SECONDS
from odradek.net.transport import OwnFrame, Transport
from odradek.records.record import Record, build_batch
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.wire.codec import Message, read_message
from odradek.wire.frame import encode_request, has_tagged_response_header
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.net.echo import BOUNDS, Echo, EchoTalk, framed

PORT = 9092

whose = ContextVar("whose", default="nobody's")


class World:
    """A node `b` that echoes; whoever else connects to it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loop = VirtualLoop()
        self.network = SimulatedNetwork(self.loop, self.rng)
        self.start()

    def start(self) -> None:
        self.echo = Echo()
        self.server = self.network.place("b").serve(self.echo.converse, BOUNDS)
        self.server.listen("PLAINTEXT", "", PORT)

    async def connect(self, name: str = "a", timeout_seconds: float = 10) -> Channel:
        return await self.network.place(name).connect(Endpoint("b", PORT), timeout_seconds)

    def run(self, work: Awaitable[None]) -> None:
        self.loop.run_until_complete(asyncio.wait_for(work, 10_000))
        self.loop.close()


def run(scenario: Callable[[World], Awaitable[None]], seeds: int = 20) -> None:
    for seed in range(seeds):
        world = World(seed)
        world.run(scenario(world))


# --- cuts ---


def test_a_one_way_cut_lets_requests_through_and_no_response() -> None:
    async def scenario(world: World) -> None:
        channel = await world.connect()
        world.network.cut("b", "a")
        response = channel.send(framed(b"x"))
        await asyncio.sleep(1)
        assert world.echo.received == [b"x"]
        assert not response.done()
        world.network.heal("b", "a")
        assert bytes(await response) == b"x"

    run(scenario)


def test_what_is_under_way_when_a_cut_begins_arrives_in_order_after_it() -> None:
    async def scenario(world: World) -> None:
        channel = await world.connect()
        responses = [channel.send(framed(bytes([number]))) for number in range(50)]
        await asyncio.sleep(world.rng.random() * 0.01)
        world.network.cut_both_ways("a", "b")
        other = await world.connect("c")
        assert bytes(await other.send(framed(b"other"))) == b"other", "the others do not notice"
        await asyncio.sleep(GIVE_UP_SECONDS / 2)
        world.network.heal_all()
        assert [bytes(await response)[0] for response in responses] == list(range(50))

    run(scenario)


def test_who_waits_too_long_gives_up_and_the_other_end_hears_nothing() -> None:
    async def scenario(world: World) -> None:
        channel = await world.connect()
        await channel.send(framed(b"x"))
        world.network.cut("a", "b")
        response = channel.send(framed(b"lost"))
        with pytest.raises(ChannelClosed, match="timed out"):
            await response
        world.network.heal("a", "b")
        await asyncio.sleep(10 * GIVE_UP_SECONDS)
        (talk,) = world.echo.talks
        assert (talk.received, talk.lost_because) == ([b"x"], None), "a connection with one end"
        talk.say(b"are you there?")
        await asyncio.sleep(1)
        assert talk.lost_because == "reset by the peer"

    run(scenario)


def test_connecting_waits_for_a_cut_to_heal_or_times_out() -> None:
    async def scenario(world: World) -> None:
        for source, target in (("a", "b"), ("b", "a")):
            world.network.cut(source, target)
            with pytest.raises(TimeoutError):
                await world.connect(timeout_seconds=3)
            connecting = asyncio.ensure_future(world.connect())
            await asyncio.sleep(2)
            world.network.heal(source, target)
            assert bytes(await (await connecting).send(framed(b"x"))) == b"x"
        await asyncio.sleep(1)
        open_ones = [talk for talk in world.echo.talks if talk.lost_because is None]
        assert len(open_ones) == world.server.connection_count == 2, (
            "those given up were closed when they could be"
        )

    run(scenario)


# --- losses ---


def test_a_dropped_connection_delivers_a_beginning() -> None:
    lengths = set()

    async def scenario(world: World) -> None:
        channel = await world.connect()
        await channel.send(framed(b"first"))
        for number in range(20):
            channel.send(framed(bytes([number])))
        await asyncio.sleep(world.rng.random() * 0.006)
        assert world.network.drop_connections("a", "b") == 1
        await channel.closed()
        await asyncio.sleep(1)
        received = world.echo.received[1:]
        assert received == [bytes([number]) for number in range(len(received))]
        assert world.echo.talks[0].lost_because is not None
        assert world.network.connection_count == 0
        lengths.add(len(received))

    run(scenario, 60)
    assert min(lengths) == 0 and max(lengths) == 20 and len(lengths) > 5


def test_a_crashed_place_says_nothing_and_a_restarted_one_knows_nothing() -> None:
    async def scenario(world: World) -> None:
        channel = await world.connect()
        await channel.send(framed(b"x"))
        crashed = world.network.place("b")
        world.network.crash("b")
        response = channel.send(framed(b"y"))
        await asyncio.sleep(GIVE_UP_SECONDS / 2)
        assert not response.done()
        with pytest.raises(TimeoutError):
            await world.connect(timeout_seconds=1)
        old = world.echo
        world.network.restart("b")
        world.start()
        with pytest.raises(ChannelClosed, match="reset by the peer"):
            await response
        assert bytes(await (await world.connect()).send(framed(b"z"))) == b"z"
        assert old.received == [b"x"], "what crashed hears no more"
        assert old.talks[0].lost_because is None
        with pytest.raises(OSError, match="has crashed"):
            await crashed.connect(Endpoint("b", PORT), 1)

    run(scenario)


def test_who_waits_for_a_crashed_place_gives_up() -> None:
    async def scenario(world: World) -> None:
        channel = await world.connect()
        world.network.crash("b")
        with pytest.raises(ChannelClosed, match="timed out"):
            await channel.send(framed(b"x"))

    run(scenario)


def test_a_client_that_crashes_leaves_an_end_behind() -> None:
    async def scenario(world: World) -> None:
        channel = await world.connect()
        await channel.send(framed(b"x"))
        world.network.crash("a")
        await asyncio.sleep(1)
        assert world.server.connection_count == 1
        world.network.restart("a")
        world.echo.talks[0].say(b"are you there?")
        await asyncio.sleep(1)
        assert world.server.connection_count == 0
        assert channel.is_open, "nobody is there to be told"

    run(scenario)


# --- order ---


def test_connections_overtake_each_other() -> None:
    overtaken = 0

    async def scenario(world: World) -> None:
        nonlocal overtaken
        first, second = await world.connect("a"), await world.connect("c")
        first.send(framed(b"1"))
        await second.send(framed(b"2"))
        await asyncio.sleep(1)
        overtaken += world.echo.received == [b"2", b"1"]

    run(scenario, 60)
    assert 10 < overtaken < 50


def test_whatever_happens_each_end_sees_a_beginning_of_what_was_sent() -> None:
    """Random faults. What arrives over a connection is in order, and nothing is missing before it."""

    async def scenario(world: World) -> None:
        answered = 0
        for attempt in range(15):
            try:
                channel = await world.connect(timeout_seconds=5)
            except TimeoutError:
                world.network.heal_all()
                continue
            responses = []
            for number in range(world.rng.randrange(1, 40)):
                if channel.is_open:
                    responses.append(
                        channel.send(framed(bytes([attempt, number]) * world.rng.choice((1, 15_000))))
                    )
                await asyncio.sleep(world.rng.random() * 0.002)
                misfortune(world)
            await asyncio.wait(responses, timeout=world.rng.choice((0.01, 1, 2 * GIVE_UP_SECONDS)))
            done = [bytes(r.result())[1] for r in responses if r.done() and not r.exception()]
            assert done == list(range(len(done)))
            answered += len(done)
            received = [content[1] for content in world.echo.received if content[0] == attempt]
            assert received == list(range(len(received)))
            assert len(received) >= len(done)
            channel.close()
        world.network.heal_all()
        await asyncio.sleep(3 * GIVE_UP_SECONDS)
        assert answered > 0
        assert world.network.connection_count == world.server.connection_count

    run(scenario, 50)


def misfortune(world: World) -> None:
    network, rng = world.network, world.rng
    if rng.random() < 0.04:
        network.cut(*rng.choice((("a", "b"), ("b", "a"))))
    if rng.random() < 0.08:
        network.heal_all()
    if rng.random() < 0.01:
        network.drop_connections("a", "b")


def test_a_seed_tells_it_all() -> None:
    def trace(seed: int) -> list[tuple[float, bytes]]:
        world = World(seed)
        seen: list[tuple[float, bytes]] = []

        async def scenario() -> None:
            channels = [await world.connect(name) for name in ("a", "c", "d")]
            for number in range(50):
                channel = world.rng.choice([channel for channel in channels if channel.is_open])
                response = channel.send(framed(bytes([number])))
                response.add_done_callback(
                    lambda done: seen.append(
                        (world.loop.time(), b"" if done.exception() else bytes(done.result()))
                    )
                )
                misfortune(world)
                await asyncio.sleep(0.001)
            world.network.heal_all()
            await asyncio.sleep(100)

        world.run(scenario())
        return seen

    assert trace(1) == trace(1) != trace(2)


# --- memory ---


class Keeping:
    """Keeps views on frames that it should have copied."""

    is_busy = False

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.kept: list[memoryview] = []

    def receive(self, frame: memoryview) -> None:
        self.kept.append(frame)

    def receive_own(self, own: OwnFrame) -> None:
        self.kept.append(own.frame)
        self._transport.give_back(own, is_reusable=True)

    def finish(self) -> None: ...
    def flushed(self) -> None: ...
    def reading_ended(self) -> None: ...
    def lost(self, reason: str) -> None: ...


def test_a_receiver_that_keeps_a_view_on_a_frame_is_found_out() -> None:
    async def scenario(world: World) -> None:
        talks: list[Keeping] = []

        def converse(transport: Transport) -> Keeping:
            talks.append(Keeping(transport))
            return talks[-1]

        world.network.place("b").serve(converse, BOUNDS).listen("PLAINTEXT", "", 1)
        channel = await world.network.place("a").connect(Endpoint("b", 1), 10)
        channel.send(framed(b"small"))
        channel.send(framed(b"large" * 10_000))
        await asyncio.sleep(1)
        assert [any(kept) for kept in talks[0].kept] == [False, False]

    run(scenario, 3)


# --- a broker ---


async def ask(channel: Channel, message: Message, response_type: type, version: int) -> Message:
    api_key = response_type.API_KEY
    frame = await channel.send(encode_request(message, api_key, version, 1, "test"))
    return read_message(
        response_type, version, frame, 5 if has_tagged_response_header(api_key, version) else 4
    )[0]


def test_a_whole_broker_is_asked_over_it() -> None:
    """Conversations, dispatcher and storage are those of a real broker; records come back as they went."""

    async def scenario(world: World) -> None:
        files = SimulatedFiles()
        files.make_directory("/data")
        config = {
            "listeners": "PLAINTEXT://localhost:0",
            "log.dirs": "/data",
            "message.max.bytes": "2000000",
        }
        host = SimulatedHost(world.loop, world.rng, files, "broker")
        node = Node(
            BrokerConfig(config),
            host,
            world.network.place("broker"),
            files,
            world.rng,
        )
        await node.start()
        channel = await world.network.place("client").connect(Endpoint("broker", node.listeners[0].port), 10)
        await ask(channel, CreateTopicsRequest([CreatableTopic("t", 1, 1)]), CreateTopicsResponse, 2)
        sent = b""
        productions = []
        for number in range(40):
            batch = bytes(
                build_batch([Record(0, 0, None, bytes([number]) * (100_000 if number % 9 == 4 else 50))])
            )
            topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(0, batch)])
            request = ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[topic])
            productions.append(asyncio.ensure_future(ask(channel, request, ProduceResponse, 3)))
            sent += batch[16:]
        offsets = [
            (await production).responses[0].partition_responses[0].base_offset  # type: ignore[attr-defined]
            for production in productions
        ]
        assert offsets == list(range(40))
        wanted = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 24)])
        fetched = await ask(
            channel, FetchRequest(max_wait_ms=0, max_bytes=1 << 24, topics=[wanted]), FetchResponse, 4
        )
        records = bytes(fetched.responses[0].partitions[0].records)  # type: ignore[attr-defined]
        assert len(records) == len(sent) + 40 * 16
        await node.stop()
        assert "closed by the peer" in await channel.closed()

    run(scenario, 3)


# --- contexts ---


def test_what_arrives_is_handled_in_the_context_of_its_place() -> None:
    async def scenario(world: World) -> None:
        home = copy_context()
        home.run(whose.set, "b")
        world.network.place("b", home)
        heard: list[str] = []
        converse = world.echo.converse

        def converse_and_look(transport: Transport) -> EchoTalk:
            heard.append(whose.get())
            return converse(transport)

        world.server = world.network.place("b").serve(converse_and_look, BOUNDS)
        world.server.listen("PLAINTEXT", "", PORT + 1)
        whose.set("a")
        channel = await world.network.place("a").connect(Endpoint("b", PORT + 1), 10)
        await channel.send(framed(b"x"))
        assert heard == ["b"]
        assert whose.get() == "a"

    run(scenario, seeds=1)
