"""The effects of a transaction coordinator on the outside world: markers to write, and producer ids to get.

Both leave with a decision, once its records are committed: so no marker is written before the end of its transaction
is durable. The coordinator is then told what became of them (`markers_written`, `producer_id_got`).
"""

from typing import Any, NamedTuple

from odradek.coordinators.runtime import Token
from odradek.model import TopicPartition


class WriteMarkers(NamedTuple):
    """This transaction is decided: write its markers to all partitions, then say so."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int  # by which the partitions check the epoch
    partitions: tuple[TopicPartition, ...]


class GetProducerId(NamedTuple):
    """A request waits for a new producer id; without a token, it is the transaction that is overdue."""

    transactional_id: str
    request: Any = None
    version: int = 0
    token: Token | None = None
