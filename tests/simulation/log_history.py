"""A history of what clients were told about the records of partitions, and a check whether it can all be true.

The properties, for one node (the letters are those of the design of the cluster, which has more of them):

- P1  a record acknowledged with acks=all stays readable at its offset, unless it was deleted or compacted
- P5  an offset that a consumer has seen never holds anything else
- P6  nothing is read past the high watermark
- P7  the high watermark never decreases, not even across power cuts
- P11 of two batches, the one that was sent after the other was acknowledged has the higher offsets
- P12 every record that is read was sent to that partition of that topic, and is whole
- P13 log start ≤ high watermark; a read begins at the offset that was asked for, so indexes do not overshoot
- T1  a batch of an idempotent producer is stored once, and a retry is answered with its offset
- T2  a producer's state survives: the sequence that comes next is never refused
- what DeleteRecords deleted, what was compacted away, and the records of a deleted topic never come back

Clients overlap, so a response says something about a time between its request and its arrival. Whoever sends a request
takes a `View` of what had been promised until then, and the response is compared with that.

A topic is known by its id; requests that name it reach whichever topic has that name when they arrive, so while a
topic is deleted and made again they prove nothing, except that the record was sent to a partition of that name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.records.record import Record, decode_batch
from tests.simulation.batches import is_intact, whole_batches
from tests.simulation.connection import Violation

Identity = tuple[int, int]  # the number of a batch, and a record's place in it


@dataclass(eq=False, slots=True)
class Batch:
    """Records that were sent together. A record says in its value, or in a header if it has none, whose it is."""

    number: int
    topic: str
    index: int
    keys: list[bytes]
    tombstones: frozenset[int]
    acks: int
    producer_id: int = -1
    sequence: int = -1
    topic_id: UUID | None = None  # None: it was sent to whichever topic has the name
    first_sent: float = 0.0
    sends: int = 0
    acknowledged_at: float | None = None
    base_offset: int = -1
    places: dict[tuple[UUID, int], None] = field(
        default_factory=dict
    )  # topic and base offset, wherever it was seen

    @property
    def size(self) -> int:
        return len(self.keys)

    @property
    def is_idempotent(self) -> bool:
        return self.sequence >= 0

    def records(self, now_ms: int, padding: bytes) -> list[Record]:
        return [
            Record(at, now_ms, key, None, ((b"id", b"%d.%d" % (self.number, at)),))
            if at in self.tombstones
            else Record(at, now_ms, key, b"%d.%d %s" % (self.number, at, padding))
            for at, key in enumerate(self.keys)
        ]


def identity(record: Record) -> Identity:
    if record.value is not None:
        text = bytes(record.value).partition(b" ")[0]
    else:
        text = next((bytes(value or b"") for name, value in record.headers if name == b"id"), b"")
    number, _, at = text.partition(b".")
    if not (number.isdigit() and at.isdigit()):
        raise Violation(f"P12: a record that nobody sent: {record}")
    return int(number), int(at)


class View(NamedTuple):
    """The promises about a partition when a request was sent."""

    seconds: float
    life: int
    high_watermark: int
    start: int
    end: int  # after the last batch that was acknowledged


class PartitionHistory:
    """One partition of one topic id."""

    def __init__(self, history: "LogHistory", topic: "TopicHistory", index: int) -> None:
        self._history = history
        self.topic = topic
        self.index = index
        self.name = f"{topic.name}-{index}"
        self.high_watermark = 0  # the highest that was shown
        self.start = 0  # nothing below it may be read again
        # Nothing below it need be there. Retention is not for good: a crash may bring back what it removed.
        self.kept_from = 0
        self.asked_start = 0  # the highest that a DeleteRecords asked for
        self.end = 0
        self._synced_end = 0  # as far as it survives a crash
        self.promised: dict[int, Identity] = {}  # what a crash may not lose
        self._unsynced: dict[int, Identity] = {}  # acknowledged with acks=1, in this life
        self._gone: dict[int, float] = {}  # when an offset was seen to be compacted away
        self._newest: dict[
            bytes, tuple[int, bool]
        ] = {}  # of a key: the highest promised offset; is it a tombstone?
        self.unsettled: dict[Batch, None] = {}  # sent, and perhaps there, perhaps not

    def view(self) -> View:
        return View(self._history.now(), self._history.life, self.high_watermark, self.start, self.end)

    def crashed(self) -> None:
        self._unsynced.clear()
        self.end = self._synced_end

    def _fail(self, text: str) -> None:
        raise Violation(f"{text} [{self.name}, topic {self.topic.id}]")

    # --- writing ---

    def sending(self, batch: Batch) -> View:
        """A batch is sent, perhaps not for the first time."""
        batch.sends += 1
        if batch.sends == 1:
            batch.first_sent = self._history.now()
        self.unsettled[batch] = None
        return self.view()

    def acknowledged(self, batch: Batch, base_offset: int, view: View) -> None:
        """`view` is of the time when the batch was first sent."""
        is_repeated = batch.acknowledged_at is not None
        if is_repeated and batch.is_idempotent and batch.base_offset != base_offset:
            self._fail(
                f"T1: batch {batch.number}, at {batch.base_offset}, is acknowledged at {base_offset} again"
            )
        is_this_life = view.life == self._history.life
        if base_offset < view.end and is_this_life:
            self._fail(
                f"P11: batch {batch.number} got {base_offset}, others had been acknowledged to {view.end}"
            )
        batch.acknowledged_at, batch.base_offset = self._history.now(), base_offset
        self._place(batch, base_offset)
        end = base_offset + batch.size
        if batch.acks == -1:
            for at in range(batch.size):
                self._promise(base_offset + at, (batch.number, at), batch)
            self._synced_end = max(self._synced_end, end)
            self.high_watermark = max(self.high_watermark, end)
            self.end = max(self.end, end)
            self.unsettled.pop(batch, None)
        elif is_this_life:
            for at in range(batch.size):
                self._expect(base_offset + at, (batch.number, at))
                self._unsynced[base_offset + at] = (batch.number, at)
            self.end = max(self.end, end)

    def may_forget(self, batch: Batch, view: View) -> bool:
        """A broker that lost its memory knows a producer's batches from the log: if they were compacted away, a retry
        of one that is not the last looks as if it came out of order."""
        return batch.sends > 1 and view.life < self._history.life and self.topic.may_be_compacted

    def _place(self, batch: Batch, base_offset: int) -> None:
        place = (self.topic.id, base_offset)
        if place in batch.places:
            return
        batch.places[place] = None
        here = [base for topic, base in batch.places if topic == self.topic.id]
        if len(batch.places) > batch.sends or (batch.is_idempotent and len(here) > 1):
            self._fail(f"T1: batch {batch.number} was sent {batch.sends} times, and is at {here}")

    def _promise(self, offset: int, record: Identity, batch: Batch) -> None:
        self._expect(offset, record)
        if offset < self.kept_from:
            return
        self.promised[offset] = record
        self._note_newest(offset, record[1], batch)

    def _note_newest(self, offset: int, at: int, batch: Batch) -> None:
        key = batch.keys[at]
        if self._newest.get(key, (-1,))[0] < offset:
            self._newest[key] = (offset, at in batch.tombstones)

    def _expect(self, offset: int, record: Identity) -> None:
        other = self.promised.get(offset) or self._unsynced.get(offset)
        if other is not None and other != record:
            self._fail(f"P5: offset {offset} held record {other}, and now {record}")

    def deleting(self, offset: int) -> None:
        """A DeleteRecords is sent."""
        self.asked_start = max(self.asked_start, offset)

    def deleted(self, offset: int) -> None:
        """And answered."""
        self.start = max(self.start, offset)
        self._may_be_gone(offset)

    def _may_be_gone(self, offset: int) -> None:
        self.kept_from = max(self.kept_from, offset)
        for old in [old for old in self.promised if old < offset]:
            del self.promised[old]

    # --- reading ---

    def check_start(self, view: View, start: int) -> None:
        if start < view.start:
            self._fail(f"the log starts at {start}, records up to {view.start} had been deleted")
        if start > self.asked_start and not self.topic.may_be_deleted:
            self._fail(f"P1: the log starts at {start}, only records up to {self.asked_start} were deleted")
        if self.topic.may_be_deleted:
            self._may_be_gone(start)
        else:
            self.deleted(start)

    def check_high_watermark(self, view: View, high_watermark: int) -> None:
        if high_watermark < view.high_watermark:
            self._fail(f"P7: the high watermark went from {view.high_watermark} to {high_watermark}")
        self.high_watermark = max(self.high_watermark, high_watermark)

    def check_out_of_range(self, offset: int) -> None:
        if offset >= self.asked_start and not self.topic.may_be_deleted:
            self._fail(f"P1: {offset} is out of range, only records up to {self.asked_start} were deleted")

    def check_fetch(self, view: View, offset: int, found: Any, is_whole: bool) -> int:
        """A partition's part of a Fetch response without an error. Returns the offset to go on from. Unless
        `is_whole`, it may end in the middle of a batch, or of the first one."""
        self.check_high_watermark(view, found.high_watermark)
        if found.log_start_offset > found.high_watermark:
            self._fail(f"P13: log start {found.log_start_offset} > high watermark {found.high_watermark}")
        self.check_start(view, found.log_start_offset)
        if offset < view.start:
            self._fail(f"{offset} can be read, records up to {view.start} had been deleted")
        records, end, rest = self._decode(view, offset, found)
        self._check_gaps(offset, end, records)
        if is_whole and rest:
            self._fail(f"P12: {rest} bytes after the batch that ends at {end}")
        if is_whole and end == offset < found.high_watermark and not self.topic.may_be_compacted:
            self._fail(f"P1: nothing is read at {offset}, below the high watermark {found.high_watermark}")
        return end

    def _decode(self, view: View, offset: int, found: Any) -> tuple[dict[int, Identity], int, int]:
        """The records, the offset after the last whole batch, and how many bytes follow that."""
        data = memoryview(found.records or b"")
        records: dict[int, Identity] = {}
        end, size = offset, 0
        for header, content in whole_batches(data):
            size += len(content)
            if not is_intact(content, header):
                self._fail(f"P12: the batch at {header.base_offset} is damaged")
            if header.next_offset > found.high_watermark:
                self._fail(f"P6: {header.last_offset} is read, the high watermark is {found.high_watermark}")
            if header.last_offset < end:
                self._fail(f"P13: the batch {header.base_offset} to {header.last_offset} is read at {end}")
            end = header.next_offset
            for record in decode_batch(content, header):
                if record.offset >= offset:
                    records[record.offset] = self._read(view, record)
        return records, end, len(data) - size

    def _read(self, view: View, record: Record) -> Identity:
        number, at = who = identity(record)
        batch = self._history.batches.get(number)
        if batch is None or (batch.topic, batch.index) != (self.topic.name, self.index) or at >= batch.size:
            raise Violation(
                f"P12: {self.name} has record {who} at {record.offset}, which was never sent there"
            )
        if record.key != batch.keys[at] or (record.value is None) != (at in batch.tombstones):
            self._fail(f"P12: record {who} at {record.offset} is not as it was sent: {record}")
        is_gone = self._gone.get(record.offset, view.seconds) < view.seconds
        if is_gone and not self._history.has_replicas:
            self._fail(f"record {who} at {record.offset} is back, after it was compacted away")
        if self.promised.get(record.offset) != who:
            self._check_sent_to_this_topic(batch)
            self._place(batch, record.offset - at)
            if (
                batch.acknowledged_at is not None
                and batch.sends == 1
                and record.offset - at != batch.base_offset
            ):
                self._fail(
                    f"P1: batch {number}, acknowledged at {batch.base_offset}, is at {record.offset - at}"
                )
            self._promise(record.offset, who, batch)
            for other in range(batch.size):  # all of a batch was written, though some may be compacted away
                self._note_newest(record.offset - at + other, other, batch)
            self.unsettled.pop(batch, None)
        return who

    def _check_sent_to_this_topic(self, batch: Batch) -> None:
        created, deleted = self.topic.created, self.topic.deleted
        is_older = batch.acknowledged_at is not None and batch.acknowledged_at < created and batch.sends == 1
        is_newer = deleted is not None and deleted < batch.first_sent
        if is_older or is_newer or batch.topic_id not in (None, self.topic.id):
            self._fail(f"P12: batch {batch.number} was sent to another topic of this name")

    def _check_gaps(self, offset: int, end: int, records: dict[int, Identity]) -> None:
        missing = [at for at in range(max(offset, self.kept_from), end) if at not in records]
        if missing and not self.topic.may_be_compacted:
            self._fail(f"P1: {missing[:5]} are missing in {offset} to {end}")
        for at in missing:
            if self.promised.pop(at, None) is not None:
                self._gone[at] = self._history.now()

    def check_newest(self, start: int, end: int, newest: dict[bytes, int]) -> None:
        """After all between `start` and `end` was read: of every key the newest record is there, whatever was
        compacted. `newest` are the highest offsets found."""
        for key, (offset, is_tombstone) in self._newest.items():
            if (
                max(start, self.kept_from) <= offset < end
                and not is_tombstone
                and newest.get(key, -1) < offset
            ):
                if any(batch.keys[at] == key for batch in self.unsettled for at in batch.tombstones):
                    continue
                self._fail(f"P1: {offset} is missing, the newest record of {key!r}")


class TopicHistory:
    """One topic id."""

    def __init__(self, history: "LogHistory", name: str, id: UUID, created: float) -> None:
        self._history = history
        self.name = name
        self.id = id
        self.created = created  # when the request for that was first sent
        self.deleted: float | None = None  # when that was acknowledged
        self.partitions: list[PartitionHistory] = []
        self.policy = "delete"
        self.may_be_compacted = False  # it was to be compacted at some time
        self.may_be_deleted = False  # retention could delete at some time
        self.is_stable = True  # no request to delete it was sent

    def grow(self, count: int) -> None:
        for index in range(len(self.partitions), count):
            self.partitions.append(PartitionHistory(self._history, self, index))


class LogHistory:
    """All topics that ever were, and all batches that were ever sent."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.life = 0  # counts crashes
        self.has_replicas = False  # which are compacted each on its own: another may have what one has not
        self.batches: dict[int, Batch] = {}
        self.topics: dict[UUID, TopicHistory] = {}
        self.current: dict[str, TopicHistory] = {}  # those that exist, as far as is known

    def created(self, name: str, id: UUID, sent: float, count: int) -> TopicHistory:
        if id in self.topics:
            raise Violation(f"topic {name} was made again with the id of an earlier one")
        earlier = [topic for topic in self.topics.values() if topic.name == name]
        topic = self.topics[id] = self.current[name] = TopicHistory(self, name, id, sent)
        topic.grow(count)
        for old in earlier[-1:]:  # what was sent to the name may have come to this one
            for before, partition in zip(old.partitions, topic.partitions, strict=False):
                partition.unsettled.update(
                    (batch, None) for batch in before.unsettled if batch.topic_id is None
                )
        return topic

    def deleting(self, topic: TopicHistory) -> None:
        topic.is_stable = False

    def deleted(self, topic: TopicHistory) -> None:
        topic.is_stable = False
        topic.deleted = self.now()
        if self.current.get(topic.name) is topic:
            del self.current[topic.name]

    def new_batch(
        self, topic: str, index: int, keys: list[bytes], tombstones: frozenset[int], acks: int
    ) -> Batch:
        batch = Batch(len(self.batches), topic, index, keys, tombstones, acks)
        self.batches[batch.number] = batch
        return batch

    def crashed(self) -> None:
        self.life += 1
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.crashed()

    def check_unknown(self, topic: TopicHistory, code: int, may_be_late: bool) -> None:
        """A partition was answered with this error. `may_be_late`: its log could perhaps not be created yet."""
        if (
            topic.is_stable
            and not may_be_late
            and code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        ):
            raise Violation(f"topic {topic.name} ({topic.id}) is gone, though nobody deleted it")

    def counts(self) -> dict[str, tuple[TopicHistory, int]]:
        """The topics that exist, and how many partitions they have."""
        return {name: (topic, len(topic.partitions)) for name, topic in self.current.items()}

    def check_topics(
        self, before: dict[str, tuple[TopicHistory, int]], found: dict[str, tuple[UUID, int]]
    ) -> None:
        """Check what Metadata says; `before` are the `counts` when it was asked for."""
        for name, (topic, wanted) in before.items():
            if topic.is_stable and self.current.get(name) is topic:
                id, count = found.get(name, (None, 0))
                if id != topic.id or count < wanted:
                    raise Violation(f"topic {name} ({topic.id}), {wanted} partitions, became {id}, {count}")
        for name, (id, _) in found.items():
            if id in self.topics and self.topics[id].deleted is not None and name not in before:
                raise Violation(f"topic {name} ({id}) is back")
