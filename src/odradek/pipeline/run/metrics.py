"""A run's numbers for Prometheus, over HTTP: the newest batch of every query, and counters since the start.

Other kinds of runs have other numbers: `help` names them.
"""

import threading
from collections import defaultdict
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.pipeline.run.progress import BatchProgress

Labels = tuple[tuple[str, str], ...]

HELP = {
    "odradek_pipeline_rows_in_total": ("counter", "Rows read."),
    "odradek_pipeline_rows_out_total": ("counter", "Rows handed to the sink."),
    "odradek_pipeline_rejected_total": ("counter", "Rows and records rejected."),
    "odradek_pipeline_unmet_total": (
        "counter",
        "Rows that did not meet a requirement, by transform, requirement and action.",
    ),
    "odradek_pipeline_batches_total": ("counter", "Batches finished."),
    "odradek_pipeline_failures_total": ("counter", "Failures that were retried."),
    "odradek_pipeline_lag_records": ("gauge", "Records of the topic that are not processed yet."),
    "odradek_pipeline_batch_seconds": ("gauge", "Duration of the newest batch."),
    "odradek_pipeline_phase_seconds": ("gauge", "Duration of the newest batch, by what it was spent on."),
    "odradek_pipeline_state_rows": ("gauge", "Rows kept as state."),
    "odradek_pipeline_late_rows_total": (
        "counter",
        "Rows dropped because they came after the watermark: at least, as Spark counts them once they are grouped.",
    ),
    "odradek_pipeline_up": ("gauge", "1 while the pipeline runs."),
}


class Metrics:
    def __init__(self, help: Mapping[str, tuple[str, str]] = HELP) -> None:
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

    def take(self, progress: "BatchProgress") -> None:
        labels = {"pipeline": progress.pipeline, "query": progress.query}
        self.add("odradek_pipeline_batches_total", 1, **labels)
        self.add("odradek_pipeline_rows_in_total", progress.rows_in, **labels)
        if progress.rejected is not None:
            self.add("odradek_pipeline_rejected_total", progress.rejected, **labels)
        else:
            self.add("odradek_pipeline_rows_out_total", progress.rows_out or 0, **labels)
        self.add("odradek_pipeline_late_rows_total", progress.late_at_least, **labels)
        for one in progress.unmet:
            described = {name: one[name] for name in ("stage", "requirement", "action")}
            self.add("odradek_pipeline_unmet_total", one["rows"], **described, **labels)
        self.set("odradek_pipeline_batch_seconds", progress.duration_ms / 1000, **labels)
        self.set("odradek_pipeline_state_rows", progress.state_rows, **labels)
        for phase, duration_ms in progress.phases_ms.items():
            self.set("odradek_pipeline_phase_seconds", duration_ms / 1000, phase=phase, **labels)
        for topic, waiting in progress.lag.items():
            self.set("odradek_pipeline_lag_records", waiting, topic=topic, **labels)

    def text(self) -> str:
        lines = []
        with self._lock:
            for name, (kind, about) in self._help.items():
                if name not in self._values:
                    continue
                lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
                for labels, value in sorted(self._values[name].items()):
                    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
                    lines.append(f"{name}{{{shown}}} {_shown(value)}")
        return "\n".join(lines) + "\n"


def _shown(value: float) -> str:
    """All its digits: counters become large."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def serve(metrics: Metrics, host: str, port: int) -> ThreadingHTTPServer:
    """Runs on its own thread until it is shut down."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = metrics.text().encode()
            found = self.path.split("?")[0] in ("/", "/metrics")
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body) if found else 0))
            self.end_headers()
            if found:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer((host, port), Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
