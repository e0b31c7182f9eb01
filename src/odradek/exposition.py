"""Numbers of a process in Prometheus' text format, and a small server of them.

For processes that count a few things now and then: pipelines, archivers, mirrors, programs on Spark. A broker counts
with every request, and has counters and a page of its own (`services.upkeep.monitoring`).
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


class Numbers:
    """The newest value of each number, by its labels. `help` has the kind of each and what it is."""

    def __init__(self, help: Mapping[str, tuple[str, str]]) -> None:
        self._help = help
        self._lock = threading.Lock()
        self._values: defaultdict[str, dict[Labels, float]] = defaultdict(dict)

    def set(self, name: str, value: float, **labels: str) -> None:
        with self._lock:
            self._values[name][tuple(sorted(labels.items()))] = value

    def add(self, name: str, value: float, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        with self._lock:
            self._values[name][key] = self._values[name].get(key, 0) + value

    def text(self) -> str:
        with self._lock:
            found = {name: dict(self._values[name]) for name in self._help if name in self._values}
        return "".join(written(name, *self._help[name], values) for name, values in found.items())


def written(name: str, kind: str, about: str, values: Mapping[Labels, float]) -> str:
    """One number in the text format, with all its labels. Values are exact: a counter may be large."""
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{labelled(dict(labels))} {value}" for labels, value in sorted(values.items())]
    return "".join(f"{line}\n" for line in lines)


def labelled(labels: Mapping[str, object]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def serve(text: Callable[[], str], host: str, port: int) -> ThreadingHTTPServer:
    """Serve `text` as `/metrics`, on a thread of its own, until the server is shut down. Port 0: the system chooses."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.split("?")[0] in ("/", "/metrics")
            body = text().encode() if found else b""
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A line for every scrape would drown the program's own."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True  # a client that does not read its response holds up no end
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
