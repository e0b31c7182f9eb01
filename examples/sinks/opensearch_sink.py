"""Rows to an index of OpenSearch or Elasticsearch, by bulk calls: a sink of a pipeline.

    [sinks.search]
    from = "orders"
    function = "opensearch_sink:index"

OPENSEARCH in the environment is the address, with the index as its path: https://user:password@search:9200/orders.
The id of a document is the row's column `id`, so a batch that runs again replaces its own documents: each row is
there once. A row without an id, or a document that the index refuses for good (its mapping does not fit), becomes a
dead letter; one that the index is too busy for is sent again, together with the other such ones, and so is a call that
the node is too busy for as a whole. Other failures are left to the pipeline, which tries the whole batch again.
"""

import base64
import json
import math
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pyarrow as pa

ROWS = 1000
PATIENCE_S = 300.0
TIMEOUT_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
BUSY = (429, 503)
LONGEST_ID = 512  # bytes: a longer one would make the index refuse the whole call


def index(rows: pa.Table, batch: Any) -> list[tuple[int, str]]:
    refused: list[tuple[int, str]] = []
    for first in range(0, rows.num_rows, ROWS):
        part = rows.slice(first, ROWS).to_pylist(maps_as_pydicts="strict")
        documents = dict(enumerate(part, first))
        without = {number: why for number, document in documents.items() if (why := problem(document))}
        refused += without.items()
        refused += store({number: one for number, one in documents.items() if number not in without})
    return refused


def problem(document: dict[str, Any]) -> str:
    """Why it cannot be a document; empty if it can."""
    size = len(str(document["id"]).encode())
    if document["id"] is None or not size:
        return "a document needs an id"  # the index would make one up: another one each time
    return f"the id has {size} bytes, and {LONGEST_ID} are allowed" if size > LONGEST_ID else ""


def store(documents: dict[int, dict[str, Any]]) -> list[tuple[int, str]]:
    """The documents that are refused for good, by the number of their row. One that is sent again must not replace a
    later one of its id."""
    refused: list[tuple[int, str]] = []
    newest: dict[str, int] = {}
    deadline, pause_s = time.monotonic() + PATIENCE_S, FIRST_PAUSE_S
    while documents:
        busy = {}
        for (number, document), result in zip(documents.items(), bulk([*documents.values()]), strict=True):
            if result["status"] in BUSY:
                busy[number] = document
            elif result["status"] >= 300:
                refused.append((number, f"{result['error']['type']}: {result['error']['reason']}"))
            else:
                newest[str(document["id"])] = number
        busy = {number: one for number, one in busy.items() if newest.get(str(one["id"]), -1) < number}
        if busy and time.monotonic() > deadline:
            raise TimeoutError(f"the index was too busy for {len(busy)} documents for {PATIENCE_S:.0f} s")
        if busy:
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        documents = busy
    return refused


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """A POST that is redirected would become a GET without documents."""

    def redirect_request(self, *_: Any) -> None:
        return None


OPENER = urllib.request.build_opener(NoRedirects)


def bulk(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One call; its results in the order of the documents."""
    lines = []
    for document in documents:
        lines += [as_json({"index": {"_id": str(document["id"])}}), as_json(document)]
    address = urllib.parse.urlsplit(os.environ["OPENSEARCH"])
    headers = {"Content-Type": "application/x-ndjson"}
    if address.username:
        secret = f"{urllib.parse.unquote(address.username)}:{urllib.parse.unquote(address.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
    url = f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}/_bulk"
    request = urllib.request.Request(url, "\n".join([*lines, ""]).encode(), headers)
    try:
        with OPENER.open(request, timeout=TIMEOUT_S) as response:
            return [item["index"] for item in json.load(response)["items"]]
    except urllib.error.HTTPError as error:
        if error.code in BUSY:
            return [{"status": error.code}] * len(documents)
        said = error.read(500).decode(errors="replace")
        raise OSError(f"{url} answers HTTP {error.code}: {said}") from None


def as_json(document: dict[str, Any]) -> str:
    """Times and decimals are texts."""
    return json.dumps(plain(document), default=str, allow_nan=False)


def plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: null."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
