"""An S3 of tests: moto's server, behind a door that answers 503 when it is told to.

It is a process of its own (`python -m tests.pipeline.stores`), because delta-rs keeps the interpreter's lock while it
waits for some of its responses.
"""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BUCKET = "lake"
DOOR = "/-/door"
WRITES, READS = ["PUT", "POST", "DELETE"], ["GET", "HEAD"]
FOR_EVER = 1_000_000


class Store:
    """A store, as far as tests know it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.access = {
            "endpoint": address,
            "region": "us-east-1",
            "access_key_id": "testing",
            "secret_access_key": "testing",
        }

    def refuse(self, part: str, times: int) -> None:
        """Answer 503 to the next writes whose path has this in it."""
        self._order(part=part, times=times, methods=WRITES)

    def go_away(self) -> None:
        """Answer 503 to everything, until it is told to `come_back`."""
        self._order(part="", times=FOR_EVER, methods=[*WRITES, *READS])

    def come_back(self) -> int:
        """Return the number of requests that it has refused while it was away."""
        refused = FOR_EVER - self.left()
        self._order(part="", times=0, methods=[])
        return refused

    def left(self) -> int:
        """Return how many more requests will get this response."""
        return int(self._ask(None)["times"])

    def _order(self, **order: Any) -> None:
        self._ask(json.dumps(order).encode())

    def _ask(self, order: bytes | None) -> dict[str, Any]:
        with urllib.request.urlopen(self.address + DOOR, order, timeout=60) as response:
            found: dict[str, Any] = json.loads(response.read())
            return found


@contextmanager
def running_store() -> Iterator[Store]:
    from pyarrow.fs import S3FileSystem

    from odradek.pipeline.kinds.lake.storage import arrow_s3

    process = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.stores"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        store = Store(process.stdout.readline().strip())
        S3FileSystem(**arrow_s3(store.access), allow_bucket_creation=True).create_dir(BUCKET)
        yield store
    finally:
        process.kill()
        process.wait()


class Door:
    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app

        self._moto = DomainDispatcherApplication(create_backend_app)
        self._order: dict[str, Any] = {"part": "", "times": 0, "methods": []}

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path != DOOR and not self._is_refused(method, path):
            return self._moto(environ, start_response)
        given = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if path != DOOR:
            start_response("503 Slow Down", [("Content-Type", "application/xml")])
            return [
                b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
            ]
        if given:
            self._order = json.loads(given)
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(self._order).encode()]

    def _is_refused(self, method: str, path: str) -> bool:
        order = self._order
        if method not in order["methods"] or order["part"] not in path or not order["times"]:
            return False
        order["times"] -= 1
        return True


def main() -> None:
    import threading

    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, Door(), threaded=True)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # ends with the test


if __name__ == "__main__":
    main()
