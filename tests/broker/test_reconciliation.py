"""Topics that come, go and grow on a disk that keeps failing: once it is well, the logs are what the metadata says.

Every request is answered. An acknowledged record is where it was put until its topic is deleted, and never again.
"""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from odradek.services.partitions import local_partitions
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker import test_deleted_topics
from tests.broker.in_process import InProcess
from tests.broker.test_deleted_topics import UnrenamedFiles, fetch_request_of
from tests.broker.test_disk_faults import run_on
from tests.protocol.raw import batch, produce_request

NAMES = ("a", "b", "c", "d")
STEPS = 150
LATEST_FETCH = 17
Ledger = dict[tuple[str, int], list[bytes]]


class World:
    def __init__(self, broker: InProcess, files: UnrenamedFiles, seed: int) -> None:
        self.broker = broker
        self.files = files
        self.rng = random.Random(seed)
        self.ledger: Ledger = {}  # acknowledged, by topic and partition, of the topics that exist
        self.parked: list[asyncio.Future[Any]] = []
        self.written = 0

    def any_names(self) -> list[str]:
        return self.rng.sample(NAMES, self.rng.randint(1, len(NAMES)))

    async def step(self) -> None:
        ways = (
            self.create,
            self.delete,
            self.grow,
            self.produce,
            self.produce,
            self.fetch,
            self.fail,
            self.heal,
        )
        await self.rng.choice(ways)()
        for _ in range(self.rng.randint(0, 3)):
            await asyncio.sleep(0)
        if self.rng.random() < 0.1:
            self.broker.broker._partitions.retry_failed()

    async def create(self) -> None:
        wanted = [CreatableTopic(name, self.rng.randint(1, 3), 1) for name in self.any_names()]
        response = await self.broker.ask(CreateTopicsRequest(wanted), 7)
        for topic in response.topics:
            if topic.error_code == 0:
                self.ledger |= {(topic.name, index): [] for index in range(topic.num_partitions)}

    async def delete(self) -> None:
        states = [DeleteTopicState(name) for name in self.any_names()]
        response = await self.broker.ask(DeleteTopicsRequest(states, timeout_ms=5000), 6)
        gone = {topic.name for topic in response.responses if topic.error_code == 0}
        self.ledger = {key: values for key, values in self.ledger.items() if key[0] not in gone}

    async def grow(self) -> None:
        wanted = [CreatePartitionsTopic(name, 4, None) for name in self.any_names()]
        response = await self.broker.ask(CreatePartitionsRequest(wanted, 5000), 3)
        for topic in response.results:
            if topic.error_code == 0:
                self.ledger |= {
                    key: [] for index in range(4) if (key := (topic.name, index)) not in self.ledger
                }

    async def produce(self) -> None:
        key = (self.rng.choice(NAMES), self.rng.randrange(4))
        self.written += 1
        value = b"%d" % self.written
        request = produce_request(key[0], batch(value), partition=key[1])
        response = (await self.broker.ask(request, 9)).responses[0].partition_responses[0]
        if response.error_code == 0:
            self.ledger[key].append(value)
            assert response.base_offset == len(self.ledger[key]) - 1

    async def fetch(self) -> None:
        topics = self.broker.broker.metadata.image.topics
        wanted = {name: topics[name].id for name in self.any_names() if name in topics}
        request = fetch_request_of(wanted, 0, max_wait_ms=self.rng.choice((1, 1000)))
        self.parked.append(asyncio.ensure_future(self.broker.ask(request, LATEST_FETCH)))

    async def fail(self) -> None:
        fault = self.rng.randrange(3)
        if fault == 0:
            self.files.is_full = True
        elif fault == 1:
            self.files.room_for_directories = self.rng.randint(0, 3)
        else:
            self.files.unrenamed = {f"{name}-{index}" for name in self.any_names() for index in range(4)}

    async def heal(self) -> None:
        self.files.heal()

    async def settle(self) -> None:
        await self.heal()
        self.broker.broker._partitions.retry_failed()
        for _ in range(40):
            await asyncio.sleep(0)
        await asyncio.gather(*self.parked)

    def check(self, data_dir: Path) -> None:
        image = self.broker.broker.metadata.image
        expected = {(topic.name, index) for topic in image.topics.values() for index in topic.partitions}
        assert self.ledger.keys() == expected
        replicas = self.broker.broker.replicas
        assert {tuple(partition.topic_partition) for partition in replicas} == expected
        for partition in replicas:
            topic = image.topics[partition.topic_partition.topic]
            assert partition.topic_id == partition.log.topic_id == topic.id
            assert partition.high_watermark == len(self.ledger[partition.topic_partition])
        there = {
            path.name for name in NAMES for path in data_dir.glob(f"{name}-*") if path.name[2:].isdecimal()
        }
        assert there == {f"{name}-{index}" for name, index in expected}


@pytest.mark.parametrize("seed", range(12))
def test_logs_follow_the_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(local_partitions, "REQUEST_RETRY_SECONDS", 0)
    monkeypatch.setattr(test_deleted_topics, "PARTITIONS", 4)
    ledgers: list[Ledger] = []

    async def scenario(broker: InProcess, files: UnrenamedFiles) -> None:
        files.heal()
        world = World(broker, files, seed)
        for _ in range(STEPS):
            await world.step()
        await world.settle()
        world.check(tmp_path)
        ledgers.append(world.ledger)

    async def again() -> None:
        async with InProcess(str(tmp_path)) as broker:
            for (name, index), values in ledgers[0].items():
                assert broker.broker.replicas.get(name, index).log.end_offset == len(values)

    run_on(UnrenamedFiles(), tmp_path, scenario)
    asyncio.run(again())
