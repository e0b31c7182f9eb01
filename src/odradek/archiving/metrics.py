"""An archiver's work, as numbers for Prometheus."""

from odradek.archiving.rounds import Round
from odradek.exposition import Numbers

HELP = {
    "odradek_archive_rows_total": ("counter", "Rows archived since the process started."),
    "odradek_archive_bytes_total": ("counter", "Bytes of the files written for them."),
    "odradek_archive_lag_records": ("gauge", "Offsets of a partition that are not archived yet."),
    "odradek_archive_end_offset": ("gauge", "The offset up to which a partition is archived."),
    "odradek_archive_failures_total": ("counter", "Rounds that failed and were tried again."),
}


class Metrics(Numbers):
    def __init__(self) -> None:
        super().__init__(HELP)

    def take(self, done: Round) -> None:
        self.add("odradek_archive_rows_total", done.rows, topic=done.topic)
        self.add("odradek_archive_bytes_total", done.size, topic=done.topic)
        for number, lag in done.lags.items():
            partition = {"topic": done.topic, "partition": str(number)}
            self.set("odradek_archive_lag_records", lag, **partition)
            self.set("odradek_archive_end_offset", done.ends[number], **partition)

    def failed(self, topic: str) -> None:
        self.add("odradek_archive_failures_total", 1, topic=topic)
