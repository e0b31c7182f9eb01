"""Carries out the steps of `protocol` on a cluster: a batch of rows, exactly once.

A writer lives as long as its sink has this process. Between two batches it knows what the ledger says, because it holds
the producer's epoch; after any error it knows nothing, and the next batch begins by asking.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from odradek.client.cluster import Cluster
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import TimedOut
from odradek.client.producing import EncodedRecords
from odradek.client.settings import ProduceSettings
from odradek.client.transaction_steps import (
    Commit,
    Fenced,
    Initialize,
    Look,
    Lost,
    Outcome,
    Refused,
    Seen,
    Step,
    Stop,
    Succeeded,
)
from odradek.client.transactions import ProducerFenced, TransactionalProducer, TransactionGone
from odradek.ledger import protocol as steps
from odradek.ledger.protocol import Adoption, BatchProtocol, Order
from odradek.ledger.record import ANY, Entry
from odradek.ledger.topic import TRANSACTIONAL_ID, Ledger
from odradek.model import TopicPartition

DEFAULT_TIMEOUT_MS = 120_000

log = logging.getLogger("odradek.ledger")


class RowsChanged(Exception):
    """Rows were computed again while they were sent, and may differ from those that were sent."""


class Rows(Protocol):
    """A batch's rows, ready to be sent as often as needed."""

    @property
    def count(self) -> int: ...

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions that the rows go to."""

    def ready(self) -> None:
        """Called before each transaction. After `RowsChanged` all rows are computed again here, while none is open."""

    def rounds(self) -> Iterator[Sequence[EncodedRecords]]:
        """All rows, in order. `RowsChanged` if they are no longer those that `ready` left."""


@dataclass(frozen=True)
class Written:
    """`is_new`: this run wrote the batch; otherwise an earlier one had."""

    entry: Entry
    is_new: bool


@dataclass
class _Batch:
    """The things that a run of a batch needs besides the protocol."""

    order: Order
    rows: Rows
    adopt: Callable[[Adoption], None]
    spent: Mapping[str, int]
    began_s: float
    topic_ids: dict[str, object] = field(default_factory=dict)
    send_ms: int = 0

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({partition.topic for partition in self.rows.partitions}))


class Writer:
    """`name` is what people call the sink."""

    def __init__(
        self,
        cluster: Cluster,
        sink: str,
        settings: ProduceSettings,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        name: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sink, self._name, self._cluster, self._clock = sink, name, cluster, clock
        self._ledger = Ledger(cluster)
        self._producer = TransactionalProducer(cluster, TRANSACTIONAL_ID + sink, settings, timeout_ms, clock)
        self._known: Entry | None = None  # what the ledger says, while nobody else can have written to it
        self._entry: Entry | None = None

    def write(
        self,
        order: Order,
        rows: Rows,
        adopt: Callable[[Adoption], None],
        spent: Mapping[str, int] | None = None,
    ) -> Written:
        """`adopt` stores durably what it is given, before it returns; `spent` are the caller's phases, in ms."""
        batch = _Batch(order, rows, adopt, spent or {}, self._clock())
        known, self._known = self._known, None
        protocol = BatchProtocol(order, known)
        step = protocol.start()
        while True:
            if isinstance(step, Stop):
                raise step.error
            if isinstance(step, steps.Skip):
                # An operator's record may be in a new ledger, which the next batch has to adopt.
                self._known = None if step.entry.fingerprint == ANY else step.entry
                return Written(step.entry, is_new=False)
            if isinstance(step, steps.Done):
                assert self._entry is not None
                self._known = self._entry
                return Written(self._entry, is_new=True)
            step = protocol.step(self._outcome(step, batch))

    def seen(self, order: Order) -> Written | None:
        """The batch, if the ledger shows at once that it was written. None: `write` finds out."""
        entry = self._ledger.seen(self.sink)
        if entry is None or entry.batch != order.batch or not entry.is_of(order.fingerprint):
            return None
        return Written(entry, is_new=False)

    def _outcome(self, step: Step, batch: _Batch) -> Outcome:
        """An outage is the caller's to wait for or to report: nothing can be aborted while it lasts."""
        try:
            return CARRIED_OUT[type(step)](self, batch)
        except ProducerFenced:
            return Fenced(self._producer.open_ms, self._producer.timeout_ms)
        except (TransactionGone, RowsChanged) as error:
            log.warning("batch %d of %s: %s. Trying again", batch.order.batch, self.sink, error)
            return Lost(str(error))
        except (TimedOut, ConnectionLost):
            raise
        except Exception as error:  # the rows' own, too
            return Refused(error)

    def _initialize(self, _: _Batch) -> Outcome:
        self._ledger.ensure()
        self._producer.initialize()
        return Succeeded()

    def _read_ledger(self, _: _Batch) -> Outcome:
        return steps.Found(self._ledger.read(self.sink), self._ledger.topic_id())

    def _adopt(self, batch: _Batch) -> Outcome:
        batch.adopt(Adoption(batch.order.batch, self._ledger.topic_id()))
        return Succeeded()

    def _send(self, batch: _Batch) -> Outcome:
        batch.rows.ready()
        began_s = self._clock()
        batch.topic_ids = dict(self._cluster.topic_ids(batch.topics))
        self._producer.add([*batch.rows.partitions, self._ledger.partition_of(self.sink)])
        for records in batch.rows.rounds():
            self._producer.send(records)
        batch.send_ms = int((self._clock() - began_s) * 1000)
        return Succeeded()

    def _record(self, batch: _Batch) -> Outcome:
        now_ms = int(time.time() * 1000)
        own_ms = int((self._clock() - batch.began_s) * 1000)
        self._entry = Entry(
            batch.order.batch,
            batch.order.fingerprint,
            batch.rows.count,
            own_ms + sum(batch.spent.values()),
            now_ms,
            self._name,
            batch.topics,
            {**batch.spent, "send": batch.send_ms},
        )
        self._producer.send([self._ledger.encoded(self.sink, self._entry, now_ms)])
        self._producer.flush()
        return Succeeded()

    def _commit(self, batch: _Batch) -> Outcome:
        if dict(self._cluster.topic_ids(batch.topics)) != batch.topic_ids:
            return Lost("a topic was deleted and created again while the batch was sent to it")
        self._producer.commit()
        return Succeeded()

    def _look(self, _: _Batch) -> Outcome:
        return Seen(self._producer.was_timed_out())


CARRIED_OUT: dict[type[Step], Callable[[Writer, _Batch], Outcome]] = {
    Initialize: Writer._initialize,
    steps.ReadLedger: Writer._read_ledger,
    steps.Adopt: Writer._adopt,
    steps.Send: Writer._send,
    steps.Record: Writer._record,
    Commit: Writer._commit,
    Look: Writer._look,
}
