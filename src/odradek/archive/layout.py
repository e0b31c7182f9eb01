"""The contents of a topic's table: its columns, the names of its files, and what a snapshot says.

The name of a file says which offsets it covers, `[start, end)`: not each of them has a row, because of compaction,
markers of transactions and transactions that were aborted. The random end keeps two archivers, or one before and after
a crash, from writing to the same file.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

NAME = re.compile(r"(\d{5,})-(\d{20})-(\d{20})-[0-9a-f]{8}\.parquet")


class Range(NamedTuple):
    """The offsets [start, end) of a partition."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file of a snapshot. Times are in milliseconds; None if the file has no rows with one."""

    path: str
    partition: int
    start: int
    end: int
    rows: int
    size: int
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None

    @property
    def range(self) -> Range:
        return Range(self.partition, self.start, self.end)


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is written and not committed. `range` is what it covers."""

    path: str
    range: Range
    rows: int
    size: int
    first_offset: int
    last_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of a table. `ends`: up to which offset each partition is archived, which is where its tail begins.
    `epochs`: the leader epoch of the last batch before it, by which a log that was cut and has grown again is noticed.
    """

    version: int
    topic: str
    topic_id: UUID
    ends: Mapping[int, int] = field(default_factory=dict)
    files: tuple[ArchivedFile, ...] = ()
    epochs: Mapping[int, int] = field(default_factory=dict)

    def start_of(self, partition: int) -> int:
        """The first offset that the archive covers."""
        starts = [one.start for one in self.files if one.partition == partition]
        return min(starts, default=self.ends.get(partition, 0))

    def files_of(self, partition: int, start: int = 0, end: int = 2**63 - 1) -> list[ArchivedFile]:
        """Files with offsets in [start, end), in order."""
        found = (
            one for one in self.files if one.partition == partition and one.start < end and one.end > start
        )
        return sorted(found, key=lambda one: one.start)


def file_name(range_: Range) -> str:
    return f"{range_.partition:05}-{range_.start:020}-{range_.end:020}-{secrets.token_hex(4)}.parquet"


def range_of(path: str) -> Range | None:
    """None for a file that we have not named."""
    found = NAME.fullmatch(path)
    return None if found is None else Range(int(found[1]), int(found[2]), int(found[3]))


def application(topic_id: UUID, partition: int) -> str:
    """Whose transaction version says up to where a partition is archived."""
    return f"{topic_id}/{partition}"


def epoch_application(topic_id: UUID, partition: int) -> str:
    """Whose transaction version is the leader epoch there."""
    return f"{application(topic_id, partition)}/epoch"


def table_of(archive: str, topic: str) -> str:
    """Return the place of a topic's table: a path or a URL."""
    return f"{archive.rstrip('/')}/{topic}"


def total_rows(files: Iterable[ArchivedFile]) -> int:
    return sum(one.rows for one in files)
