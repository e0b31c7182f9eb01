"""Rows to an index of OpenSearch or Elasticsearch, by bulk calls: a sink of a pipeline.

    [sinks.search]
    from = "orders"
    function = "opensearch_sink:index"

OPENSEARCH in the environment is the address, with the index as its path: https://user:password@search:9200/orders.
The id of a document is the row's column `id`, so a batch that runs again replaces its own documents: each row is
there once. A document that the index refuses for good (its mapping does not fit) becomes a dead letter; one that it
is too busy for is sent again, together with the other such ones.
"""

import base64
import json
import os
import time
import urllib.parse
import urllib.request
from typing import Any

import pyarrow as pa

ROWS = 1000
PATIENCE_S = 300.0
TIMEOUT_S = 60.0
BUSY = (429, 503)


def index(rows: pa.Table, batch: Any) -> list[tuple[int, str]]:
    refused: list[tuple[int, str]] = []
    for first in range(0, rows.num_rows, ROWS):
        documents = enumerate(rows.slice(first, ROWS).to_pylist(), first)
        refused += store(dict(documents))
    return refused


def store(documents: dict[int, dict[str, Any]]) -> list[tuple[int, str]]:
    """The documents that are refused for good, by the number of their row."""
    refused: list[tuple[int, str]] = []
    deadline, pause_s = time.monotonic() + PATIENCE_S, 0.1
    while True:
        busy = {}
        for (number, document), result in zip(documents.items(), bulk(documents.values()), strict=True):
            if result["status"] in BUSY:
                busy[number] = document
            elif result["status"] >= 300:
                refused.append((number, f"{result['error']['type']}: {result['error']['reason']}"))
        if not busy:
            return refused
        if time.monotonic() > deadline:
            raise TimeoutError(f"the index was too busy for {len(busy)} documents for {PATIENCE_S:.0f} s")
        documents = busy
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 10.0)


def bulk(documents: Any) -> list[dict[str, Any]]:
    """One call; its results in the order of the documents."""
    lines = []
    for document in documents:
        lines += [json.dumps({"index": {"_id": document["id"]}}), json.dumps(document, default=str)]
    address = urllib.parse.urlsplit(os.environ["OPENSEARCH"])
    headers = {"Content-Type": "application/x-ndjson"}
    if address.username:
        secret = f"{urllib.parse.unquote(address.username)}:{urllib.parse.unquote(address.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
    url = f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}/_bulk"
    request = urllib.request.Request(url, "\n".join([*lines, ""]).encode(), headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        return [item["index"] for item in json.load(response)["items"]]
