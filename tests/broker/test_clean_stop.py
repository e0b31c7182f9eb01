"""A clean stop closes its logs in turns of the event loop, most of them while clients are still served."""

import asyncio
from pathlib import Path

import pytest

from odradek.model import METADATA_TOPIC
from odradek.records.record import Record, build_batch
from odradek.storage.disk.checkpoints import CLEAN_SHUTDOWN
from odradek.storage.log.log import Log
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.in_process import InProcess

COUNT = 20
BATCH = bytes(build_batch([Record(0, 0, b"key", b"value")]))


class Work:
    """Logs that were written to disk. Each takes 8 ms by the clock of `Turns`, whose share of a turn is 10 ms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.total = 0
        self.by_turn = [0]
        persist = Log.persist_state

        def persist_state(log: Log) -> None:
            if log.topic_partition.topic != METADATA_TOPIC:
                self.total += 1
                self.by_turn[-1] += 1
            persist(log)

        monkeypatch.setattr(Log, "persist_state", persist_state)

    def clock(self) -> float:
        return self.total / 128

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.by_turn.append(0)


async def produce_to_all(broker: InProcess) -> None:
    partitions = [PartitionProduceData(index, BATCH) for index in range(COUNT)]
    data = TopicProduceData(name="t", partition_data=partitions)
    response = await broker.ask(ProduceRequest(None, -1, 30_000, [data]), 9)
    assert not any(partition.error_code for partition in response.responses[0].partition_responses)


async def with_logs(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[InProcess, Work]:
    """Start a broker with records in every log; its stop is counted."""
    broker = InProcess(str(path))
    await broker.__aenter__()
    await broker.create_topic("t", COUNT)
    await produce_to_all(broker)
    work = Work(monkeypatch)
    broker.broker.services.node.turns.clock = work.clock
    return broker, work


def test_a_clean_stop_closes_a_few_logs_in_each_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        broker, work = await with_logs(tmp_path, monkeypatch)
        watching = asyncio.create_task(work.watch())
        await broker.__aexit__()
        watching.cancel()
        assert work.total == COUNT
        assert max(work.by_turn) <= 3

    asyncio.run(main())
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


def test_clients_are_served_while_a_stop_writes_the_logs_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        broker, work = await with_logs(tmp_path, monkeypatch)
        stopping = asyncio.create_task(broker.__aexit__())
        while not work.total:
            await asyncio.sleep(0)
        response = await broker.produce("t", [(b"key", b"late")])
        assert response.error_code == 0 and work.total < COUNT
        await stopping
        assert work.total == COUNT + 1, "only the log that has changed since is written again"

    asyncio.run(main())

    async def again() -> None:
        async with InProcess(str(tmp_path)) as broker:
            assert broker.broker._store.was_clean
            assert [record.value for record in broker.records("t")] == [b"value", b"late"]

    asyncio.run(again())
