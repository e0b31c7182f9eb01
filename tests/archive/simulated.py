"""A topic and a Delta table in memory, for rounds of an archiver: each call can be the last before a crash."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from odradek.archive.failures import AnotherArchiver
from odradek.archive.layout import ArchivedFile, NewFile, Range, Snapshot, file_name
from odradek.archive.planning import Log, Topic
from odradek.archiving.rounds import Part, TopicArchiver

BYTES_OF_A_ROW = 100


class Crashed(BaseException):
    """Ends a process like kill -9: nothing handles it."""


@dataclass
class Calls:
    """Counts calls; the `number`th one crashes, before or after it took effect."""

    number: int = -1
    after: bool = False
    count: int = 0

    def run(self, work: Callable[[], object]) -> object:
        self.count += 1
        is_last = self.count == self.number
        if is_last and not self.after:
            raise Crashed
        result = work()
        if is_last:
            raise Crashed
        return result


@dataclass
class SimulatedTopic:
    """`logs`: the offsets of each partition that are records; others are markers, or were compacted or aborted."""

    logs: dict[int, list[int]]
    name: str = "orders"
    id: UUID = field(default_factory=uuid4)
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    stable: dict[int, int] = field(default_factory=dict)
    most: int = 2**63 - 1  # offsets of a file, as if it were large then
    disk: dict[str, list[int]] = field(default_factory=dict)  # every file that was written

    def end(self, partition: int) -> int:
        return self.ends.get(partition, max(self.logs[partition], default=-1) + 1)

    def describe(self) -> Topic:
        logs = {
            one: Log(self.starts.get(one, 0), self.stable.get(one, self.end(one)), self.end(one))
            for one in self.logs
        }
        return Topic(self.name, self.id, logs)

    def written(self, range_: Range) -> Part:
        done = range_._replace(end=min(range_.end, range_.start + self.most))
        found = [one for one in self.logs[done.partition] if done.start <= one < done.end]
        if not found:
            return Part(done, None)
        path = file_name(done)
        self.disk[path] = found
        size = BYTES_OF_A_ROW * len(found)
        return Part(done, NewFile(path, done, len(found), size, found[0], found[-1], 0, 0))


class Source:
    def __init__(self, topic: SimulatedTopic, calls: Calls) -> None:
        self.topic, self.calls = topic, calls

    def describe(self) -> Topic:
        return self.calls.run(self.topic.describe)

    def topic_id(self) -> UUID:
        return self.calls.run(lambda: self.topic.id)

    def write(self, ranges: Sequence[Range], epochs: Mapping[int, int]) -> list[Part]:
        return [self.calls.run(lambda one=one: self.topic.written(one)) for one in ranges]


@dataclass
class SimulatedTable:
    """Commits in order. Like Delta, it refuses a commit if a transaction version that it names has moved."""

    topic_id: UUID
    version: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    moved_at: dict[int, int] = field(default_factory=dict)
    files: dict[str, ArchivedFile] = field(default_factory=dict)


class Handle:
    """A process's view of the table: as it was when it looked last."""

    def __init__(self, table: SimulatedTable, calls: Calls) -> None:
        self.table, self.calls, self.seen = table, calls, 0

    def snapshot(self) -> Snapshot:
        def look() -> Snapshot:
            table = self.table
            self.seen = table.version
            return Snapshot(
                table.version, "orders", table.topic_id, dict(table.ends), tuple(table.files.values())
            )

        return self.calls.run(look)

    def commit(
        self, topic_id: UUID, files: Sequence[NewFile], ends: Mapping[int, int], epochs: Mapping[int, int]
    ) -> None:
        def commit() -> None:
            if any(self.table.moved_at.get(number, 0) > self.seen for number in ends):
                raise AnotherArchiver("was first")
            self._add(files)
            self.table.ends |= ends
            self.table.moved_at |= dict.fromkeys(ends, self.table.version)
            self.seen = self.table.version

        self.calls.run(commit)

    def replace(self, replaced: Sequence[ArchivedFile], file: NewFile | None) -> None:
        def replace() -> None:
            for one in replaced:
                del self.table.files[one.path]
            self._add([] if file is None else [file])

        self.calls.run(replace)

    def _add(self, files: Sequence[NewFile]) -> None:
        self.table.version += 1
        for one in files:
            added = ArchivedFile(one.path, *one.range, one.rows, one.size)
            self.table.files[one.path] = added


def archiver(
    topic: SimulatedTopic, table: SimulatedTable, calls: Calls | None = None, **options
) -> TopicArchiver:
    calls = calls or Calls()
    handle = Handle(table, calls)

    def merge(files: Sequence[ArchivedFile], range_: Range) -> NewFile:
        def write() -> NewFile:
            rows = [offset for one in files for offset in topic.disk[one.path]]
            path = file_name(range_)
            topic.disk[path] = rows
            return NewFile(path, range_, len(rows), BYTES_OF_A_ROW * len(rows), rows[0], rows[-1], 0, 0)

        return calls.run(write)

    return TopicArchiver(Source(topic, calls), handle, merge, **options)


def archived(topic: SimulatedTopic, table: SimulatedTable) -> dict[int, list[int]]:
    """The offsets in the table by partition, in the order of its files."""
    found: dict[int, list[int]] = {number: [] for number in topic.logs}
    for one in sorted(table.files.values(), key=lambda file: (file.partition, file.start)):
        found[one.partition] += topic.disk[one.path]
    return found
