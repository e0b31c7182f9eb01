"""Every API gives the same response whichever way its request comes: by connection, in an Envelope, from this node."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.apis.messages import request_type
from odradek.apis.row import Api
from odradek.apis.table import APIS, BROKER, CONTROLLER
from odradek.model import ANONYMOUS, Caller, Principal
from odradek.serving.dispatch import controller_handlers
from odradek.serving.envelope import unwrap_response, wrap
from odradek.serving.request import Request
from odradek.wire.frame import SIZE, encode_request, read_request_header
from tests.broker.in_process import InProcess, content
from tests.serving.acl import Acl
from tests.serving.sample_requests import sample
from tests.serving.test_refusal import error_codes

ALICE = Caller(Principal("User", "alice"), "10.1.2.3:40000", client_id="a client")
# They have codecs of their own, and are answered on connections only.
OWN_CODECS = {"Produce", "Fetch"}
# They go to the core of the quorum, and come from other nodes only.
ONE_ENTRANCE = {
    *("Envelope", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot", "UpdateRaftVoter"),
}
# It describes brokers or controllers, as the listener says.
BY_LISTENER = {"DescribeCluster"}
SETTINGS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}


class Entered(InProcess):
    def __init__(self, data_dir: str, acl: Acl | None = None) -> None:
        super().__init__(data_dir, settings=SETTINGS, authorizer=acl)
        self.acl = acl or Acl()
        self._controller = controller_handlers(self.broker.services)["CONTROLLER"]

    async def ask_controller(self, message: Any, version: int) -> Any:
        frame = memoryview(encode_request(message, message.API_KEY, version, 1, "test"))[SIZE.size :]
        header = read_request_header(frame)
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        caller = Caller(ANONYMOUS, "127.0.0.1:1", "CONTROLLER", "test")
        request = Request(
            header, caller, lambda each: answered.set_result(each.parts), self._controller.turns
        )
        self.on_request(request)
        effect = self._controller.dispatch(request, frame, header.body)
        if effect is not None:
            await effect
        return self._read(b"".join(map(content, await answered)), message.API_KEY, version)

    async def ask_in_envelope(self, message: Any, version: int) -> Any:
        wrapped = await self.ask_controller(wrap(message, version, ALICE, 77), 0)
        return unwrap_response(wrapped, message.API_KEY, version, 77)

    async def ask_itself(self, message: Any, version: int) -> Any:
        services = self.broker.services
        return await services.ask(message, version, services.node.caller)


Entrance = Callable[[Entered, Any, int], Awaitable[Any]]


def entrances(api: Api) -> dict[str, Entrance]:
    ways: dict[str, Entrance] = {}
    if BROKER in api.modules:
        ways["broker"] = Entered.ask
    if CONTROLLER in api.modules:
        ways["controller"] = Entered.ask_controller
    if api.is_forwarded:
        ways["envelope"] = Entered.ask_in_envelope
    if api.modules and api.name not in OWN_CODECS:
        ways["itself"] = Entered.ask_itself
    return ways


SEVERAL = [
    api
    for api in APIS.values()
    if len(entrances(api)) > 1 and api.name not in OWN_CODECS | ONE_ENTRANCE | BY_LISTENER
]


@pytest.mark.parametrize("api", SEVERAL, ids=lambda api: api.name)
def test_every_entrance_leads_to_the_same_response(api: Api, tmp_path: Path) -> None:
    async def codes(name: str, entrance: Entrance) -> list[int]:
        async with Entered(str(tmp_path / name)) as node:
            version = api.max_version
            message = sample(request_type(api.key), version)
            async with asyncio.timeout(60):
                return list(error_codes(await entrance(node, message, version), version))

    async def scenario() -> None:
        by_entrance = {name: await codes(name, entrance) for name, entrance in entrances(api).items()}
        first = next(iter(by_entrance.values()))
        assert by_entrance == dict.fromkeys(by_entrance, first)

    asyncio.run(scenario())


def test_most_apis_have_several() -> None:
    assert len(SEVERAL) > 45
