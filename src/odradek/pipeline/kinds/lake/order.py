"""The decision whether a batch is in a table already. A table keeps, for each query that writes to it, its last batch
and a fingerprint of what that batch read, in the same commit as the rows.

A query is known by the id that Spark keeps in its checkpoint. A checkpoint that was reset has another id, so its
batches are not taken for those of the one before.
"""

import hashlib
from dataclasses import dataclass

FINGERPRINT_DIGITS = 9  # so that it is half of a signed 64-bit number (`mark_of`)
BATCH_DIGITS = 6


@dataclass(frozen=True)
class Order:
    """A batch to write: the id of its query, its number, and a fingerprint of the offsets that it read."""

    query: str
    batch: int
    fingerprint: str


@dataclass(frozen=True)
class Entry:
    """The last batch of a query, as a table has it. Spark's own connector stores no fingerprint."""

    batch: int
    fingerprint: str | None


class OutOfOrder(Exception):
    """The table and the checkpoint do not belong together."""


def fingerprint_of(offsets: str) -> str:
    return hashlib.sha256(offsets.encode()).hexdigest()[:FINGERPRINT_DIGITS]


def mark_of(order: Order) -> int:
    """The fingerprint as a number, which also says of which batch it is: Spark's own connector writes batches without
    a mark, and leaves that of an earlier one as it is."""
    return int(f"{order.fingerprint}{_digits_of(order.batch)}", 16)


def entry_of(batch: int, mark: int | None) -> Entry:
    digits = f"{mark or 0:0{FINGERPRINT_DIGITS + BATCH_DIGITS}x}"
    is_its_own = digits.endswith(_digits_of(batch))
    return Entry(batch, digits[:FINGERPRINT_DIGITS] if mark is not None and is_its_own else None)


def _digits_of(batch: int) -> str:
    return f"{batch % 16**BATCH_DIGITS:0{BATCH_DIGITS}x}"


def is_written(entry: Entry | None, order: Order) -> bool:
    """True if the table has the batch. `OutOfOrder` if it has another one under this number, or a later one."""
    if entry is None or entry.batch < order.batch:
        return False
    if entry.batch > order.batch:
        raise OutOfOrder(
            f"the table has batch {entry.batch} of this query already, and the checkpoint is at batch {order.batch}: "
            "it is older than the table. Put the newer checkpoint back, or reset the sink, which writes again what "
            "its sources still have"
        )
    if entry.fingerprint not in (None, order.fingerprint):
        raise OutOfOrder(
            f"the table has a batch {order.batch} of this query that read other records: a copy of this checkpoint "
            "was used elsewhere. Continue with that copy, or reset the sink, which writes again what its sources have"
        )
    return True


def check_same_table(noted: str | None, found: str | None, place: str) -> None:
    """The checkpoint has noted to which table it writes. `OutOfOrder` if that is gone, or another is in its place."""
    if noted is None or noted == found:
        return
    what = "there is none any more" if found is None else "it was created again since"
    raise OutOfOrder(
        f"this checkpoint has written to the table at {place}, and {what}: its earlier rows are gone. Put the table "
        "back, or reset the sink, which writes again what its sources still have"
    )
