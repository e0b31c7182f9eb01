"""The outputs of a query: the rows of a sink, or the rejected rows of a stage.

Most queries have one output. A shared one (`shared_query`) has several, and each of them still knows what it skips,
how many rows it wrote, and what it is called.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from odradek.pipeline.check.weaving import Weaver, graph
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import BOOTSTRAP, Pipeline
from odradek.pipeline.kinds.dead_letters import (
    decode_letters,
    knows_its_record,
    letters_part,
    record_letters,
    records_of_rows,
    row_letters,
    write_letters,
)
from odradek.pipeline.kinds.registry import sink_kind, source_kind
from odradek.pipeline.kinds.sink import Batch, SinkKind
from odradek.pipeline.rows.decoding import REJECTED
from odradek.pipeline.rows.expectations import REASON
from odradek.pipeline.run.isolation import BadRecord
from odradek.pipeline.run.letters import letter_of
from odradek.pipeline.run.progress import OBSERVED
from odradek.spark.exactly_once import Part


@dataclass(frozen=True)
class QueryId:
    """`kind` is sink, decode, transform or group; `name` that of the sink, the stage or the group."""

    kind: str
    name: str

    @property
    def label(self) -> str:
        return self.name if self.kind in ("sink", "group") else f"rejects of {self.name}"


def rejects_of(pipeline: Pipeline, stage: str) -> QueryId:
    return QueryId("decode" if stage in pipeline.sources else "transform", stage)


def counts_of(rejected: Column) -> tuple[Column, Column]:
    """Return what is observed of rows that a stage judges."""
    return F.count(F.lit(1)).alias("rows"), F.count_if(rejected).alias("rejected")


class Output:
    """`place` names the files of a batch's dead letters."""

    def __init__(
        self,
        pipeline: Pipeline,
        identity: QueryId,
        show: Callable[[str], None],
        place: Callable[[int], str],
        sink: SinkKind | None = None,
    ) -> None:
        self.pipeline, self.identity, self._show, self._place = pipeline, identity, show, place
        self.sink = sink
        if sink is None and identity.kind == "sink":
            self.sink = sink_kind(pipeline, pipeline.sinks[identity.name])
        self._checkpoint = Checkpoint(pipeline)

    @property
    def label(self) -> str:
        return self.identity.label

    @property
    def stage(self) -> str:
        """The last stage that it needs."""
        return self.identity.name if self.sink is None else self.sink.sink.input

    def skipped(self) -> Any:
        return self._checkpoint.skipped(self.identity.kind, self.identity.name)

    # Weaving

    def frame(self, weaver: Weaver, observed: Observation | str = OBSERVED) -> DataFrame:
        """The rows of the sink, or the rejected rows; counted."""
        woven = weaver.weave(self.stage, self.skipped())
        if self.sink is not None:
            rows = F.count(F.lit(1)).alias("rows")
            return self.sink.plan(woven.rows[self.stage]).observe(observed, rows)
        if self.identity.kind == "decode":
            rejected, every = F.col(REJECTED), woven.decoded[self.stage]
        else:
            rejected, every = F.col(REASON).isNotNull(), woven.judged[self.stage]
        return every.observe(observed, *counts_of(rejected)).where(rejected)

    def explained(self, rows: DataFrame, weaver: Weaver) -> DataFrame:
        """Rejected rows of `frame` as they are passed to `write`: a source's need its schema to become letters."""
        if self.identity.kind != "decode":
            return rows
        source = self.pipeline.sources[self.stage]
        return decode_letters(self.pipeline, source, rows, weaver.woven.schemas[self.stage])

    # Writing, exactly once

    @property
    def ledger_settings(self) -> Mapping[str, str] | None:
        """The client settings of the cluster where its batches are transactions; None if they are not. Dead letters in
        files are no part of one."""
        if self.sink is not None:
            return self.sink.ledger_settings
        letters = self.pipeline.dead_letters
        topic = None if letters is None else letters.topic
        return topic.kafka if topic is not None and topic.exactly_once else None

    @property
    def _letters_join(self) -> bool:
        """True if the dead letters of records that a query fails on go to the cluster of this output."""
        letters = self.pipeline.dead_letters
        if letters is None or letters.topic is None:
            return False
        return self.sink is None or self.sink.cluster == letters.topic.kafka[BOOTSTRAP]

    @property
    def letters_in_transaction(self) -> bool:
        return self.ledger_settings is not None and self._letters_join

    def parts(self, rows: DataFrame, held: list[DataFrame]) -> Iterator[Part]:
        """Yield what the rows of a batch add to its transaction. `held` are frames to release afterwards."""
        if self.sink is not None:
            yield self.sink.part(rows)
        else:
            rows.persist()
            held.append(rows)
            if not rows.isEmpty():
                letters = rows if self.identity.kind == "decode" else self._letters_of(rows)
                yield letters_part(letters, self.pipeline)

    def pending_parts(self, session: SparkSession, number: int) -> Iterator[Part]:
        """The letters of records that were taken out of a batch because this output failed on them."""
        if self._letters_join:
            for record in self._checkpoint.pending(self.identity.kind, self.identity.name, number):
                letter = letter_of(session, self.pipeline, self.identity.name, BadRecord(**record))
                yield letters_part(letter, self.pipeline)

    # Writing, at least once

    def write(self, rows: DataFrame, number: int) -> int:
        """Write a batch; returns how many of its rows the sink refused."""
        if self.sink is None:
            self._write_rejected(rows, number)
            return 0
        if self.sink.committed(number):
            rows.write.format("noop").mode("overwrite").save()  # state and watermark move on all the same
            return 0
        return self.sink.write(Batch(number, lambda: self._place(number), self._show), rows)

    def write_few(self, rejected: DataFrame, weaver: Weaver, number: int) -> None:
        """Write rejected rows of `frame`, computed once: first all of them are counted, which also completes what is
        observed, and only if there are any, they are explained and written."""
        rejected.persist()
        try:
            if rejected.count():
                self.write(self.explained(rejected, weaver), number)
        finally:
            rejected.unpersist()

    def _write_rejected(self, rows: DataFrame, batch: int) -> None:
        """Rejected rows are few. They are cached while they are written, so that they are computed once."""
        rows.persist()
        try:
            if not rows.isEmpty():
                letters = rows if self.identity.kind == "decode" else self._letters_of(rows)
                write_letters(letters, self.pipeline, self._place(batch))
        finally:
            rows.unpersist()

    def _letters_of(self, rows: DataFrame) -> DataFrame:
        name = self.identity.name
        needed = graph(rows.sparkSession, self.pipeline).needed_by(name)
        origins = (
            source_kind(self.pipeline, self.pipeline.sources[one])
            for one in self.pipeline.sources
            if one in needed
        )
        source = knows_its_record(rows, origins)
        if source is None:
            return row_letters(rows, self.pipeline, "transform", name, F.col(REASON))
        records = records_of_rows(rows.sparkSession, source, rows)
        return record_letters(records, self.pipeline, "transform", name, F.col(REASON))
