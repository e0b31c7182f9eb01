"""A query with several outputs: its source is read and decoded once, and each batch is written to all of them.

The stream is the decoded records. A batch of them is kept while the outputs are written one after the other, each woven
over that batch as it would be over the stream: stages treat row by row (`check.sharing`), so it makes no difference.
Of good records only the row is kept, of rejected ones also their bytes.

**A batch is one transaction**, with the rows of all outputs, if one of them is written exactly once.

Otherwise **a failed batch runs again as a whole**, but outputs that have been written are left out as long as this
process lives: what one output fails on does not repeat the rows of the others. In both cases each output skips the
records that it fails on, and only those.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from odradek.pipeline.check.weaving import BatchReader, Graph, Skipped, StreamReader, Weaver, without_skipped
from odradek.pipeline.checkpoint import Group
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.kinds.registry import source_kind
from odradek.pipeline.kinds.sink import SinkKind
from odradek.pipeline.kinds.source import SourceKind
from odradek.pipeline.rows.decoding import REJECTED
from odradek.pipeline.run.outputs import Output, QueryId, rejects_of
from odradek.pipeline.run.progress import OBSERVED, BatchProgress, batch_progress
from odradek.pipeline.run.queries import Query
from odradek.pipeline.session import new_session
from odradek.spark.exactly_once import Part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES = ("value", "headers")  # columns of a record that only dead letters need
KEPT_COUNTS = 100  # batches; Spark itself keeps the reports of as many


class SharedWeaver(Weaver):
    """Weaves over a batch of decoded records of one source."""

    def __init__(
        self, batch: DataFrame, pipeline: Pipeline, stages: Graph, source: str, schema: StructType
    ) -> None:
        session = batch.sparkSession
        super().__init__(session, pipeline, BatchReader(session, pipeline), stages)
        self._batch, self._source, self._schema = batch, source, schema

    def schema_of(self, kind: SourceKind) -> StructType:
        return self._schema if kind.source.name == self._source else super().schema_of(kind)

    def decoded(self, kind: SourceKind, schema: StructType, skipped: Skipped) -> DataFrame:
        found = without_skipped(self._batch, skipped)
        self.woven.decoded[kind.source.name] = found
        return found


class SharedQuery(Query):
    def __init__(
        self,
        spark: "SparkSession",
        pipeline: Pipeline,
        group: Group,
        *,
        once: bool,
        show: Callable[[str], None],
        sinks: Mapping[str, SinkKind] | None = None,
    ) -> None:
        self.group, self._sinks = group, sinks or {}
        super().__init__(spark, pipeline, QueryId("group", group.name), once=once, show=show)
        self._stages: Graph | None = None
        self._schema = StructType()
        self._failed: Output | None = None
        self._written: tuple[int, dict[Output, dict[str, int]]] = (
            -1,
            {},
        )  # of the newest batch, with their counts
        self._counts: dict[int, dict[Output, dict[str, int]]] = {}

    def _outputs(self, show: Callable[[str], None], sink: SinkKind | None) -> list[Output]:
        identities = [QueryId("sink", name) for name in self.group.sinks]
        identities += [rejects_of(self.pipeline, name) for name in self.group.rejects]
        return [
            Output(self.pipeline, one, show, self._letters_place, self._sinks.get(one.name))
            if one.kind == "sink"
            else Output(self.pipeline, one, show, self._letters_place)
            for one in identities
        ]

    @property
    def label(self) -> str:
        return " + ".join(output.label for output in self.outputs)

    @property
    def blamed(self) -> str:
        if self._failed is None:
            return self.label
        others = ", ".join(output.label for output in self.outputs if output is not self._failed)
        return f"{self._failed.label} (which shares a query with {others})"

    @property
    def unwritten(self) -> list[Output]:
        return [output for output in self.outputs if output not in self._written[1]]

    @property
    def _group(self) -> str:
        return f"{self.group.name}-shared"

    # The stream

    def frame(self) -> DataFrame:
        session = new_session(self.spark)
        kind = source_kind(self.pipeline, self.pipeline.sources[self.group.source])
        reader = StreamReader(session, self.pipeline, self._group, headers=bool(self.group.rejects))
        weaver = Weaver(session, self.pipeline, reader)
        self._stages, self._schema, self._failed = weaver.woven.graph, kind.schema(), None
        return _without_bytes(weaver.decoded(kind, self._schema, {}), kind)

    def _write_batch(self, rows: DataFrame, number: int) -> None:
        rows.persist()
        try:
            if self.is_once:
                self._write_once(rows, number)
            else:
                self._write_one_by_one(rows, number)
        finally:
            rows.unpersist()
        self._failed = None
        self._counts.pop(number - KEPT_COUNTS, None)

    def _parts(self, rows: DataFrame, number: int, held: list[DataFrame]) -> Iterator[Part]:
        """Those of all outputs, in one transaction. Each is computed before the next is asked for."""
        counts = self._counts[number] = {}
        for output in self.outputs:
            self._failed = output
            frame, weaver, observation = self._observed(output, rows)
            if output.sink is not None or frame.count():
                yield from output.parts(output.explained(frame, weaver), number, held)
            counts[output] = observation.get
        self._failed = None

    def _write_one_by_one(self, rows: DataFrame, number: int) -> None:
        if self._written[0] != number:
            self._written = (number, {})
        counts = self._written[1]
        for output in self.unwritten:
            self._failed = output
            counts[output] = self._write_output(output, rows, number)
        self._counts[number] = counts

    def _write_output(self, output: Output, rows: DataFrame, number: int) -> dict[str, int]:
        """Returns the counts of the output's rows."""
        frame, weaver, observation = self._observed(output, rows)
        if output.sink is not None or frame.count():
            output.write(output.explained(frame, weaver), number)
        return observation.get

    def _observed(self, output: Output, rows: DataFrame) -> tuple[DataFrame, Weaver, Observation]:
        """An output's rows of a batch, which are counted when they are computed."""
        assert self._stages is not None
        weaver = SharedWeaver(rows, self.pipeline, self._stages, self.group.source, self._schema)
        observation = Observation()
        return output.frame(weaver, observation), weaver, observation

    def woven(self, output: Output) -> DataFrame:
        """What is made of a batch for an output, over a batch that has no records."""
        base = self.frame()
        assert self._stages is not None
        batch = base.sparkSession.createDataFrame([], base.schema)
        weaver = SharedWeaver(batch, self.pipeline, self._stages, self.group.source, self._schema)
        return output.explained(output.frame(weaver), weaver)

    # Reports

    def _progress_of_batch(self, facts: dict[str, Any]) -> list[BatchProgress]:
        observed = facts.get("observedMetrics") or {}
        counts = self._counts.get(facts["batchId"], {})
        return [
            batch_progress(
                self.pipeline.name,
                output.label,
                output.identity.kind,
                facts | {"observedMetrics": observed | {OBSERVED: counts.get(output)}},
            )
            for output in self.outputs
        ]


def _without_bytes(decoded: DataFrame, kind: SourceKind) -> DataFrame:
    """Decoded records to keep: of good ones without what only dead letters need."""
    needed = set(kind.metadata)
    dropped = [name for name in BYTES if name in decoded.columns and name not in needed]
    return decoded.withColumns({name: F.when(F.col(REJECTED), F.col(name)) for name in dropped})
