"""A source that is no replica: a consumer's Fetch reads from it and waits on it like on any other."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.fetching.sources import Sources
from odradek.records.record import decode_batch
from odradek.records.walk import whole_batches
from odradek.replication.source import Fetched, Isolation, Source
from odradek.storage.segments.row import Slice
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.broker.in_process import InProcess

VERSION = 12
LIMIT = 1 << 20


class Shouting:
    """The batches of another source whose first value is in upper case. All else is as there."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def read(self, offset: int, max_bytes: int, minimum_one: bool, isolation: Isolation) -> Fetched:
        read = self._source.read(offset, max_bytes, minimum_one, isolation)
        if not isinstance(read.records, Slice):
            return read
        piece = read.records
        content = memoryview(piece.file.read_at(piece.position, piece.length))
        kept = bytearray()
        for header, batch in whole_batches(content):
            value = next(iter(decode_batch(batch, header))).value
            if value is not None and value.isupper():
                kept += batch
        return read._replace(records=kept or None, length=len(kept))


@pytest.fixture
def everything_is_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    find = Sources.leader_or_follower
    monkeypatch.setattr(
        Sources, "leader_or_follower", lambda self, *arguments: Shouting(find(self, *arguments))
    )


def fetch_request(offset: int, max_wait_ms: int) -> FetchRequest:
    topics = [
        FetchTopic(topic="t", partitions=[FetchPartition(0, fetch_offset=offset, partition_max_bytes=LIMIT)])
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=LIMIT, session_epoch=-1, topics=topics
    )


def offsets(response: Any) -> list[int]:
    records = response.responses[0].partitions[0].records
    return [header.base_offset for header, _ in whole_batches(memoryview(records or b""))]


def test_a_filtered_source_is_read_and_waited_on(tmp_path: Path, everything_is_a_view: None) -> None:
    async def main() -> None:
        async with InProcess(str(tmp_path)) as broker:
            await broker.create_topic("t")
            for value in (b"quiet", b"LOUD", b"quiet", b"LOUD"):
                await broker.produce("t", [(None, value)])
            assert offsets(await broker.ask(fetch_request(0, 0), VERSION)) == [1, 3]
            waiting = asyncio.ensure_future(broker.ask(fetch_request(4, 60_000), VERSION))
            while not broker.broker.replicas.leader("t", 0).has_waiters:
                await asyncio.sleep(0)
            await broker.produce("t", [(None, b"quiet")])
            assert not waiting.done(), "there is nothing for it in the other source"
            await broker.produce("t", [(None, b"LOUD")])
            assert offsets(await waiting) == [5]

    asyncio.run(asyncio.wait_for(main(), 60))
