"""Who asks, and which APIs they may call: with a made-up way to authenticate, since there is no real one yet."""

import asyncio
from collections.abc import Awaitable

import pytest

from odradek.apis.table import api_name
from odradek.errors import ProtocolError
from odradek.model import ANONYMOUS, Caller, Principal
from odradek.serving.conversation import Conversations, State
from odradek.serving.request import Request
from odradek.serving.session import AUTHENTICATION_APIS, Session, open_session
from odradek.serving.turns import Turns
from tests.serving.wires import NotedTransport, numbered_frame

PRODUCE, METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 0, 3, 17, 18, 36
ALICE = Principal("User", "alice")


class Doorkeeper:
    """Believes everybody who calls SaslAuthenticate, after a while, and notes who asked for what."""

    def __init__(self) -> None:
        self.turns = Turns(lambda: 0.0)
        self.conversations = Conversations(self, asyncio.get_running_loop().create_task, self.new_session)
        self.asked: list[tuple[int, Principal]] = []
        self.is_convinced = asyncio.Event()

    @staticmethod
    def new_session(caller: Caller) -> Session:
        if caller.listener.startswith("SASL"):
            return Session(caller, AUTHENTICATION_APIS)
        return open_session(caller)

    def dispatch(self, request: Request, frame: memoryview, body: int) -> Awaitable[None] | None:
        self.asked.append((request.api_key, request.caller.principal))
        if request.api_key == SASL_AUTHENTICATE:
            return self._authenticate(request)
        request.answer_nothing()
        return None

    async def _authenticate(self, request: Request) -> None:
        await self.is_convinced.wait()
        assert request.session is not None
        request.session.authenticated(ALICE)
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
        stranger.arrive(*frames(SASL_AUTHENTICATE))
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
            stranger.arrive(*frames(API_VERSIONS, SASL_HANDSHAKE, api_key, METADATA))
            assert [asked for asked, _ in keeper.asked] == [API_VERSIONS, SASL_HANDSHAKE]
            assert f"{api_name(api_key)} v" in stranger.closed
            assert "is not served before the client has authenticated" in stranger.closed
            assert keeper.conversations.waiting_in_all == 0
            assert not neighbour.closed

    asyncio.run(scenario())


def test_requests_behind_the_authentication_are_judged_after_it() -> None:
    """They arrived in the same read, and are held until it is known who asks."""

    async def scenario() -> None:
        keeper = Doorkeeper()
        client = NotedTransport(keeper.conversations.begin, "SASL_PLAINTEXT")
        client.arrive(*frames(API_VERSIONS, SASL_AUTHENTICATE, PRODUCE))
        assert [api_key for api_key, _ in keeper.asked] == [API_VERSIONS, SASL_AUTHENTICATE]
        assert client.receiver.state is State.GATED  # type: ignore[attr-defined]
        keeper.is_convinced.set()
        while len(keeper.asked) < 3:
            await asyncio.sleep(0)
        client.arrive(*frames(METADATA))
        assert keeper.asked == [
            (API_VERSIONS, ANONYMOUS),
            (SASL_AUTHENTICATE, ANONYMOUS),
            (PRODUCE, ALICE),
            (METADATA, ALICE),
        ]
        assert not client.closed

    asyncio.run(scenario())


def test_a_client_may_authenticate_again_but_not_become_another() -> None:
    session = Session(Caller(), AUTHENTICATION_APIS)
    assert not session.is_open
    session.authenticated(ALICE)
    session.authenticated(ALICE)
    assert session.is_open
    with pytest.raises(ProtocolError, match="User:alice cannot become User:bob"):
        session.authenticated(Principal("User", "bob"))
    assert session.caller.principal == ALICE
