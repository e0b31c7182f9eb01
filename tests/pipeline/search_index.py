"""The part of OpenSearch that bulk calls need: one result for each action, in their order, and what it refuses as a
whole.

It knows one index, whose mapping has `count` as a number; other fields are dynamic. Documents are kept by their ids,
which are texts. A call is refused as a whole if it is malformed, or has an id that is too long, and nothing of it is
stored; a document that does not fit the mapping, or for which the queue is full, is refused by itself.
"""

import itertools
import json
from typing import Any

from tests.pipeline.http_servers import Asked, Response

LONGEST_ID = 512


class Malformed(Exception):
    """The whole call is refused."""


class SearchIndex:
    def __init__(self, name: str) -> None:
        self.name = name
        self.documents: dict[str, dict[str, Any]] = {}
        self.calls: list[Asked] = []
        self.busy_for: set[str] = set()  # ids whose first document meets a full queue
        self.troubles: list[Response] = []  # responses to whole calls, before anything is looked at
        self._made = itertools.count()

    def answer(self, asked: Asked) -> Response:
        self.calls.append(asked)
        if asked.path != f"/{self.name}/_bulk":
            return _failure(405, "illegal_argument_exception", f"no handler found for uri [{asked.path}]")
        if asked.headers.get("Content-Type") not in ("application/x-ndjson", "application/json"):
            return _failure(406, "media_type_header_exception", "Content-Type header is not supported")
        if self.troubles:
            return self.troubles.pop(0)
        try:
            actions = _actions(asked.body)
        except Malformed as error:
            return _failure(400, "illegal_argument_exception", str(error))
        items = [{"index": self._store(identity, document)} for identity, document in actions]
        failed = any(item["index"]["status"] >= 300 for item in items)
        content = json.dumps({"took": 1, "errors": failed, "items": items}).encode()
        return 200, {"Content-Type": "application/json"}, content

    def _store(self, identity: str | None, document: dict[str, Any]) -> dict[str, Any]:
        identity = f"made-{next(self._made)}" if identity is None else identity
        found = {"_index": self.name, "_id": identity}
        if identity in self.busy_for:
            self.busy_for.remove(identity)
            error = {
                "type": "rejected_execution_exception",
                "reason": "rejected execution of bulk: queue is full",
            }
            return found | {"status": 429, "error": error}
        if not _is_number(document.get("count", 0)):
            reason = f"failed to parse field [count] of type [long] in document with id '{identity}'"
            return found | {"status": 400, "error": {"type": "mapper_parsing_exception", "reason": reason}}
        known = identity in self.documents
        self.documents[identity] = document
        return found | {"result": "updated" if known else "created", "status": 200 if known else 201}


def busy() -> Response:
    """The node has no memory for the call."""
    reason = "[parent] Data too large, data for [<http_request>] would be larger than the limit"
    return _failure(429, "circuit_breaking_exception", reason)


def _failure(status: int, kind: str, reason: str) -> Response:
    content = json.dumps({"error": {"type": kind, "reason": reason}, "status": status}).encode()
    return status, {"Content-Type": "application/json"}, content


def _actions(body: bytes) -> list[tuple[str | None, dict[str, Any]]]:
    if not body.endswith(b"\n"):
        raise Malformed("The bulk request must be terminated by a newline [\\n]")
    lines = [json.loads(line, parse_constant=_no_number) for line in body.splitlines()]
    found = []
    for action, document in zip(lines[::2], lines[1::2], strict=True):
        (kind, facts), *more = action.items()
        if kind != "index" or more:
            raise Malformed(f"Malformed action/metadata line, found [{kind}]")
        identity = None if facts.get("_id") is None else str(facts["_id"])
        if identity is not None and len(identity.encode()) > LONGEST_ID:
            raise Malformed(f"id [{identity}] is too long, must be no longer than {LONGEST_ID} bytes")
        found.append((identity, document))
    return found


def _no_number(text: str) -> None:
    raise Malformed(f"Non-standard token '{text}'")


def _is_number(value: Any) -> bool:
    """A text that is a number is one."""
    try:
        return value is None or int(value) is not None
    except (TypeError, ValueError):
        return False
