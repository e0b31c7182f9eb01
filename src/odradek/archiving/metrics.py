"""What an archiver has done, as numbers for Prometheus over HTTP."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from odradek.archiving.rounds import Round

HELP = {
    "odradek_archive_rows_total": ("counter", "Rows archived since the process started."),
    "odradek_archive_bytes_total": ("counter", "Bytes of the files written for them."),
    "odradek_archive_lag_records": ("gauge", "Offsets of a partition that are not archived yet."),
    "odradek_archive_end_offset": ("gauge", "The offset up to which a partition is archived."),
    "odradek_archive_failures_total": ("counter", "Rounds that failed and were tried again."),
}

Labels = tuple[tuple[str, str], ...]


class Metrics:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[Labels, int]] = {name: {} for name in HELP}

    def take(self, done: Round) -> None:
        topic = (("topic", done.topic),)
        with self._lock:
            self._add("odradek_archive_rows_total", topic, done.rows)
            self._add("odradek_archive_bytes_total", topic, done.size)
            for number, lag in done.lags.items():
                partition = (*topic, ("partition", str(number)))
                self._values["odradek_archive_lag_records"][partition] = lag
                self._values["odradek_archive_end_offset"][partition] = done.ends[number]

    def failed(self, topic: str) -> None:
        with self._lock:
            self._add("odradek_archive_failures_total", (("topic", topic),), 1)

    def _add(self, name: str, labels: Labels, count: int) -> None:
        self._values[name][labels] = self._values[name].get(labels, 0) + count

    def text(self) -> str:
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        for name, (kind, about) in HELP.items():
            yield f"# HELP {name} {about}"
            yield f"# TYPE {name} {kind}"
            for labels, value in sorted(self._values[name].items()):
                shown = ",".join(
                    f'{label}="{text}"' for label, text in labels
                )  # names of topics need no escapes
                yield f"{name}{{{shown}}} {value}"


def serve(metrics: Metrics, port: int, host: str = "127.0.0.1") -> ThreadingHTTPServer:
    """Serve `/metrics` until the server is shut down."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.split("?")[0] in ("/", "/metrics")
            body = metrics.text().encode() if found else b""
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A line for every scrape would drown the program's own."""

    server = ThreadingHTTPServer((host, port), Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
