"""A schema registry that gives what it is told to: schemas by the path that asks for them."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(schemas: Mapping[str, object]) -> Iterator[str]:
    """`schemas`: what is at `schemas/ids/7` or `subjects/orders-value/versions/latest`; yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = schemas.get(self.path.strip("/"))
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps({} if found is None else {"schema": json.dumps(found)}).encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
