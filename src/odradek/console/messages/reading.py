"""Pages of records: the newest, or from positions forward. A cursor names an offset in each partition, as `0:12,1:40`,
and goes on from there.

Reading is bounded: by a number of records, by bytes for each partition, by time. Only what a reader keeps of a record
outlives the look at its partition: values may be large, and partitions many.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

from odradek.admin.access import Access
from odradek.admin.client_names import to_java
from odradek.admin.failures import AdminError, BadRequest, NoContact
from odradek.client.cluster import EARLIEST, LATEST, NO_OFFSET, Cluster, MissingTopic, borrow_cluster
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import TimedOut
from odradek.client.fetching import OffsetsGone, RangeReader
from odradek.client.properties import MAPPED, InvalidProperty, parse_properties
from odradek.client.settings import ClientSettings, FetchSettings
from odradek.console.messages.showing import Found
from odradek.console.requests import NotFound
from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.records.record import decode_batch

TIMEOUT_S = 10.0
RECORD_TIMEOUT_S = 3.0
PARTITION_BYTES = 8 * 1024 * 1024
FETCH = FetchSettings(max_bytes=1024 * 1024, max_wait_ms=100, read_committed=True)
STEPS_BACK = 4
FEW_PARTITIONS = 4
LEAST_EACH = 5

Cursor = dict[int, int]
Kept = TypeVar("Kept")


class Placed(NamedTuple, Generic[Kept]):
    """The kept part of a record, with what it is sorted by."""

    timestamp: int
    offset: int
    partition: int
    kept: Kept


@dataclass(frozen=True)
class RecordsRead(Generic[Kept]):
    records: list[Kept]
    older: Cursor  # where the page before this one ends
    newer: Cursor  # where the next one begins
    ends: Cursor


def client_settings(access: Access) -> ClientSettings:
    try:
        known = {name: value for name, value in to_java(access.given).items() if name in MAPPED}
        own = {"bootstrap.servers": access.bootstrap, "client.id": access.client_id}
        settings = parse_properties({**known, **own}).client
    except (InvalidProperty, OSError) as error:
        raise AdminError(f"bad client settings: {error}") from None
    return replace(settings, api_timeout_s=TIMEOUT_S, request_timeout_s=TIMEOUT_S)


@contextmanager
def reaching(access: Access) -> Iterator[Cluster]:
    """A client of the cluster, whose failures become sentences."""
    try:
        with borrow_cluster(client_settings(access)) as cluster:
            yield cluster
    except MissingTopic as error:
        raise NotFound(f"{error.topic}: no such topic") from None
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise NotFound(str(error)) from None
        raise AdminError(str(error) or error.code.name.lower().replace("_", " ")) from None
    except (TimedOut, ConnectionLost) as error:
        raise NoContact(str(error)) from None


def parse_cursor(text: str) -> Cursor:
    try:
        pairs = [each.split(":") for each in text.split(",")] if text else []
        return {int(partition): int(offset) for partition, offset in pairs}
    except ValueError:
        raise BadRequest(f"{text!r} is not a cursor like 0:12,1:40") from None


def format_cursor(cursor: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(cursor.items()))


def places(cluster: Cluster, topic: str, partition: int | None) -> list[TopicPartition]:
    there = cluster.partitions_of([topic])
    if partition is None:
        return there
    if partition >= len(there) or partition < 0:
        raise NotFound(f"{topic} has no partition {partition}")
    return [there[partition]]


def offsets(cluster: Cluster, wanted: list[TopicPartition], time_ms: int) -> Cursor:
    found = cluster.list_offsets(dict.fromkeys(wanted, time_ms), read_committed=time_ms == LATEST)
    return {place.partition: offset for place, offset in found.items()}


def read_newest(
    access: Access,
    topic: str,
    partition: int | None,
    limit: int,
    before: Cursor | None,
    keep: Callable[[Found], Kept],
) -> RecordsRead[Kept]:
    """The newest records, the newest first; or those before a cursor."""
    with reaching(access) as cluster:
        wanted = places(cluster, topic, partition)
        starts, ends = offsets(cluster, wanted, EARLIEST), offsets(cluster, wanted, LATEST)
        tops = {number: min((before or {}).get(number, end), end) for number, end in ends.items()}
        active = [one for one in wanted if tops[one.partition] > starts[one.partition]]
        each = limit if len(active) <= FEW_PARTITIONS else max(LEAST_EACH, -(-2 * limit // len(active)))
        found = [
            _placed(record, keep)
            for one in active
            for record in _last(cluster, one, starts[one.partition], tops[one.partition], each)
        ]
    found.sort(key=_by_time, reverse=True)
    shown = found[:limit]
    older, newer = dict(tops), dict(tops)
    for record in shown:
        older[record.partition] = min(older[record.partition], record.offset)
    return RecordsRead([one.kept for one in shown], _unless_all_read(older, starts), newer, ends)


def _placed(found: Found, keep: Callable[[Found], Kept]) -> Placed[Kept]:
    return Placed(found.record.timestamp, found.record.offset, found.partition, keep(found))


def _by_time(one: Placed[Kept]) -> tuple[int, int]:
    return one.timestamp, one.offset


def _unless_all_read(older: Cursor, starts: Cursor) -> Cursor:
    return older if any(offset > starts[number] for number, offset in older.items()) else {}


def _last(cluster: Cluster, place: TopicPartition, start: int, top: int, count: int) -> list[Found]:
    """The last `count` records before `top`. Offsets may be missing (compaction, markers): then look further back."""
    back, best = count, list[Found]()
    for _ in range(STEPS_BACK):
        low = max(start, top - back)
        found, is_whole = _between(cluster, place, low, top)
        if is_whole:
            best = found
            if len(found) >= count or low == start:
                break
            back *= 8
        elif best:
            break  # further back there is more than we may read
        else:
            back = max(1, back // 8)  # its records are large: fewer of them, but the last
    return best[-count:]


def _between(cluster: Cluster, place: TopicPartition, low: int, top: int) -> tuple[list[Found], bool]:
    """The records of a range, and False if there were too many bytes to read all of them."""
    found: list[Found] = []
    reader = RangeReader(cluster, place, low, top, FETCH, RECORD_TIMEOUT_S)
    size = 0
    while reader.position < top:
        try:
            chunk = reader.fetch()
        except OffsetsGone as error:
            if error.earliest <= reader.position:
                break
            reader.position = error.earliest  # deleted while we read
            continue
        for batch in chunk.batches:
            size += len(batch.data)
            found += [
                Found(place.partition, record)
                for record in decode_batch(batch.data, batch.header)
                if low <= record.offset < top
            ]
        if size > PARTITION_BYTES and reader.position < top:
            return found, False
    return found, True


def read_forward(
    access: Access,
    topic: str,
    partition: int | None,
    limit: int,
    start: int | Cursor,
    keep: Callable[[Found], Kept],
) -> RecordsRead[Kept]:
    """Read from a time (or EARLIEST, LATEST), or from positions; the oldest first."""
    with reaching(access) as cluster:
        wanted = places(cluster, topic, partition)
        starts, ends = offsets(cluster, wanted, EARLIEST), offsets(cluster, wanted, LATEST)
        begin = start if isinstance(start, dict) else offsets(cluster, wanted, start)
        at = {
            number: max(
                starts[number], end if begin.get(number, end) == NO_OFFSET else begin.get(number, end)
            )
            for number, end in ends.items()
        }
        active = [one for one in wanted if at[one.partition] < ends[one.partition]]
        each = max(1, -(-limit // len(active))) if active else 0
        found: list[Placed[Kept]] = []
        newer = dict(at)
        for one in active:
            top = min(ends[one.partition], at[one.partition] + each)
            records, is_whole = _between(cluster, one, at[one.partition], top)
            found += [_placed(record, keep) for record in records]
            newer[one.partition] = top if is_whole or not records else records[-1].record.offset + 1
    found.sort(key=_by_time)
    return RecordsRead([one.kept for one in found], at, newer, ends)


def read_one(access: Access, topic: str, partition: int, offset: int) -> Found:
    with reaching(access) as cluster:
        (place,) = places(cluster, topic, partition)
        end = cluster.list_offsets({place: LATEST})[place]
        found, _ = _between(cluster, place, offset, offset + 1) if 0 <= offset < end else ([], True)
    if not found:
        raise NotFound(f"{topic}-{partition} has no record at offset {offset}")
    return found[0]
