"""Checks that find problems before anything runs.

Everything is woven as it will run, without starting it: Spark then checks types through the SQL. All problems are
reported together, with their lines; a stage that reads a broken one is not blamed for it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from odradek.pipeline.check.sharing import Candidates, candidates
from odradek.pipeline.check.state import (
    StatefulOperator,
    output_mode,
    state_layout,
    state_types,
    stateful_operators,
    streams_read,
)
from odradek.pipeline.check.weaving import Graph, StreamReader, Weaver, Woven
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import Pipeline, Sink
from odradek.pipeline.file.errors import PipelineError, PipelineErrors
from odradek.pipeline.kinds import topics
from odradek.pipeline.kinds.registry import sink_kind, sink_kinds, source_kinds
from odradek.pipeline.kinds.sink import SinkKind
from odradek.pipeline.session import new_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class Report:
    """The result of a check: for people (`lines`), and for scripts (`as_json`)."""

    pipeline: Pipeline
    schemas: dict[str, str] = field(default_factory=dict)
    state: dict[str, list[str]] = field(default_factory=dict)
    state_types: dict[str, list[str]] = field(default_factory=dict)
    stages: Graph = field(default_factory=lambda: Graph({}, []))
    named: dict[str, bool] = field(default_factory=dict)  # by sink: the checkpoint knows its sources by name
    may_share: Candidates = field(default_factory=Candidates)
    warnings: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        return {
            "pipeline": self.pipeline.name,
            "ok": True,
            "stages": self.schemas,
            "sinks": {
                name: {"to": kind.destination, "mode": kind.sink.mode, "guarantee": kind.guarantee}
                for name, kind in sink_kinds(self.pipeline).items()
            },
            "warnings": self.warnings,
        }

    def lines(self) -> list[str]:
        found = [f"{self.pipeline.name}: this pipeline is good"]
        found += [f"  {name}: {schema}" for name, schema in self.schemas.items()]
        found += [
            f"  {name} → {kind.destination}, {kind.sink.mode}: {kind.guarantee}"
            for name, kind in sink_kinds(self.pipeline).items()
        ]
        return found + [f"  warning: {warning}" for warning in self.warnings]


def check(spark: "SparkSession", pipeline: Pipeline, *, offline: bool = False) -> Report:
    """`PipelineErrors` has all problems. `offline` does not look at cluster, database or checkpoint."""
    problems: list[PipelineError] = []
    report = Report(pipeline)
    woven = _weave(spark, pipeline, problems, offline)
    report.stages = woven.graph
    for name, frame in woven.rows.items():
        report.schemas[name] = frame.schema.simpleString().removeprefix("struct<").removesuffix(">")
    for sink in pipeline.sinks.values():
        if sink.input in woven.rows:
            _collect(problems, partial(_check_sink, sink, woven, report, offline))
    if offline:
        skipped = [name for name, source in pipeline.sources.items() if source.is_static]
        report.warnings += [
            f"the table '{name}' and the stages that read it were not checked" for name in skipped
        ]
    _warn_of_unused(pipeline, woven, report)
    if not offline:
        for error in _check_outside(pipeline):
            problems.append(error)
    if problems:
        raise PipelineErrors(problems)
    report.may_share = candidates(pipeline, woven)
    return report


def _collect(problems: list[PipelineError], work: Callable[[], object]) -> None:
    try:
        work()
    except PipelineErrors as error:
        problems += error.errors
    except PipelineError as error:
        problems.append(error)


def _weave(spark: "SparkSession", pipeline: Pipeline, problems: list[PipelineError], offline: bool) -> Woven:
    session = new_session(spark)
    weaver = Weaver(session, pipeline, StreamReader(session, pipeline, "check"))
    woven = weaver.woven
    for source in pipeline.sources.values():
        if not (offline and source.is_static):
            _collect(problems, partial(weaver.add_source, source))
    for name in woven.graph.order:
        inputs = woven.graph.inputs[name]
        if all(before in woven.rows for before in inputs):
            _collect(problems, partial(weaver.add_transform, name))
    return woven


def _check_sink(sink: Sink, woven: Woven, report: Report, offline: bool) -> None:
    pipeline, frame = report.pipeline, woven.rows[sink.input]
    kind = sink_kind(pipeline, sink)
    rows = kind.plan(frame)
    if not offline:
        kind.check_outside(rows)
    report.named[sink.name] = check_reads(pipeline, sink, frame)
    _check_mode(pipeline, sink, frame, check_state(pipeline, sink, woven))
    report.state[sink.name] = state_layout(rows)
    report.state_types[sink.name] = state_types(rows)


def check_reads(pipeline: Pipeline, sink: Sink, frame: "DataFrame") -> bool:
    """Decide whether streams may be named in the checkpoint. Spark keeps one offset per name, so if a stream is read
    twice together with another one, the two cannot be told apart; alone it needs no name.
    """
    reads = streams_read(frame)
    repeated = {name for name in reads if reads.count(name) > 1}
    if not repeated:
        return True
    if len(set(reads)) > 1:
        name = sorted(repeated)[0]
        problem = (
            f"'{name}' is read more than once in this query, together with another stream: declare a second source "
            f"of the same topic, for example {name}_again, and read that in one of them"
        )
        raise pipeline.error((*sink.key, "from"), problem)
    return False


def check_state(pipeline: Pipeline, sink: Sink, woven: Woven) -> list[StatefulOperator]:
    """State must be bounded; the error names the first stage whose plan has unbounded state."""
    operators = stateful_operators(woven.rows[sink.input])
    unbounded = [one for one in operators if one.problem]
    if not unbounded or sink.bounded_keys:
        return operators
    needed = woven.graph.needed_by(sink.input)
    for name in [*woven.graph.order]:
        if name in needed:
            problem = next((one.problem for one in stateful_operators(woven.rows[name]) if one.problem), "")
            if problem:
                hint = f". If there are only few keys, set sinks.{sink.name}.bounded_keys = true"
                where = "function" if pipeline.transforms[name].function else "sql"
                raise pipeline.error(("transforms", name, where), f"{problem}{hint}")
    raise pipeline.error(sink.key, unbounded[0].problem)


def _check_mode(
    pipeline: Pipeline, sink: Sink, frame: "DataFrame", operators: list[StatefulOperator]
) -> None:
    mode = output_mode(sink, operators)
    if mode == "append" and any(one.kind == "Aggregate" and one.problem for one in operators):
        problem = (
            'groups without a watermark are never finished, so they cannot be appended: use mode = "update" (topics '
            'and JDBC) or mode = "upsert"'
        )
        raise pipeline.error((*sink.key, "mode"), problem)
    if mode == "update" and any(one.kind == "Join" for one in operators):
        problem = "Spark joins streams in append mode only: leave out mode"
        raise pipeline.error((*sink.key, "mode"), problem)


def _warn_of_unused(pipeline: Pipeline, woven: Woven, report: Report) -> None:
    used: set[str] = set()
    for sink in pipeline.sinks.values():
        used |= woven.graph.needed_by(sink.input)
    for name in (*pipeline.sources, *pipeline.transforms):
        if name not in used:
            report.warnings.append(f"no sink uses '{name}'")


def _check_outside(pipeline: Pipeline) -> list[PipelineError]:
    """Topics and the checkpoint. An unreachable cluster is reported once."""
    problems: list[PipelineError] = []
    for work in _outside_checks(pipeline):
        before = len(problems)
        _collect(problems, work)
        if len(problems) > before and isinstance(problems[-1], topics.BrokersAway):
            break
    return problems


def _outside_checks(pipeline: Pipeline) -> list[Callable[[], object]]:
    checkpoint = Checkpoint(pipeline)
    checks: list[Callable[[], object]] = [checkpoint.manifest]
    sinks = sink_kinds(pipeline).values()
    checks += [partial(check_output, checkpoint, sink) for sink in sinks]
    checks += [source.check_outside for source in source_kinds(pipeline).values()]
    checks += [sink.check_declared for sink in sinks]
    checks.append(partial(check_letters_topic, pipeline))
    return checks


def check_output(checkpoint: Checkpoint, sink: SinkKind) -> None:
    """Batches that the sink knows as written would make Spark skip the first batches of a new checkpoint."""
    if checkpoint.progress("sink", sink.sink.name) is None and sink.committed(0):
        output = ", ".join(map(str, sink.leftovers()))
        problem = (
            f"{output} has files of a query whose checkpoint is not in {checkpoint.directory}; Spark would treat new "
            "batches as already written. Name another path, or empty that directory"
        )
        raise checkpoint.pipeline.error((*sink.sink.key, "path"), problem)


def check_letters_topic(pipeline: Pipeline, *, create: bool = False) -> None:
    letters = pipeline.dead_letters
    if letters is not None and letters.topic is not None:
        topics.check_declaration(pipeline, ("dead_letters",), letters.topic, create=create)
