"""Tests of who asks, and which APIs they may call: with a made-up mechanism, which believes everybody."""

import asyncio
from collections.abc import Awaitable

import pytest

from odradek.apis.table import api_name
from odradek.model import ANONYMOUS, Caller, Principal
from odradek.security.exchange import Proven
from odradek.security.login import Terms
from odradek.serving.conversation import Conversations
from odradek.serving.conversation_states import State
from odradek.serving.request import Request
from odradek.serving.session import Sasl, Session, open_session
from odradek.serving.turns import Turns
from odradek.wire.frame import REQUEST_START
from odradek.wire.messages.index import SCHEMAS
from tests.serving.wires import NotedTransport, numbered_frame

PRODUCE, METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 0, 3, 17, 18, 36
ALICE = Principal("User", "alice")


class Trusting:
    def step(self, message: bytes) -> Proven:
        return Proven("alice", b"welcome")


SASL = Sasl(Terms({"TRUST": Trusting}), lambda: 0, lambda: 0)
SASL_AGAIN = SASL._replace(terms=Terms({"TRUST": Trusting}, {"TRUST": 60_000}))  # clients may log in again


class Doorkeeper:
    """Believes everybody who calls SaslAuthenticate, after a while, and notes who asked for what."""

    handshake_version = 1

    def __init__(self) -> None:
        self.turns = Turns(lambda: 0.0)
        self.conversations = Conversations(self, asyncio.get_running_loop().create_task, self.new_session)
        self.asked: list[tuple[int, Principal]] = []
        self.is_convinced = asyncio.Event()

    @staticmethod
    def new_session(caller: Caller, certificate: bytes | None) -> Session:
        if caller.listener == "SASL_AGAIN":
            return Session(caller, SASL_AGAIN)
        if caller.listener.startswith("SASL"):
            return Session(caller, SASL)
        return open_session(caller)

    def dispatch(self, request: Request, frame: memoryview, body: int) -> Awaitable[None] | None:
        self.asked.append((request.api_key, request.caller.principal))
        if request.api_key == SASL_AUTHENTICATE:
            return self._authenticate(request)
        if request.api_key == SASL_HANDSHAKE:
            assert request.session is not None
            request.session.handshake("TRUST", self.handshake_version)
        request.answer_nothing()
        return None

    async def _authenticate(self, request: Request) -> None:
        await self.is_convinced.wait()
        assert request.session is not None
        request.session.authenticate(b"alice")
        request.answer_nothing()

    def finish(self) -> None:
        pass

    def keeps(self, api_key: int, size: int) -> bool:
        return False


def frames(*api_keys: int) -> list[memoryview]:
    return [numbered_frame(number, api_key) for number, api_key in enumerate(api_keys)]


def test_everybody_is_anonymous_where_nobody_is_asked() -> None:
    async def scenario() -> None:
        keeper = Doorkeeper()
        NotedTransport(keeper.conversations.begin, "PLAINTEXT").arrive(*frames(PRODUCE, METADATA))
        assert keeper.asked == [(PRODUCE, ANONYMOUS), (METADATA, ANONYMOUS)]
        assert str(ANONYMOUS) == "User:ANONYMOUS"

    asyncio.run(scenario())


def test_a_client_is_greeted_until_it_has_authenticated() -> None:
    """Its transport limits the size of its frames, and its time, until then; nobody else's."""

    async def scenario() -> None:
        keeper = Doorkeeper()
        stranger = NotedTransport(keeper.conversations.begin, "SASL_PLAINTEXT")
        neighbour = NotedTransport(keeper.conversations.begin, "PLAINTEXT")
        assert (stranger.max_frame_size, neighbour.max_frame_size) == (64 * 1024, None)
        stranger.arrive(*frames(SASL_HANDSHAKE, SASL_AUTHENTICATE))
        assert stranger.max_frame_size == 64 * 1024
        keeper.is_convinced.set()
        while stranger.max_frame_size is not None:
            await asyncio.sleep(0)
        stranger.arrive(*frames(METADATA))
        assert keeper.asked[-1] == (METADATA, ALICE)

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_before_a_client_has_authenticated_only_some_apis_pass() -> None:
    async def scenario() -> None:
        for api_key in (PRODUCE, METADATA):
            keeper = Doorkeeper()
            stranger = NotedTransport(keeper.conversations.begin, "SASL_PLAINTEXT")
            neighbour = NotedTransport(keeper.conversations.begin, "PLAINTEXT")
            stranger.arrive(*frames(API_VERSIONS, api_key, METADATA))
            assert [asked for asked, _ in keeper.asked] == [API_VERSIONS]
            assert f"{api_name(api_key)} v" in stranger.closed
            assert "it is not served before the client has authenticated" in stranger.closed
            assert keeper.conversations.waiting_in_all == 0
            assert not neighbour.closed

    asyncio.run(scenario())


