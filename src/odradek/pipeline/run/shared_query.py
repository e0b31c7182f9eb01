"""A query with several outputs: its source is read and decoded once, and each batch is written to all of them.

The stream is the decoded records. The outputs are written one after the other, each woven over the batch as it would be
over the stream: stages treat row by row (`check.sharing`), so it makes no difference. If that takes several passes, the
batch is kept meanwhile: of good records only the row, of rejected ones also their bytes.

**Rejected rows are few, and usually there are none.** So the pass of a sink also counts the rows that the stages on its
way reject; the output of a stage that rejected nothing needs no pass of its own. One sink and its dead letters are then
written in one pass, and nothing is kept. Keeping costs as much as decoding, so a batch is kept only if it has several
sinks, or if rows of the batch before were rejected.

**A batch is one transaction**, with the rows of all outputs, if one of them is written exactly once.

Otherwise **a failed batch runs again as a whole**, but outputs that have been written are left out as long as this
process lives: what one output fails on does not repeat the rows of the others. In both cases each output skips the
records that it fails on, and only those.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from odradek.pipeline.check.weaving import BatchReader, Graph, Skipped, StreamReader, Weaver, without_skipped
from odradek.pipeline.checkpoint import Group
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.kinds.registry import source_kind
from odradek.pipeline.kinds.sink import SinkKind
from odradek.pipeline.kinds.source import SourceKind
from odradek.pipeline.rows.decoding import REJECTED
from odradek.pipeline.rows.expectations import REASON, unmet_counts, unmet_of
from odradek.pipeline.run.outputs import Output, QueryId, counts_of, rejects_of
from odradek.pipeline.run.progress import OBSERVED, BatchProgress, batch_progress
from odradek.pipeline.run.queries import Query
from odradek.pipeline.session import new_session
from odradek.spark.exactly_once import Part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES = ("value", "headers")  # columns of a record that only dead letters need
COUNTS_WAIT_S = 2.0
KEPT_COUNTS = 100  # batches; Spark itself keeps the reports of as many


class SharedWeaver(Weaver):
    """Weaves over a batch of decoded records of one source."""

    def __init__(
        self,
        batch: DataFrame,
        pipeline: Pipeline,
        stages: Graph,
        source: str,
        schema: StructType,
        counted: Mapping[str, Observation] | None = None,
    ) -> None:
        """`counted`: stages whose rows are counted as they pass, and those of them that the stage rejects."""
        session = batch.sparkSession
        super().__init__(session, pipeline, BatchReader(session, pipeline), stages)
        self._batch, self._source, self._schema, self._counted = batch, source, schema, counted or {}

    def schema_of(self, kind: SourceKind) -> StructType:
        return self._schema if kind.source.name == self._source else super().schema_of(kind)

    def decoded(self, kind: SourceKind, schema: StructType, skipped: Skipped) -> DataFrame:
        found = self._count(kind.source.name, without_skipped(self._batch, skipped), F.col(REJECTED))
        self.woven.decoded[kind.source.name] = found
        return found

    def judged(self, name: str, frame: DataFrame) -> DataFrame:
        unmet = unmet_counts(self.pipeline.transforms[name])
        return self._count(name, super().judged(name, frame), F.col(REASON).isNotNull(), *unmet)

    def _count(self, stage: str, rows: DataFrame, rejected: Column, *more: Column) -> DataFrame:
        observation = self._counted.get(stage)
        return rows if observation is None else rows.observe(observation, *counts_of(rejected), *more)


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
        self._rejected_last = False  # the newest batch had rejected rows
        self._counts: dict[int, dict[Output, dict[str, int]]] = {}
        self._reads: dict[int, int] = {}  # how often records of a batch were read
        self._unmet: dict[int, dict[Output, dict[str, dict[str, int]]]] = {}  # by batch, output and transform

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
        if self.is_once or self._written[0] != number:  # a transaction has all outputs, or none
            self._written = (number, {})
        is_kept = self._rejected_last or self._passes() > 1
        self._reads[number] = 1 if is_kept else 0
        if is_kept:
            rows.persist()
        try:
            if self.is_once:
                self._write_once(rows, number)
            else:
                self._write_one_by_one(rows, number)
        finally:
            if is_kept:
                rows.unpersist()
        self._failed = None
        counts = self._written[1]
        self._rejected_last = any(one.get("rejected") for one in counts.values())
        self._counts[number] = counts
        for kept in (self._counts, self._reads, self._unmet):
            kept.pop(number - KEPT_COUNTS, None)

    def _passes(self) -> int:
        """The number of passes over a batch without rejected rows."""
        unwritten = self.unwritten
        counted = [one for output in unwritten for one in self._counted_by(output)]
        return sum(output not in counted for output in unwritten)

    def _counted_by(self, output: Output) -> list[Output]:
        """Rejects that a pass of this output counts: of stages on its way, if both skip the same records."""
        if output.sink is None:
            return []
        assert self._stages is not None
        needed, skipped = self._stages.needed_by(output.stage), output.skipped()
        return [
            one
            for one in self.unwritten
            if one.sink is None and one.stage in needed and one.skipped() == skipped
        ]

    def _parts(self, rows: DataFrame, number: int, held: list[DataFrame]) -> Iterator[Part]:
        """Yield the parts of all outputs, in one transaction. Each is computed before the next is asked for."""
        for output in self.outputs:
            yield from output.pending_parts(rows.sparkSession, number)
            if output in self._written[1]:
                continue  # it has no rows
            passing = self._begin_pass(output, rows, number)
            if output.sink is not None:
                yield from output.parts(passing.frame, held)
            else:
                passing.frame.persist()
                held.append(passing.frame)
                if passing.frame.count():
                    yield from output.parts(output.explained(passing.frame, passing.weaver), held)
            self._finish_pass(output, passing, number)
        self._failed = None

    def _write_one_by_one(self, rows: DataFrame, number: int) -> None:
        for output in self.outputs:
            if output not in self._written[1]:  # it may be known by now that it has no rows
                passing = self._begin_pass(output, rows, number)
                if output.sink is not None:
                    output.write(passing.frame, number)
                else:
                    output.write_few(passing.frame, passing.weaver, number)
                self._finish_pass(output, passing, number)

    def _finish_pass(self, output: Output, passing: "Pass", number: int) -> None:
        self._written[1].update(passing.counts())
        self._unmet.setdefault(number, {})[output] = passing.unmet()

    def _begin_pass(self, output: Output, rows: DataFrame, number: int) -> "Pass":
        self._failed = output
        self._reads[number] += not rows.is_cached
        counted = {one: Observation() for one in self._counted_by(output)}
        observed = {one.stage: observation for one, observation in counted.items()}
        judging = {name: observed.setdefault(name, Observation()) for name in self._judging(output)}
        return Pass(output, self._weaver(rows, observed), counted, judging)

    def _judging(self, output: Output) -> list[str]:
        """Transforms with requirements on the way of a sink's rows."""
        if output.sink is None:
            return []
        assert self._stages is not None
        needed = self._stages.needed_by(output.stage)
        return [name for name, one in self.pipeline.transforms.items() if one.require and name in needed]

    def _weaver(self, rows: DataFrame, counted: Mapping[str, Observation] | None = None) -> SharedWeaver:
        assert self._stages is not None
        return SharedWeaver(rows, self.pipeline, self._stages, self.group.source, self._schema, counted)

    def woven(self, output: Output) -> DataFrame:
        """Weave what is made of a batch for an output, over a batch that has no records."""
        base = self.frame()
        weaver = self._weaver(base.sparkSession.createDataFrame([], base.schema))
        return output.explained(output.frame(weaver), weaver)

    # Reports

    def _progress_of_batch(self, facts: dict[str, Any]) -> list[BatchProgress]:
        observed = facts.get("observedMetrics") or {}
        counts = self._counts.get(facts["batchId"], {})
        read = int(facts.get("numInputRows") or 0) // max(self._reads.get(facts["batchId"], 1), 1)
        return [
            batch_progress(
                self.pipeline.name,
                output.label,
                output.identity.kind,
                facts | {"numInputRows": read, "observedMetrics": observed | {OBSERVED: counts.get(output)}},
                unmet_of(self.pipeline, self._unmet.get(facts["batchId"], {}).get(output, {})),
            )
            for output in self.outputs
        ]


