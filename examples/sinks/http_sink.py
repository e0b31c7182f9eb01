"""Rows to an HTTP endpoint, as JSON arrays of up to 500 rows: a sink of a pipeline.

    [sinks.hook]
    from = "orders"
    function = "http_sink:post"

ENDPOINT in the environment is the address. Each request has an `Idempotency-Key` that is the same when the batch runs
again: an endpoint that remembers keys has each row once. 429 and 503 are waited for as long as `Retry-After` says;
other errors of the server and lost connections are left to the pipeline, which tries the whole batch again after a
pause. A request that the endpoint will never take (400, 422) makes dead letters of its rows.
"""

import json
import os
import time
import urllib.error
import urllib.request
from typing import Any

import pyarrow as pa

ROWS = 500
PATIENCE_S = 300.0
TIMEOUT_S = 30.0
BUSY, NEVER = (429, 503), (400, 413, 422)


def post(rows: pa.Table, batch: Any) -> list[tuple[int, str]]:
    refused: list[tuple[int, str]] = []
    for first in range(0, rows.num_rows, ROWS):
        part = rows.slice(first, ROWS)
        body = json.dumps(part.to_pylist(), default=str).encode()
        if reason := send(body, f"{batch}-{first}"):
            refused += [(first + number, reason) for number in range(part.num_rows)]
    return refused


def send(body: bytes, key: str) -> str:
    """Why the endpoint will never take the rows; empty once it has them."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        request = urllib.request.Request(os.environ["ENDPOINT"], body, headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S):
                return ""
        except urllib.error.HTTPError as error:
            if error.code in NEVER:
                return f"HTTP {error.code}: {error.read(200).decode(errors='replace')}"
            if error.code not in BUSY or time.monotonic() > deadline:
                raise
            time.sleep(float(error.headers.get("Retry-After") or 1))
