"""Throw frames at the dispatcher of a broker in this process, and serve a healthy client in between."""

import asyncio
import gc
import logging
import os
import random
import time
import traceback
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.apis.messages import response_type
from odradek.apis.table import BROKER
from odradek.broker.main import Broker
from odradek.config.broker import BrokerConfig
from odradek.errors import ProtocolError
from odradek.model import Caller
from odradek.records.record import Record, build_batch
from odradek.serving.dispatch import Dispatcher
from odradek.serving.request import Request
from odradek.serving.road import PRODUCE, Effect, Road, Route, Run
from odradek.storage.disk.files import DiskFile, DiskFiles, File
from odradek.storage.segments.row import Slice
from odradek.wire import codec
from odradek.wire.frame import SIZE, encode_request, has_tagged_response_header, read_request_header
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tools.fuzz.frames import TOPICS, Frames, Pool

# The topics that the frames speak of, with settings that make a broker look at records in every way it can.
TOPIC_SETTINGS = {
    "a": {},
    "b": {"cleanup.policy": "compact", "compression.type": "zstd"},
    "c.d": {"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "1000000000000000"},
}
HEALTHY = "healthy"
OUTSTANDING = 200  # requests that may wait for their response before their client hangs up
HEALTH_INTERVAL = 500  # frames between two rounds of the healthy client
SLOW_SECONDS = 2.0  # longer than this on one frame is unbounded work
SETTINGS = {
    "listeners": "PLAINTEXT://localhost:0",
    "offsets.topic.num.partitions": "2",
    "group.min.session.timeout.ms": "10",
    "group.max.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": "20",
    "max.incremental.fetch.session.cache.slots": "50",
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "0",
    "replica.high.watermark.checkpoint.interval.ms": "200",  # when deleted files are removed, too
}


class UnsyncedFile(DiskFile):
    __slots__ = ()

    def sync(self) -> None:
        pass


class UnsyncedFiles(DiskFiles):
    """A disk that syncs in no time: the fuzz is after the code, not the disk."""

    def file(self, path: str) -> DiskFile:
        return UnsyncedFile(self, path)

    def create(self, path: str) -> DiskFile:
        super().create(path).close()
        return UnsyncedFile(self, path)

    def sync_directory(self, path: str) -> None:
        pass

    def sync_many(self, files: Sequence[File]) -> None:
        pass


class CountingRoad(Road):
    """Counts the requests that reached their handler."""

    def __init__(self, services: Any) -> None:
        super().__init__(services, BROKER)
        self.handled: Counter[int] = Counter()

    def take(self, route: Route, request: Request, message: Any) -> Effect | None:
        self.handled[request.api_key] += 1
        return super().take(route, request, message)

    def take_run(self, run: Run) -> Effect | None:
        self.handled[PRODUCE] += len(run)
        return super().take_run(run)


@dataclass
class Outcome:
    frames: int = 0
    refused: int = 0  # frames that would have closed their connection
    handled: Counter[int] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0
    health_checks: int = 0
    grown_bytes: int = 0
    grown_descriptors: int = 0
    grown_tasks: int = 0

    @property
    def reached(self) -> int:
        return self.handled.total()

    def report(self) -> str:
        share = 100 * self.reached / max(self.frames, 1)
        lines = [
            f"{self.frames:,} frames, {self.reached:,} ({share:.0f} %) reached a handler, "
            f"{self.refused:,} refused; slowest {self.slowest_seconds * 1000:.0f} ms",
            f"a healthy client was served {self.health_checks} times in between",
            f"growth: {self.grown_bytes / 1e6:.1f} MB, {self.grown_descriptors} descriptors, "
            f"{self.grown_tasks} tasks",
        ]
        return "\n".join(lines + self.findings)


class Watcher(logging.Handler):
    """Collects findings, each kind of them once. Whatever the broker logs as an error is one."""

    def __init__(self, findings: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._findings = findings
        self._seen: set[str] = set()
        self.frame = b""

    def emit(self, record: logging.LogRecord) -> None:
        text = logging.Formatter("%(name)s: %(message)s").format(record)
        places = [line for line in text.splitlines() if line.startswith("  File")]
        self.found(f"logged: {text}", places[-1] if places else text.split(":")[0])

    def found(self, what: str, kind: str) -> None:
        if kind not in self._seen:
            self._seen.add(kind)
            self._findings.append(f"{what}\n  by frame {self.frame.hex()}")


class Fuzzer:
    def __init__(self, broker: Broker, rng: random.Random, outcome: Outcome) -> None:
        self._broker = broker
        self._road = broker.services._roads[BROKER] = CountingRoad(broker.services)
        self._dispatcher = Dispatcher(broker.services)
        self._pool = Pool(rng)
        self._frames = iter(Frames(rng, self._pool))
        self._outcome = outcome
        self._outstanding: deque[Request] = deque()
        self._watcher = Watcher(outcome.findings)

    async def run(self, count: int) -> None:
        """The first tenth warms up; what has grown from there to the end is reported."""
        logging.getLogger().addHandler(self._watcher)
        try:
            await self._prepare()
            await self._throw(count // 10)
            start = self._footprint()
            await self._throw(count - count // 10)
            end = self._footprint()
        finally:
            logging.getLogger().removeHandler(self._watcher)
        outcome = self._outcome
        outcome.handled = self._road.handled
        outcome.grown_bytes, outcome.grown_descriptors, outcome.grown_tasks = (
            after - before for after, before in zip(end, start, strict=True)
        )

    def _footprint(self) -> tuple[int, int, int]:
        for request in self._outstanding:
            request.abandon()
        self._outstanding.clear()
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * 4096, len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())

    async def _throw(self, count: int) -> None:
        for number in range(count):
            await self._handle(next(self._frames))
            self._outcome.frames += 1
            if number % HEALTH_INTERVAL == 0:
                await self._tidy()
                await self._check_health()
            elif number % 20 == 0:
                await asyncio.sleep(0)

    async def _handle(self, frame: bytes) -> None:
        self._watcher.frame = frame
        start = time.perf_counter()
        try:
            header = read_request_header(memoryview(bytearray(frame)))
            request = Request(
                header,
                Caller(address="127.0.0.1:1", listener="PLAINTEXT"),
                self._answered,
                self._dispatcher.turns,
            )
            effect = self._dispatcher.dispatch(request, memoryview(bytearray(frame)), header.body)
            effect = effect or self._dispatcher.finish()
            if effect is not None:
                await effect
        except ProtocolError:
            self._outcome.refused += 1
            return
        except Exception as error:
            self._watcher.found(f"{type(error).__name__}: {error}", f"api {frame[:2].hex()}")
            return
        seconds = time.perf_counter() - start
        self._outcome.slowest_seconds = max(seconds, self._outcome.slowest_seconds)
        if seconds > SLOW_SECONDS:
            self._watcher.found(f"{seconds:.1f} s", f"slow api {frame[:2].hex()}")
        if not request.is_answered:
            self._outstanding.append(request)
        while len(self._outstanding) > OUTSTANDING:
            self._outstanding.popleft().abandon()

    def _answered(self, request: Request) -> None:
        """Every response must be readable in the version asked for."""
        if not request.parts:
            return
        try:
            self._pool.learn(read_response(request))
        except Exception as error:
            kind = f"api {request.api_key} v{request.version}"
            self._watcher.found(f"{kind}: a response that cannot be read: {error!r}", kind)

    # --- the healthy client ---

    async def _ask(self, message: Any, version: int) -> Any:
        answered = asyncio.get_running_loop().create_future()
        frame = memoryview(
            bytearray(encode_request(message, message.API_KEY, version, 1, "healthy")[SIZE.size :])
        )
        header = read_request_header(frame)
        request = Request(
            header,
            Caller(address="127.0.0.1:2", listener="PLAINTEXT"),
            answered.set_result,
            self._dispatcher.turns,
        )
        effect = self._dispatcher.dispatch(request, frame, header.body) or self._dispatcher.finish()
        if effect is not None:
            await effect
        return read_response(await asyncio.wait_for(answered, 10))

    async def _prepare(self) -> None:
        await self._ask(CreateTopicsRequest([CreatableTopic(HEALTHY, 1, 1)]), 7)

    async def _tidy(self) -> None:
        """Topics that damaged names made are deleted, those that the frames speak of made again."""
        image = self._broker.services.cluster.image
        extra = set(image.topics) - set(TOPICS) - {HEALTHY}
        if extra:
            states = [DeleteTopicState(name) for name in sorted(extra)]
            await self._ask(DeleteTopicsRequest(states, timeout_ms=1000), 6)
        missing = [
            CreatableTopic(
                name, 2, 1, configs=[CreatableTopicConfig(*setting) for setting in settings.items()]
            )
            for name, settings in TOPIC_SETTINGS.items()
            if name not in image.topics
        ]
        if missing:
            await self._ask(CreateTopicsRequest(missing), 7)

    async def _check_health(self) -> None:
        batch = bytes(build_batch([Record(0, 0, b"key", b"value")]))
        data = TopicProduceData(name=HEALTHY, partition_data=[PartitionProduceData(0, batch)])
        produced = (
            (await self._ask(ProduceRequest(None, -1, 5000, [data]), 9)).responses[0].partition_responses[0]
        )
        assert produced.error_code == 0, f"the healthy client could not produce: {produced}"
        partition = FetchPartition(0, fetch_offset=produced.base_offset, partition_max_bytes=1000)
        fetch = FetchRequest(
            max_wait_ms=5000, min_bytes=1, topics=[FetchTopic(topic=HEALTHY, partitions=[partition])]
        )
        fetched = (await self._ask(fetch, 12)).responses[0].partitions[0]
        assert len(fetched.records) == len(batch), f"the healthy client could not fetch: {fetched}"
        await self._ask(
            FindCoordinatorRequest(key_type=0, coordinator_keys=[HEALTHY]), 4
        )  # its topic may be deleted
        commit = OffsetCommitRequestPartition(0, produced.base_offset, -1, "")
        topics = [OffsetCommitRequestTopic(name=HEALTHY, partitions=[commit])]
        committed = await self._ask(OffsetCommitRequest(HEALTHY, topics=topics), 8)
        assert committed.topics[0].partitions[0].error_code == 0, f"it could not commit: {committed}"
        self._outcome.health_checks += 1


def read_response(request: Request) -> Any:
    parts = [
        part.file.read_at(part.position, part.length) if isinstance(part, Slice) else bytes(part)
        for part in request.parts or ()
    ]
    frame = b"".join(parts)
    assert SIZE.unpack_from(frame)[0] == len(frame) - SIZE.size, "the size of the frame is wrong"
    tagged = has_tagged_response_header(request.api_key, request.version)
    response, end = codec.read_message(
        response_type(request.api_key), request.version, frame, 9 if tagged else 8
    )
    assert end == len(frame), "there are bytes behind the response"
    return response


def fuzz_in_process(count: int, seed: int, data_dir: str) -> Outcome:
    outcome = Outcome()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        rng = random.Random(seed)
        config = BrokerConfig({**SETTINGS, "log.dirs": data_dir})
        broker = Broker(config, loop, random.Random(seed), UnsyncedFiles())
        await broker.start()
        try:
            await Fuzzer(broker, rng, outcome).run(count)
            await broker.stop()
            again = Broker(config, loop, random.Random(seed), UnsyncedFiles())
            await again.start()
            await again.stop()
        except Exception:
            outcome.findings.append(f"the end, or a new start on what was stored: {traceback.format_exc()}")

    asyncio.run(main())
    return outcome
