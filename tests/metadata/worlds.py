"""A metadata log and its snapshots on a simulated disk and virtual time, and a disk that crashes at any change."""

import asyncio
import random
from typing import Any
from uuid import UUID

from odradek.host.simulated import SimulatedHost, VirtualLoop
from odradek.metadata.image import MetadataImage
from odradek.metadata.log import MetadataLog
from odradek.metadata.properties import MetaProperties, read_properties
from odradek.metadata.records import FeatureLevelRecord, MetadataRecord
from odradek.metadata.snapshotting import Policy, Snapshotter
from odradek.storage.config import NEVER, LogConfig
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.wire.codec import Steps

DIRECTORY = "/data"
PROPERTIES = MetaProperties("a-cluster", 1, UUID(int=1 << 64))
PARTITION = f"{DIRECTORY}/__cluster_metadata-0"
NO_LIMIT = Policy(max_bytes=1 << 60, max_interval_ms=0, retention_bytes=-1, retention_ms=-1)
AT_ONCE = NO_LIMIT._replace(max_bytes=1)  # a snapshot whenever anything has changed
CUT_ALL = AT_ONCE._replace(retention_bytes=0)  # and nothing kept below it


class Crash(Exception):
    """The power fails."""


class CrashingFiles(SimulatedFiles):
    """`changes_left`: so many more writes, syncs and changes of names, and then the power fails. None: for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.changes_left: int | None = None

    def _change(self) -> None:
        self.changes += 1
        if self.changes_left is not None:
            if self.changes_left == 0:
                raise Crash
            self.changes_left -= 1

    def take_space(self, wanted: int) -> int:
        self._change()
        return super().take_space(wanted)

    def sync_data(self, node: Any) -> None:
        self._change()
        super().sync_data(node)

    def create(self, path: str) -> Any:
        self._change()
        return super().create(path)

    def rename(self, old: str, new: str) -> None:
        self._change()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self._change()
        super().remove(path)


class World:
    def __init__(
        self,
        files: SimulatedFiles | None = None,
        policy: Policy = AT_ONCE,
        seed: int = 0,
        segment_bytes: int = 1 << 20,
        segment_ms: int = NEVER,
    ) -> None:
        if files is None:
            files = SimulatedFiles()
        if not files.exists(DIRECTORY):
            files.make_directory(DIRECTORY)
            files.sync_directory("/")
        self.files = files
        self.loop = VirtualLoop()
        self.host = SimulatedHost(self.loop, random.Random(seed), files)
        self.steps = 0  # of writing
        properties = read_properties(files, DIRECTORY) or PROPERTIES
        config = LogConfig(segment_bytes=segment_bytes, segment_ms=segment_ms, delete=False)
        self.log = MetadataLog.open(files, DIRECTORY, properties, config, self.host.now_ms())
        self.snapshotter = Snapshotter(self.log, policy, self.host, self.finish)

    async def finish(self, steps: Steps[int]) -> int:
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: int = stop.value
                return result
            self.steps += 1
            await asyncio.sleep(0)

    def commit(self, *records: MetadataRecord) -> None:
        self.log.commit(list(records), self.host.now_ms())

    def maintain(self) -> None:
        self.host.run(self.snapshotter.maintain())

    def pass_time(self, seconds: float) -> None:
        self.loop.spend(seconds)

    @property
    def image(self) -> MetadataImage:
        return self.log.image

    def names(self, ending: str = ".checkpoint") -> list[str]:
        return sorted(entry.name for entry in self.files.list(PARTITION) if entry.name.endswith(ending))


def feature(level: int) -> FeatureLevelRecord:
    return FeatureLevelRecord("f", level)


def facts(image: MetadataImage) -> tuple[Any, ...]:
    """All that an image says but where in the log it is: every start appends to that."""
    return (
        image.cluster_id,
        image.brokers,
        image.topics,
        image.topics_by_id,
        image.metric_names,
        image.configs,
        image.quotas,
        image.credentials,
        image.acls,
        image.acl_ids,
        image.features,
        image.controllers,
        image.next_producer_id,
    )
