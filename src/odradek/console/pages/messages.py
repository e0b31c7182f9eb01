"""Messages of a topic: pages of them, one of them, searches, downloads; sent, and sent again."""

import time
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response, StreamingResponse

from odradek.admin.failures import BadRequest
from odradek.admin.message_filter import compile_filters
from odradek.admin.message_text import from_json, parse_time_ms
from odradek.client.cluster import EARLIEST
from odradek.console.messages.reading import (
    Cursor,
    RecordsRead,
    format_cursor,
    parse_cursor,
    read_forward,
    read_newest,
    read_one,
)
from odradek.console.messages.schemas import Schemas
from odradek.console.messages.sending import Outgoing, Sent, send
from odradek.console.messages.showing import ALONE, IN_A_LIST, VIEWS, Found, RecordView, show_record
from odradek.console.pages.topics import check_ours, guarded
from odradek.console.registry import Action, Page
from odradek.console.requests import Ask, doc
from odradek.console.users import Role

MOST_ON_A_PAGE = 500
MOST_FOUND = 1_000
MOST_DOWNLOADED = 1_000_000
MOST_FILTERS, LONGEST_FILTER = 20, 2_000
STARTS = "newest, earliest, an offset, or @ and a time: ISO 8601, milliseconds, or relative like -1h"


@dataclass(frozen=True)
class MessagesQuery:
    start: str = doc(f"Where to start: {STARTS}.", "newest")
    partition: int | None = doc("Only this partition.", None)
    limit: int = doc("How many, at most 500.", 50)
    view: str = doc("auto, json, text, hex or avro.", "auto")
    before: str = doc("The cursor `older` of another page: read back from there.", "")
    after: str = doc("The cursor `newer` of another page: read on from there.", "")


@dataclass(frozen=True)
class MessagesPage:
    topic: str
    records: list[RecordView]
    older: str  # cursors; empty where there is nothing that way
    newer: str
    query: MessagesQuery
    views: tuple[str, ...] = VIEWS


def messages_view(ask: Ask) -> MessagesPage:
    query: MessagesQuery = ask.query
    if query.view not in VIEWS:
        raise BadRequest(f"view is one of {', '.join(VIEWS)}")
    limit = min(max(1, query.limit), MOST_ON_A_PAGE)
    found = _read(ask, query, limit)
    older, newer = format_cursor(found.older), format_cursor(found.newer)
    return MessagesPage(ask.path["topic"], found.records, older, newer, query)


def _read(ask: Ask, query: MessagesQuery, limit: int) -> RecordsRead[RecordView]:
    decode = schemas(ask).decode
    place = ask.access(), ask.path["topic"], query.partition, limit

    def keep(found: Found) -> RecordView:
        return show_record(found, query.view, IN_A_LIST, decode)

    if not query.after and (query.before or query.start in ("", "newest", "latest")):
        return read_newest(*place, parse_cursor(query.before) or None, keep)
    return read_forward(*place, _begin(ask, query), keep)


def _begin(ask: Ask, query: MessagesQuery) -> int | Cursor:
    if query.after:
        return parse_cursor(query.after)
    start_ms, offset = start_of(query.start)
    if offset is None:
        return EARLIEST if start_ms is None else start_ms
    return dict.fromkeys(range(len(_partitions(ask, ask.path["topic"]))), offset)


def _partitions(ask: Ask, topic: str) -> Any:
    topology = ask.cluster.seen.topology
    known = topology.topics.get(topic) if topology is not None else None
    if known is not None:
        return known.leaders
    from odradek.admin.metadata import existing_partitions

    return existing_partitions(ask.access(), topic)


