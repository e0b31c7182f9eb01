"""A run's numbers for Prometheus: the newest batch of every query, and counters since the start."""

from typing import TYPE_CHECKING

from odradek.exposition import Numbers

if TYPE_CHECKING:
    from odradek.pipeline.run.progress import BatchProgress

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


class Metrics(Numbers):
    def __init__(self) -> None:
        super().__init__(HELP)

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
