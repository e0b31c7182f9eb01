"""A source and a target at the level of requests, and a mirror between them that dies and is begun again.

The clients above are the product's. Requests to both clusters have one numbering, so that a script can let something
happen at any of them.
"""

import itertools
import struct
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from odradek.client.settings import FetchSettings, ProduceSettings
from odradek.mirror.copying import Clients, Copier
from odradek.mirror.names import Direction
from odradek.mirror.position import Copy, Position
from odradek.mirror.positions import NAME, PARTITIONS, Positions
from odradek.records.control import build_marker_batch
from odradek.records.record import Record, build_batch
from tests.ledger.simulated_cluster import Log, SimulatedClient, SimulatedCluster, Stored

TOPIC, COPY = "orders", "west.orders"
DIRECTION = Direction("west", "east")
TIMEOUT_MS = 60_000
CHUNK_BYTES = 350


class AtOnce(Executor):
    """Runs what it is given, when it is given it."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> "Future[Any]":  # type: ignore[override]
        future: Future[Any] = Future()
        try:
            future.set_result(work(*given, **named))
        except Exception as error:
            future.set_exception(error)
        return future


class Source:
    """Writes what a topic of the source may have, and keeps the ledger of what must arrive."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.expected: list[bytes] = []
        self.offsets: dict[int, bytes] = {}  # of visible records
        self._numbers = itertools.count()

    @property
    def log(self) -> Log:
        return self.cluster.log(TOPIC, 0)

    def records(
        self, count: int = 3, *, drop: tuple[int, ...] = (), visible: bool = True, **batch: Any
    ) -> None:
        """A batch, of which compaction has taken some records."""
        base = self.log.end
        found = [
            Record(base + at, 1000 + at, b"key", f"value {next(self._numbers)}".encode())
            for at in range(count)
        ]
        kept = [one for at, one in enumerate(found) if at not in drop]
        data = build_batch(kept, base_offset=base, last_offset=base + count - 1, **batch)
        producer, epoch = batch.get("producer_id", -1), batch.get("producer_epoch", -1)
        transactional = batch.get("transactional", False)
        patched = struct.pack(">q", base) + bytes(data[8:])
        self.log.batches.append(Stored(base, count, producer, epoch, patched, transactional))
        if visible:
            self.expected += [one.value or b"" for one in kept]
            self.offsets |= {one.offset: one.value or b"" for one in kept}

    def transaction(self, *, commit: bool, producer: int = 7) -> None:
        base = self.log.end
        for _ in range(2):
            self.records(2, visible=commit, producer_id=producer, producer_epoch=0, transactional=True)
        if not commit:
            self.log.aborted.append((producer, base))
        data = build_marker_batch(
            commit=commit, coordinator_epoch=0, producer_id=producer, producer_epoch=0, timestamp=0
        )
        offset = self.log.end
        patched = struct.pack(">q", offset) + bytes(data[8:])
        self.log.batches.append(Stored(offset, 1, producer, 0, patched, True, commit))

    def much(self) -> None:
        """Some of everything."""
        self.records(3)
        self.transaction(commit=False)
        self.records(5, drop=(1, 4))
        self.transaction(commit=True)
        self.records(4)
        self.transaction(commit=False)


class Pair:
    def __init__(self) -> None:
        self.west = SimulatedCluster({TOPIC: 1})
        self.east = SimulatedCluster({COPY: 1, NAME: PARTITIONS})
        self.source = Source(self.west)

    def copied(self) -> list[bytes]:
        self.east.pass_time(10_000)
        return [one.value or b"" for one in self.east.visible(COPY)]

    def check(self) -> None:
        """Each record of the source once, in order."""
        assert self.copied() == self.source.expected

    def positions(self) -> list[Position]:
        positions = Positions(SimulatedClient(self.east))
        positions.prepare()
        return positions.kept(Copy("west", TOPIC, 0))


class Script:
    """A plan of what happens at which request of a life; requests to both clusters count."""

    def __init__(self, faults: dict[int, str] | None = None, **actions: Callable[[], None]) -> None:
        self.faults, self.actions = faults or {}, actions
        self.requests: list[Any] = []


class Client(SimulatedClient):
    def __init__(self, cluster: SimulatedCluster, script: Script) -> None:
        super().__init__(cluster, script.faults, **script.actions)
        self.requests = script.requests  # shared: their number is that of the life


def life(
    pair: Pair, script: Script | None = None, *, once: bool = True, accepts_loss: bool = False
) -> Copier:
    """A copier of the one partition, from its beginning to its end."""
    script = script or Script()
    clients = Clients(Client(pair.west, script), Client(pair.west, script), Client(pair.east, script))
    positions = Positions(Client(pair.east, script))
    positions.prepare()
    copier = Copier(
        Copy("west", TOPIC, 0),
        COPY,
        clients,
        positions,
        AtOnce(),
        fetch=FetchSettings(read_committed=True, max_bytes=CHUNK_BYTES),
        produce=ProduceSettings(transaction_timeout_ms=TIMEOUT_MS),
        once=once,
        accepts_loss=accepts_loss,
        clock=lambda: pair.east.now_s,
    )
    copier.run()
    return copier
