"""A program that writes numbered batches as Spark does, over the simulated cluster, and what must hold afterwards.

Its checkpoint survives it: before a batch runs, what it reads is written down; once it is written, that it is finished.
A batch whose end was not noted runs again, with the same offsets but, as with rand(), not the same rows: each attempt
marks its rows, and the rows of a batch must all come from one attempt.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from odradek.client.producing import EncodedRecords
from odradek.client.settings import ProduceSettings
from odradek.ledger.protocol import Adoption, Order
from odradek.ledger.record import Entry, decode_entry
from odradek.ledger.topic import NAME, PARTITIONS
from odradek.ledger.writer import Writer
from odradek.model import TopicPartition
from odradek.records.record import Record, encode_records
from tests.ledger.simulated_cluster import Crashed, SimulatedClient, SimulatedCluster

TOPIC = "target"
ROWS = 4  # of a batch, two in each partition
TIMEOUT_MS = 120_000

_attempts = itertools.count()


@dataclass
class Checkpoint:
    offsets: list[str] = field(default_factory=list)  # the fingerprints of planned batches
    finished: int = -1
    adoption: Adoption | None = None

    def copy(self) -> "Checkpoint":
        return Checkpoint(list(self.offsets), self.finished, self.adoption)


class SomeRows:
    """Two rounds of two batches."""

    count = ROWS
    partitions = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))

    def __init__(self, batch: int) -> None:
        self.batch, self.attempt = batch, next(_attempts)

    def ready(self) -> None:
        pass

    def rounds(self) -> Iterator[list[EncodedRecords]]:
        attempt = next(_attempts)
        for number in range(2):
            yield [self._encoded(partition, 2 * number + partition, attempt) for partition in (0, 1)]

    def _encoded(self, partition: int, row: int, attempt: int) -> EncodedRecords:
        record = Record(0, 0, None, f"{self.batch}/{row}/{attempt}".encode())
        return EncodedRecords(TopicPartition(TOPIC, partition), encode_records([record], 0, 0), 1, 0, 0)


class Program:
    """One life of the process, on a checkpoint that outlives it."""

    def __init__(
        self,
        simulated: SimulatedCluster,
        checkpoint: Checkpoint,
        script: dict[int, str] | None = None,
        sink: str = "sink",
        plan: str = "read",
        **actions: Callable[[], None],
    ) -> None:
        self.client = SimulatedClient(simulated, script, **actions)
        self._checkpoint, self._plan = checkpoint, plan
        self._writer = Writer(self.client, sink, ProduceSettings(), TIMEOUT_MS, clock=lambda: simulated.now_s)
        self._sink = sink
        self.skipped: list[int] = []

    def run(self, batches: int) -> None:
        """Until so many batches are finished."""
        checkpoint = self._checkpoint
        while checkpoint.finished + 1 < batches:
            number = checkpoint.finished + 1
            if len(checkpoint.offsets) == number:
                checkpoint.offsets.append(f"{self._plan} {number}")
            order = Order(self._sink, number, checkpoint.offsets[number], checkpoint.adoption)
            if not self._writer.write(order, SomeRows(number), self._adopt).is_new:
                self.skipped.append(number)
            checkpoint.finished = number

    def _adopt(self, adoption: Adoption) -> None:
        self._checkpoint.adoption = adoption


def new_cluster(**settings: int) -> SimulatedCluster:
    return SimulatedCluster({TOPIC: 2, NAME: PARTITIONS}, **settings)


def lives(
    simulated: SimulatedCluster,
    scripts: list[dict[int, str]],
    batches: int = 2,
    **actions: Callable[[], None],
) -> Checkpoint:
    """Run a program again and again, each life with its script, and the last without one."""
    checkpoint = Checkpoint()
    for script in [*scripts, {}]:
        try:
            Program(simulated, checkpoint, script, **actions).run(batches)
        except Crashed:
            continue
    return checkpoint


def ledger_of(simulated: SimulatedCluster, sink: str = "sink") -> Entry | None:
    found = [one.value for one in simulated.visible(NAME) if one.key == sink.encode()]
    return None if not found or found[-1] is None else decode_entry(sink, found[-1])


def check_exactly_once(simulated: SimulatedCluster, batches: int) -> None:
    """Every row of every batch once, those of a batch from one attempt, and the ledger names the last batch."""
    simulated.pass_time(10_000)
    rows = [(one.value or b"").decode().split("/") for one in simulated.visible(TOPIC)]
    counts = Counter((int(batch), int(row)) for batch, row, _ in rows)
    wanted = Counter((batch, row) for batch in range(batches) for row in range(ROWS))
    assert counts == wanted, f"missing: {dict(wanted - counts)}, too many: {dict(counts - wanted)}"
    for batch in range(batches):
        attempts = {attempt for number, _, attempt in rows if int(number) == batch}
        assert len(attempts) == 1, f"batch {batch} has rows of {len(attempts)} attempts"
    entry = ledger_of(simulated)
    assert entry is not None and entry.batch == batches - 1, f"the ledger says {entry}"
