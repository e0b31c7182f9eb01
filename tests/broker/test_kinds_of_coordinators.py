"""A kind of coordinator is a row in a table: this test brings one of its own, which keeps groups in another topic."""

import asyncio
from pathlib import Path

import pytest

from odradek.apis.row import Resource
from odradek.errors import ErrorCode
from odradek.services.coordination.groups import Groups
from odradek.serving.coordination import GROUPS, KINDS, Kind
from odradek.serving.services import Services
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.in_process import InProcess

OTHER = Kind(7, Resource.GROUP, "other", f"{__name__}:OtherGroups")


class OtherGroups(Groups):
    """They are in a topic of their own."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._topic = self._topic._replace(name=OTHER.topic, partitions=3)
        self._open_shards()


async def find(broker: InProcess, key_type: int) -> ErrorCode:
    response = await broker.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"]), 4)
    return ErrorCode(response.coordinators[0].error_code)


def test_another_kind_of_coordinator_is_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with InProcess(str(tmp_path)) as broker:
            assert await find(broker, OTHER.key_type) is ErrorCode.INVALID_REQUEST
            monkeypatch.setitem(KINDS, OTHER.key_type, OTHER)
            assert await find(broker, OTHER.key_type) is ErrorCode.NONE
            assert len(broker.broker.services.cluster.image.topics[OTHER.topic].partitions) == 3
            present = broker.broker._coordinators._present
            assert list(present) == [OTHER], "nobody has asked for another one"
            assert len(present[OTHER]._shards) == 3, "it was told of its partitions"
        async with InProcess(str(tmp_path)) as broker:
            present = broker.broker._coordinators._present
            assert list(present) == [OTHER], "it has something to coordinate already"
            assert await find(broker, GROUPS.key_type) is ErrorCode.NONE
            assert set(present) == {OTHER, GROUPS}

    asyncio.run(test())
