"""What is answered when a change of the metadata was decided and then could not be written, as on a full disk.

Every API that changes metadata answers for each topic or resource by itself. What the answer would have called done
carries the reason instead; what was refused before keeps the reason that it has, which a retry would not mend.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from odradek.errors import KafkaError
from odradek.model import NO_TOPIC_ID


class Item(Protocol):
    """The part of an answer that is about one topic or one resource."""

    error_code: int
    error_message: str | None


def refuse_all(answer: Any, error: KafkaError) -> None:
    item: Any
    for item in _items(answer):
        if not item.error_code:
            item.error_code, item.error_message = error.code, error.message
            if hasattr(item, "num_partitions"):  # of a topic that was not created after all
                item.topic_id, item.num_partitions, item.replication_factor = NO_TOPIC_ID, -1, -1
                item.configs = []


def _items(answer: Any) -> Sequence[Item]:
    """Kafka has a name of its own for them in each API."""
    names = ("topics", "results", "responses")
    items: Sequence[Item] = next(getattr(answer, name) for name in names if hasattr(answer, name))
    return items
