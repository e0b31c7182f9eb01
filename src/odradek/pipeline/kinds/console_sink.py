"""The console as a sink: the first rows of each batch, as a table."""

from typing import Any

from pyspark.sql import DataFrame

from odradek.pipeline.file.definition import ConsoleSink, Pipeline, Sink
from odradek.pipeline.kinds.sink import Batch, SinkKind

CELL_CHARACTERS = 60


class ConsoleSinkKind(SinkKind):
    def __init__(self, pipeline: Pipeline, sink: Sink, target: ConsoleSink) -> None:
        super().__init__(pipeline, sink)
        self.target = target

    @property
    def destination(self) -> str:
        return "the console"

    @property
    def guarantee(self) -> str:
        return "shown at least once"

    def write(self, batch: Batch, frame: DataFrame) -> int:
        frame.persist()  # shown in part and counted as a whole, but computed once
        try:
            count = frame.count()
            found = frame.limit(self.target.rows).collect() if count else []
        finally:
            frame.unpersist()
        if found:
            more = f"\n({count - len(found)} more)" if count > len(found) else ""
            batch.show(f"{self.sink.name}, batch {batch.number}\n{as_table(frame.columns, found)}{more}")
        return 0


def as_table(columns: list[str], rows: list[Any]) -> str:
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(name), *(len(row[at]) for row in cells), 0) for at, name in enumerate(columns)]
    lines = [columns, ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, (bytes, bytearray)):
        text = bytes(value).decode(errors="backslashreplace")
    else:
        text = str(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= CELL_CHARACTERS else f"{text[: CELL_CHARACTERS - 1]}…"