class Pass:
    """One output's way over a batch: its rows, which are counted when they are computed, and so are rejected ones."""

    def __init__(
        self,
        output: Output,
        weaver: SharedWeaver,
        counted: Mapping[Output, Observation],
        judging: Mapping[str, Observation],
    ) -> None:
        self._output, self.weaver, self._counted, self._judging = output, weaver, counted, judging
        self._observation = Observation()
        self.frame = output.frame(weaver, self._observation)

    def counts(self) -> dict[Output, dict[str, int]]:
        """Once its frame is computed: the counts of its rows, and those of rejects that turned out to have none."""
        known = {one: _counts_if_known(observed) for one, observed in self._counted.items()}
        found = {one: each for one, each in known.items() if each.get("rejected") == 0}
        return {self._output: self._observation.get} | found

    def unmet(self) -> dict[str, dict[str, int]]:
        """Return, by transform, how many rows did not meet each of its requirements, once its frame is computed."""
        return {name: _counts_if_known(observed) for name, observed in self._judging.items()}


def _counts_if_known(observation: Observation) -> dict[str, int]:
    """Return what was counted in a pass that has ended, or nothing if Spark left the stage out, as it does below a
    filter that no row can meet: nobody would ever be told.
    """
    assert observation._jo is not None
    counted, deadline = observation._jo.future(), time.monotonic() + COUNTS_WAIT_S
    while not counted.isCompleted() and time.monotonic() < deadline:  # Spark tells us a moment later
        time.sleep(0.002)
    is_known = counted.isCompleted() and observation._jo.getRow().length() > 0
    return observation.get if is_known else {}


def _without_bytes(decoded: DataFrame, kind: SourceKind) -> DataFrame:
    """Decoded records to keep: of good ones without what only dead letters need."""
    needed = set(kind.metadata)
    dropped = [name for name in BYTES if name in decoded.columns and name not in needed]
    return decoded.withColumns({name: F.when(F.col(REJECTED), F.col(name)) for name in dropped})
