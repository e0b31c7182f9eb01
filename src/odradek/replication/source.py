"""A readable source: something that requests read records from, and wait on for more.

The leader and the followers of a partition are sources (`role`). A request knows no more of what it reads than this
interface, so that another source may stand in for them: a view, which is a filtered reading of another source.

How far a reader may see is its isolation. A follower of the partition reads to the end of the log, a consumer what is
committed, and a `read_committed` consumer only what is below every open transaction.
"""

from enum import Enum
from typing import Protocol

from odradek.replication.waiters import Waiter
from odradek.storage.segments.row import Slice
from odradek.wire.fetch_response import Divergence, FetchedPartition

Fetched = FetchedPartition[Slice | bytearray]  # what a read returns; small reads may be in memory


class Isolation(Enum):
    """The limit up to which a reader may see (Kafka's FetchIsolation)."""

    LOG_END = 0
    HIGH_WATERMARK = 1
    TXN_COMMITTED = 2


class Source(Protocol):
    @property
    def high_watermark(self) -> int:
        """Waiters are called whenever this has moved."""

    def bounds(self, isolation: Isolation) -> tuple[int, int, int]:
        """Log start, high watermark, and the end of what may be read: while these stay as they are, the same read
        returns the same."""

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise KafkaError if the client knows another leader epoch; -1 if it does not say."""

    def divergence(self, last_fetched_epoch: int, offset: int) -> Divergence | None:
        """Return where the reader's log has diverged from this one, if it has."""

    def describe(self) -> Fetched:
        """The offsets that every response has, and no records."""

    def read(self, offset: int, max_bytes: int, minimum_one: bool, isolation: Isolation) -> Fetched:
        """Records from this offset on: at most `max_bytes`, but with `minimum_one` at least one whole batch. Raises
        KafkaError, OSError."""

    def when_high_watermark_moves(self, waiter: Waiter) -> None:
        """Call it once, when there may be more for consumers to read, or when this source is closed."""

    def forget_waiter(self, waiter: Waiter) -> None:
        """End its wait."""