def test_no_other_api_is_served_before_authentication_in_any_version() -> None:
    """Decided by the header alone: there is no body to parse."""

    async def scenario() -> None:
        keeper = Doorkeeper()
        for schema in SCHEMAS.values():
            if schema.key in (API_VERSIONS, SASL_HANDSHAKE):
                continue
            for version in range(schema.max_version + 1):
                for before in ((), (API_VERSIONS,)):
                    client = NotedTransport(keeper.conversations.begin, "SASL_PLAINTEXT")
                    start = REQUEST_START.pack(schema.key, version, 1, -1)
                    client.arrive(*frames(*before), memoryview(start + b"\0"))
                    assert "is not served before" in client.closed, (schema.name, version)
        assert {api_key for api_key, _ in keeper.asked} == {API_VERSIONS}

    asyncio.run(scenario())


def test_requests_behind_the_authentication_are_judged_after_it() -> None:
    """They arrived in the same read, and are held until it is known who asks."""

    async def scenario() -> None:
        keeper = Doorkeeper()
        client = NotedTransport(keeper.conversations.begin, "SASL_PLAINTEXT")
        client.arrive(*frames(API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, PRODUCE))
        assert [api_key for api_key, _ in keeper.asked] == [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE]
        assert client.receiver.state is State.GATED  # type: ignore[attr-defined]
        keeper.is_convinced.set()
        while len(keeper.asked) < 4:
            await asyncio.sleep(0)
        client.arrive(*frames(METADATA))
        assert keeper.asked == [
            (API_VERSIONS, ANONYMOUS),
            (SASL_HANDSHAKE, ANONYMOUS),
            (SASL_AUTHENTICATE, ANONYMOUS),
            (PRODUCE, ALICE),
            (METADATA, ALICE),
        ]
        assert not client.closed

    asyncio.run(scenario())


def test_after_a_handshake_of_version_0_messages_have_no_header() -> None:
    async def scenario() -> None:
        keeper = Doorkeeper()
        keeper.handshake_version = 0
        client = NotedTransport(keeper.conversations.begin, "SASL_PLAINTEXT")
        client.arrive(*frames(SASL_HANDSHAKE), memoryview(b"let me in"), *frames(METADATA))
        while len(keeper.asked) < 2:
            await asyncio.sleep(0)
        assert keeper.asked == [(SASL_HANDSHAKE, ANONYMOUS), (METADATA, ALICE)]
        assert not client.closed

    asyncio.run(asyncio.wait_for(scenario(), 10))


@pytest.mark.parametrize("version", [0, 1])
def test_messages_of_a_repeated_login_are_small_too(version: int) -> None:
    """They are handled at once, whatever the client may send otherwise."""

    async def scenario() -> None:
        keeper = Doorkeeper()
        keeper.is_convinced.set()
        client = NotedTransport(keeper.conversations.begin, "SASL_AGAIN")
        client.arrive(*frames(SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA))
        while len(keeper.asked) < 3:
            await asyncio.sleep(0)
        client.arrive(numbered_frame(9, METADATA, size=100_000))
        assert not client.closed
        keeper.handshake_version = version
        client.arrive(*frames(SASL_HANDSHAKE), numbered_frame(10, SASL_AUTHENTICATE, size=100_000))
        assert "a message of its login has 100000 bytes, when 65536 are allowed" in client.closed

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_a_client_that_leaves_before_the_response_to_its_login_is_no_bug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        keeper = Doorkeeper()
        keeper.handshake_version = 0
        client = NotedTransport(keeper.conversations.begin, "SASL_PLAINTEXT")
        client.arrive(*frames(SASL_HANDSHAKE), memoryview(b"let me in"))
        client.close("closed by the peer")
        for _ in range(5):
            await asyncio.sleep(0)
        assert client.flushes_due == 0

    asyncio.run(scenario())
    assert "this is a bug" not in caplog.text
