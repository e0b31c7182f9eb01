"""What a coordinator asks of the outside world, and what it hears from there.

`NeedsProducerId` is a response: whoever gets it obtains a producer id, and sends the request again in `WithProducerId`.
`WriteMarkers` answers no request: it is sent under the coordinator's own token, and like every response only once the
record it follows from is committed. So no marker is written before the decision is durable. `MarkersWritten` comes back
as a request.
"""

from typing import Any, NamedTuple

from odradek.model import TopicPartition


class NeedsProducerId(NamedTuple):
    """An id is needed for this request, which may be the coordinator's own."""

    request: Any


class WithProducerId(NamedTuple):
    """The same request once more. If it needs no id any longer, the id is never used."""

    request: Any
    producer_id: int


class AbortOverdue(NamedTuple):
    """A transaction is open for longer than its producer allowed. Its answer is an ErrorCode."""

    transactional_id: str


class WriteMarkers(NamedTuple):
    """This transaction is decided: write its markers to all partitions, then say so."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int  # by which the partitions check the epoch
    partitions: tuple[TopicPartition, ...]


class MarkersWritten(NamedTuple):
    """All markers of a `WriteMarkers` are committed. Its answer is an ErrorCode: if that could not be written down, say
    it again."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
