"""Logs that are nothing but their offsets, and roles on them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from odradek.metadata.image import Partition
from odradek.model import TopicPartition
from odradek.replication.leader import Leader
from odradek.replication.settings import ReplicaSettings
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.epochs import LeaderEpochs
from odradek.storage.log.log import Log
from odradek.storage.log.run import AppendResult

NAME = TopicPartition("t", 0)
NODE = 1


def no_epochs() -> LeaderEpochs:
    return LeaderEpochs(SimulatedFiles(), "/leader-epoch-checkpoint")


@dataclass
class FakeLog:
    """Each batch is one record."""

    end_offset: int = 0
    synced_offset: int = 0
    log_start_offset: int = 0
    leader_epochs: LeaderEpochs = field(default_factory=no_epochs)
    fails: bool = False

    def append_as_leader(self, *_: Any) -> AppendResult:
        if self.fails:
            raise OSError("planted")
        self.end_offset += 1
        return AppendResult(self.end_offset - 1, self.end_offset - 1, False, 0)

    def append_all_as_leader(self, batches: list[Any], leader_epoch: int, now_ms: int) -> list[Any]:
        return [self.append_as_leader() for _ in batches]


def registration(
    *,
    leader: int = NODE,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    replicas: tuple[int, ...] = (NODE,),
    isr: tuple[int, ...] = (NODE,),
) -> Partition:
    return Partition(leader, leader_epoch, partition_epoch, isr, replicas, directories=())


def lead(
    log: FakeLog,
    *,
    settings: ReplicaSettings | None = None,
    high_watermark: int = 0,
    now_ms: int = 0,
    appended: Callable[[], None] = lambda: None,
    **registered: Any,
) -> Leader:
    return Leader(
        NAME,
        cast(Log, log),
        settings or ReplicaSettings(),
        NODE,
        registration(**registered),
        high_watermark=high_watermark,
        now_ms=now_ms,
        appended=appended,
    )
