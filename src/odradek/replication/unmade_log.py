"""The log of a new partition before it has files.

A topic exists once the metadata says so, and its partitions are served from then on. Their files are created one after
the other in later turns of the event loop. Until then a partition is empty, and every request about it can be served
without a file; the first append creates the log, and goes to it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.records.batch import BatchHeader, Buffer
from odradek.storage.config import LogConfig
from odradek.storage.log.epochs import LeaderEpochs
from odradek.storage.log.log import Log
from odradek.storage.log.run import AppendResult
from odradek.storage.producers.markers import Marker, TransactionEnd
from odradek.storage.producers.state import Producers
from odradek.storage.producers.verification import Verification
from odradek.storage.segments.segment import Segment


class UnmadeLog:
    """The part of `storage.log.log.Log` that an empty log needs. `make` returns the log that replaces it; it raises
    KafkaError if that cannot be created now."""

    __slots__ = ("_make", "config", "leader_epochs", "producers", "topic_partition")

    log_start_offset = end_offset = synced_offset = 0
    size_bytes = missing_until = 0
    failed = must_be_copied = False
    damage = None
    segments: Sequence[Segment] = ()

    def __init__(self, topic_partition: TopicPartition, config: LogConfig, make: Callable[[], Log]) -> None:
        self.topic_partition = topic_partition
        self.config = config
        self.leader_epochs = LeaderEpochs(_NoFiles(), "")  # type: ignore[arg-type]
        self.producers = Producers()
        self._make = make

    # --- appending creates it ---

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        check_sequence: bool = True,
        verification: Verification | None = None,
        marker: Marker | None = None,
    ) -> AppendResult:
        made = self._make()
        return made.append_as_leader(
            batch, header, leader_epoch, now_ms, check_sequence, verification, marker
        )

    def append_all_as_leader(
        self, batches: Sequence[tuple[memoryview, BatchHeader]], leader_epoch: int, now_ms: int
    ) -> list[AppendResult | KafkaError]:
        try:
            made = self._make()
        except KafkaError as error:
            return [error] * len(batches)
        return made.append_all_as_leader(batches, leader_epoch, now_ms)

    def append_markers_as_leader(
        self, ends: Sequence[TransactionEnd], leader_epoch: int, now_ms: int
    ) -> list[int | KafkaError] | None:
        return None  # one by one: the first of them makes it

    def append_as_follower(self, batches: Buffer, now_ms: int) -> int:
        return self._make().append_as_follower(batches, now_ms)

    # --- it is empty ---

    def read(self, offset: int, max_bytes: int, upper_offset: int, minimum_one: bool = True) -> None:
        if offset != 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic_partition} is empty")

    def last_stable_offset(self, high_watermark: int) -> int:
        return high_watermark

    def aborted_transactions(self, start: int, end: int, piece: object = None) -> list[Any]:
        return []

    def truncate_to(self, offset: int) -> bool:
        self.leader_epochs.truncate_from_end(0)
        return False

    def begin_sync(self) -> None:
        return None


class _NoFiles:
    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError("the leader epochs of a log that is not made are not written")
