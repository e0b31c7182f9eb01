"""The partitions that a process copies: a thread for each, begun and ended as the group assigns them."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from odradek.mirror.clients import clients_of
from odradek.mirror.copying import Copier, Progress
from odradek.mirror.file import MirrorSettings
from odradek.mirror.position import Copy
from odradek.mirror.positions import Positions
from odradek.model import TopicPartition

RETRY_S = 30.0  # a partition that has stopped: somebody may have mended what stopped it
ENDED = ("stopped", "parked", "finished", "left")

Make = Callable[[TopicPartition], "Work"]


class Work:
    """One partition's thread."""

    def __init__(
        self,
        settings: MirrorSettings,
        positions: Positions,
        partition: TopicPartition,
        *,
        once: bool,
        accepts_loss: bool,
    ) -> None:
        self._clients = clients_of(settings)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"fetch-{partition}")
        self.copier = Copier(
            Copy(settings.source.name, *partition),
            settings.direction.copy_of(partition.topic),
            self._clients,
            positions,
            self._executor,
            fetch=settings.source.properties.fetch,
            produce=settings.target.properties.produce,
            once=once,
            accepts_loss=accepts_loss,
        )
        self._thread = threading.Thread(target=self._run, name=f"mirror-{partition}", daemon=True)
        self.failure: BaseException | None = None  # a bug of ours
        self.ended_s = float("inf")

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self.copier.run()
        except BaseException as error:
            self.failure = error
            self.copier.progress.state, self.copier.progress.reason = "stopped", repr(error)
            raise
        finally:
            self._executor.shutdown(wait=False, cancel_futures=True)
            for one in (self._clients.reading, self._clients.source, self._clients.target):
                one.close()
            self.ended_s = time.monotonic()

    def stop(self) -> None:
        self.copier.stop()

    def join(self, timeout_s: float | None = None) -> None:
        self._thread.join(timeout_s)

    @property
    def progress(self) -> Progress:
        return self.copier.progress

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()


@dataclass
class Totals:
    """Totals, which include partitions that are no longer ours."""

    records: int = 0
    bytes: int = 0
    transactions: int = 0

    def add(self, progress: Progress) -> None:
        self.records += progress.records
        self.bytes += progress.bytes
        self.transactions += progress.transactions


@dataclass
class Share:
    """The partitions that the group has assigned to this process. `make` builds the work of a partition."""

    make: Make
    works: dict[TopicPartition, Work] = field(default_factory=dict)
    past: Totals = field(default_factory=Totals)
    assigned_s: float = 0.0  # when; 0 before the first time
    _is_stopping: bool = False  # the group may still assign partitions then: they are not begun
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin what is new, end what is gone, and begin again what somebody else had taken."""
        with self._lock:
            for partition in set(self.works) - set(partitions):
                self.works[partition].stop()
                self._forget(partition)
            for partition in partitions:
                work = self.works.get(partition)
                if work is None or (work.has_ended and work.progress.state in ("parked", "left")):
                    self._begin(partition)
            self.assigned_s = time.monotonic()

    def tick(self, now_s: float) -> None:
        """Begin again what stopped a while ago, and what was fenced by the owner that it had before the assignment. Who
        is fenced after the assignment waits for the next one: there is a rival."""
        with self._lock:
            for partition, work in list(self.works.items()):
                if work.has_ended and self._is_due(work, now_s):
                    self._begin(partition)

    def _is_due(self, work: Work, now_s: float) -> bool:
        if work.progress.state == "parked":
            return work.copier.initialized_s < self.assigned_s
        return work.progress.state == "stopped" and now_s - work.ended_s > RETRY_S

    def _begin(self, partition: TopicPartition) -> None:
        if self._is_stopping:
            return
        self._forget(partition)
        self.works[partition] = self.make(partition)
        self.works[partition].start()

    def _forget(self, partition: TopicPartition) -> None:
        work = self.works.pop(partition, None)
        if work is not None:
            self.past.add(work.progress)

    def progress(self) -> dict[TopicPartition, Progress]:
        with self._lock:
            return {partition: work.progress for partition, work in sorted(self.works.items())}

    def totals(self) -> Totals:
        with self._lock:
            found = Totals(self.past.records, self.past.bytes, self.past.transactions)
            for work in self.works.values():
                found.add(work.progress)
        return found

    @property
    def has_ended(self) -> bool:
        with self._lock:
            return self.assigned_s > 0 and all(work.has_ended for work in self.works.values())

    def stop(self, patience_s: float) -> None:
        """End everything, each after its transaction."""
        with self._lock:
            self._is_stopping = True
            works = list(self.works.values())
        for work in works:
            work.stop()
        until_s = time.monotonic() + patience_s
        for work in works:
            work.join(max(until_s - time.monotonic(), 0))