def start_of(text: str) -> tuple[int | None, int | None]:
    """The time in ms, or the offset, that a start names; neither: the earliest record."""
    if text in ("", "earliest", "beginning"):
        return None, None
    if text.startswith("@"):
        try:
            return parse_time_ms(text[1:].strip(), time.time_ns() // 1_000_000), None
        except ValueError as error:
            raise BadRequest(str(error)) from None
    if not text.isdecimal() or int(text) >= 2**63:
        raise BadRequest(f"{text!r} is not a start: {STARTS}")
    return None, int(text)


def schemas(ask: Ask) -> Schemas:
    return ask.console.schemas


# One message


@dataclass(frozen=True)
class MessageQuery:
    view: str = doc("auto, json, text, hex or avro.", "auto")


@dataclass(frozen=True)
class MessagePage:
    topic: str
    record: RecordView
    view: str
    views: tuple[str, ...] = VIEWS


def message_view(ask: Ask) -> MessagePage:
    if ask.query.view not in VIEWS:
        raise BadRequest(f"view is one of {', '.join(VIEWS)}")
    found = read_one(ask.access(), ask.path["topic"], *_place(ask))
    return MessagePage(
        ask.path["topic"], show_record(found, ask.query.view, ALONE, schemas(ask).decode), ask.query.view
    )


def _place(ask: Ask) -> tuple[int, int]:
    partition, offset = ask.path["partition"], ask.path["offset"]
    if not (partition.isdecimal() and offset.isdecimal()) or int(offset) >= 2**63 or int(partition) >= 2**31:
        raise BadRequest("partition and offset are whole numbers")
    return int(partition), int(offset)


# Searches and downloads


@dataclass(frozen=True)
class SearchBody:
    filters: list[str] = doc("Conditions as of 'odradek consume --filter'; a message passes all of them.", [])
    start: str = doc(f"Where to start: {STARTS}.", "earliest")
    partition: int | None = doc("Only this partition.", None)
    limit: int = doc("Stop after this many, at most 1000.", 200)
    view: str = doc("auto, json, text, hex or avro.", "auto")


def begin_search(ask: Ask) -> dict[str, str]:
    body: SearchBody = ask.body
    job = _job(ask, body.filters, body.start, body.partition, "search", min(max(1, body.limit), MOST_FOUND))
    return {"id": ask.console.searches.start(ask.session.token, job | {"view": body.view}).id}


def _job(
    ask: Ask, filters: list[str], start: str, partition: int | None, format_: str, limit: int
) -> dict[str, Any]:
    if len(filters) > MOST_FILTERS or any(len(one) > LONGEST_FILTER for one in filters):
        raise BadRequest(f"give at most {MOST_FILTERS} conditions of {LONGEST_FILTER:,} characters")
    try:
        compile_filters(filters)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    start_ms, offset = start_of("" if start == "newest" else start)
    access = ask.access()
    return {
        "bootstrap": access.bootstrap,
        "settings": access.given,
        "registry": ask.console.settings.schema_registry,
        "topic": ask.path["topic"],
        "partition": partition,
        "start_ms": start_ms,
        "start_offset": offset,
        "filters": filters,
        "format": format_,
        "limit": limit,
        "view": "auto",
        "part": 0,
        "parts": 1,
    }


@dataclass(frozen=True)
class FoundQuery:
    after: int = doc("How many of the records found you have already.", 0)


@dataclass(frozen=True)
class FoundSoFar:
    records: list[dict[str, Any]]
    count: int
    scanned: int
    total: int
    is_running: bool
    is_limited: bool
    error: str | None
    took_s: float


def found_so_far(ask: Ask) -> FoundSoFar:
    search = ask.console.searches.find(ask.session.token, ask.path["search"])
    return FoundSoFar(
        search.records[max(0, ask.query.after) :],
        len(search.records),
        search.scanned,
        search.total,
        search.is_running,
        search.is_limited,
        search.error,
        search.took_s,
    )


def cancel_search(ask: Ask) -> None:
    ask.console.searches.cancel(ask.session.token, ask.path["search"])


@dataclass(frozen=True)
class DownloadQuery:
    format: str = doc("jsonl or csv.", "jsonl")
    start: str = doc(f"Where to start: {STARTS}.", "earliest")
    partition: int | None = doc("Only this partition.", None)
    filter: str = doc("One condition per line.", "")
    limit: int = doc("At most a million.", 100_000)


def download(ask: Ask) -> Response:
    query: DownloadQuery = ask.query
    if query.format not in ("jsonl", "csv"):
        raise BadRequest("format is jsonl or csv")
    filters = [line for line in query.filter.splitlines() if line.strip()]
    limit = min(max(1, query.limit), MOST_DOWNLOADED)
    pieces = ask.console.downloads.start(
        _job(ask, filters, query.start, query.partition, query.format, limit)
    )
    kinds = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
    safe = "".join(each if each.isalnum() or each in "._-" else "_" for each in ask.path["topic"])
    headers = {"content-disposition": f'attachment; filename="{safe}.{query.format}"'}
    return StreamingResponse(pieces, media_type=kinds[query.format], headers=headers)


# Sending


@dataclass(frozen=True)
class SendBody:
    value: Any = doc(
        'Text; null is a tombstone; {"base64": …} are bytes; other JSON is kept as JSON text.', None
    )
    key: Any = doc("The same for the key.", None)
    headers: list[list[Any]] = doc("Pairs of a name and a value.", [])
    partition: int | None = doc("The partition; chosen by the key if not given.", None)


def produce(ask: Ask) -> Sent:
    body: SendBody = ask.body
    try:
        headers = [(str(name), from_json(value)) for name, value in body.headers]
        record = Outgoing(guarded(ask), from_json(body.key), from_json(body.value), headers, body.partition)
    except (ValueError, TypeError):
        raise BadRequest("a header is a pair of a name and a value; base64 must be valid") from None
    return send(ask.access(), record)


@dataclass(frozen=True)
class AgainBody:
    topic: str | None = doc("Another topic to send it to; the same one if not given.", None)


def send_again(ask: Ask) -> Sent:
    access, target = ask.access(), check_ours(ask.body.topic or ask.path["topic"])
    found = read_one(access, guarded(ask), *_place(ask)).record
    headers = [(name.decode(errors="replace"), value) for name, value in found.headers]
    return send(access, Outgoing(target, found.key, found.value, headers))


PAGES = [
    Page(
        path="topics/{topic}/messages",
        title="{topic}: messages",
        view=messages_view,
        template="messages.html",
        summary="Read messages of a topic.",
        query=MessagesQuery,
        script="messages.js",
    ),
    Page(
        path="topics/{topic}/messages/{partition}/{offset}",
        title="{topic}-{partition} at {offset}",
        view=message_view,
        template="message.html",
        summary="Read one message.",
        query=MessageQuery,
    ),
    Page(
        path="topics/{topic}/download",
        title="Download",
        view=download,
        template="",
        summary="Download messages as JSON lines or CSV.",
        query=DownloadQuery,
    ),
]
_FOUND = "topics/{topic}/searches/{search}"
ACTIONS = [
    Action(
        *("POST", "topics/{topic}/searches", "Search messages.", begin_search, Role.VIEWER),
        body=SearchBody,
        is_audited=False,
    ),
    Action(
        "GET",
        _FOUND,
        "Say what a search has found.",
        found_so_far,
        Role.VIEWER,
        query=FoundQuery,
        is_audited=False,
    ),
    Action("DELETE", _FOUND, "Cancel a search.", cancel_search, Role.VIEWER, is_audited=False),
    Action(
        *("POST", "topics/{topic}/messages", "Produce a message.", produce, Role.EDITOR),
        body=SendBody,
        refreshes=("offsets",),
    ),
    Action(
        *("POST", "topics/{topic}/messages/{partition}/{offset}/again", "Send a message again.", send_again),
        Role.EDITOR,
        body=AgainBody,
        refreshes=("offsets",),
    ),
]
