"""Values in Avro, with schemas of a registry."""

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import fastavro
import pytest

from odradek.console.messages.schemas import NoSchema, Schemas
from odradek.console.messages.showing import ALONE, show

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "book", "type": "string"}, {"name": "copies", "type": "int"}],
}


class Registry(BaseHTTPRequestHandler):
    asked: list[str] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        is_known = self.path == "/schemas/ids/7"
        self.send_response(200 if is_known else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"schema": json.dumps(SCHEMA)} if is_known else {}).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    Registry.asked.clear()
    server = HTTPServer(("localhost", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def framed(schema_id: int, value: dict[str, Any]) -> bytes:
    output = io.BytesIO()
    fastavro.schemaless_writer(output, fastavro.parse_schema(SCHEMA), value)
    return b"\0" + schema_id.to_bytes(4, "big") + output.getvalue()


def test_a_value_is_shown_by_its_schema_which_is_asked_for_once(registry: str) -> None:
    schemas = Schemas(registry)
    data = framed(7, {"book": "The Trial", "copies": 3})
    for _ in range(2):
        shown = show(data, "avro", ALONE, schemas.decode)
        assert (shown.view, json.loads(shown.text or "")) == ("avro", {"book": "The Trial", "copies": 3})
    assert Registry.asked == ["/schemas/ids/7"]


def test_why_a_value_cannot_be_shown(registry: str) -> None:
    schemas = Schemas(registry)
    for data, reason in (
        (b"plain", "does not begin"),
        (framed(8, {"book": "x", "copies": 1}), "no schema 8"),
        (b"\0\0\0\0\7\xff\xff", "does not fit schema 7"),
    ):
        with pytest.raises(NoSchema, match=reason):
            schemas.decode(data)
        assert show(data, "avro", ALONE, schemas.decode).text, "the bytes are shown all the same"
    assert Registry.asked == ["/schemas/ids/8", "/schemas/ids/7"], "a failure is not asked for again at once"
    with pytest.raises(NoSchema, match="did not give"):
        Schemas("http://localhost:1").decode(framed(7, {"book": "x", "copies": 1}))
