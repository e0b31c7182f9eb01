"""Rows to an HTTP endpoint, as JSON arrays of up to 500 rows: a sink of a pipeline.

    [sinks.hook]
    from = "orders"
    function = "http_sink:post"

ENDPOINT in the environment is the address. Each request has an `Idempotency-Key`, of the batch and of its body, that is
the same when the batch runs again: an endpoint that remembers keys has each row once. (Behind a join or a grouping the
rows of a batch may come in another order then; requests with other rows have other keys.) 429 and 503 are waited for as
long as `Retry-After` says, and meanwhile no further batch is read; other errors of the server and lost connections are
left to the pipeline, which tries the whole batch again after a pause. A request that the endpoint will never take (400,
413, 422) makes dead letters of its rows.
"""

import hashlib
import json
import math
import os
import time
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime
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
        body = as_json(part.to_pylist(maps_as_pydicts="strict"))
        if reason := send(body, f"{batch}-{hashlib.sha256(body).hexdigest()[:16]}"):
            refused += [(first + number, reason) for number in range(part.num_rows)]
    return refused


def as_json(rows: list[dict[str, Any]]) -> bytes:
    """Times and decimals are texts."""
    return json.dumps(plain(rows), default=str, allow_nan=False).encode()


def plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: null."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """A POST that is redirected would become a GET without rows, and that may succeed."""

    def redirect_request(self, *_: Any) -> None:
        return None


OPENER = urllib.request.build_opener(NoRedirects)


def send(body: bytes, key: str) -> str:
    """Why the endpoint will never take the rows; empty once it has them."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        request = urllib.request.Request(os.environ["ENDPOINT"], body, headers)
        try:
            with OPENER.open(request, timeout=TIMEOUT_S):
                return ""
        except urllib.error.HTTPError as error:
            if error.code in NEVER:
                return f"HTTP {error.code}: {error.read(200).decode(errors='replace')}"
            pause_s = seconds(error.headers.get("Retry-After"), time.time())
            if error.code not in BUSY or time.monotonic() + pause_s > deadline:
                raise
            time.sleep(pause_s)


def seconds(retry_after: str | None, now_s: float) -> float:
    """Return how long `Retry-After` wants us to wait: it is a number of seconds, or a date."""
    try:
        return max(float(retry_after or 1), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(retry_after or "").timestamp() - now_s, 0.0)
    except ValueError:
        return 1.0
