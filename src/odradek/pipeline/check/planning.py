"""The consequences of an edit of the file for a pipeline that has run before: it keeps its state, or needs a reset.

A run stores what it ran (`describe`); a plan compares that with the current file. State survives as
long as the stateful operators of Spark's plan stay the same; projections and filters may change freely.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.pipeline.check.checking import Report
from odradek.pipeline.check.weaving import Graph, graph
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import Pipeline, Transform, fingerprint
from odradek.pipeline.kinds.registry import sink_kind, source_kind
from odradek.pipeline.kinds.source import SourceKind
from odradek.pipeline.rows.transforms import sql_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEW, UNCHANGED, KEEPS, RESET, REMOVED = "new", "unchanged", "keeps its state", "needs a reset", "removed"


@dataclass(frozen=True)
class Change:
    sink: str
    verdict: str
    reasons: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {"sink": self.sink, "verdict": self.verdict, "reasons": list(self.reasons)}


def describe(spark: "SparkSession", report: Report) -> dict[str, Any]:
    """Return what the manifest keeps about a pipeline, sink by sink."""
    pipeline = report.pipeline
    stages = graph(spark.newSession(), pipeline)
    return {
        "version": pipeline.version,
        "file": str(pipeline.document.path.absolute()),
        "sinks": {name: _describe_sink(report, name, stages) for name in pipeline.sinks},
    }


def _describe_sink(report: Report, name: str, stages: Graph) -> dict[str, Any]:
    pipeline, sink = report.pipeline, report.pipeline.sinks[name]
    needed = stages.needed_by(sink.input)
    transforms = {
        one: fingerprint([_text(pipeline, one), *_required(pipeline.transforms[one])])
        for one in pipeline.transforms
        if one in needed
    }
    return {
        "to": sink_kind(pipeline, sink).destination,
        "mode": sink.mode,
        "from": sink.input,
        "sources": {
            one: _describe_source(source_kind(pipeline, source))
            for one, source in pipeline.sources.items()
            if one in needed
        },
        "transforms": transforms,
        "state": report.state.get(name, []),
        "state_types": report.state_types.get(name, []),
    }


def _required(transform: Transform) -> list[Any]:
    return [transform.require, transform.actions] if transform.actions else [transform.require]


def _text(pipeline: Pipeline, name: str) -> str:
    transform = pipeline.transforms[name]
    if transform.returns:
        return f"{transform.function} returns {transform.returns}"
    return transform.function or sql_of(pipeline, transform)


def _describe_source(kind: SourceKind) -> dict[str, Any]:
    source = kind.source
    watermark = source.watermark and [source.watermark.column, source.watermark.delay]
    rows = fingerprint([source.format, source.schema, source.schema_file, source.framing, source.tombstones])
    return {"kind": type(source.origin).__name__, "reads": kind.reads, "rows": rows, "watermark": watermark}


def cure(pipeline: Pipeline, sink: str | None) -> str:
    """Say what to do about state that does not fit. The query of rejected rows is reset with everything else."""
    chosen = "" if sink is None else f" --sink {sink}"
    start_over = (
        f"Start over with 'odradek pipeline reset {pipeline.document.path}{chosen}', or undo the edit"
    )
    if sink is None or Checkpoint(pipeline).group_of("sink", sink) is None or pipeline.sinks[sink].own_query:
        return start_over
    return f"Set own_query = true in [sinks.{sink}], because it shares a query with others. {start_over}"


def plan(spark: "SparkSession", report: Report) -> list[Change]:
    checkpoint = Checkpoint(report.pipeline)
    manifest = checkpoint.manifest() or {"sinks": {}}
    old, new = manifest["sinks"], describe(spark, report)["sinks"]
    changes = []
    for name in new:
        if name not in old or checkpoint.progress_of("sink", name) is None:
            changes.append(Change(name, NEW, ("it starts where its sources say",)))
        else:
            changes.append(compare(name, old[name], new[name]))
    changes += [
        Change(name, REMOVED, ("its checkpoint stays until a reset",)) for name in old if name not in new
    ]
    return changes


def compare(name: str, old: dict[str, Any], new: dict[str, Any]) -> Change:
    fatal, harmless = _state_changes(old, new)
    for source in sorted(old["sources"].keys() | new["sources"].keys()):
        worse, better = _source_changes(source, old["sources"].get(source), new["sources"].get(source))
        fatal += worse
        harmless += better
    if old["to"] != new["to"]:
        harmless.append(f"rows go to {new['to']} from now on; what is in {old['to']} stays there")
    if old["transforms"] != new["transforms"] or old["from"] != new["from"]:
        edited = sorted(
            one
            for one in old["transforms"].keys() | new["transforms"].keys()
            if old["transforms"].get(one) != new["transforms"].get(one)
        )
        harmless.append(f"transforms changed: {', '.join(edited) or new['from']}; this affects new rows only")
    if fatal:
        return Change(name, RESET, (*fatal, *harmless))
    return Change(name, KEEPS, tuple(harmless)) if harmless else Change(name, UNCHANGED)


def _state_changes(old: dict[str, Any], new: dict[str, Any]) -> tuple[list[str], list[str]]:
    if old["state"] != new["state"]:
        gone = [one for one in old["state"] if one not in new["state"]]
        came = [one for one in new["state"] if one not in old["state"]]
        if not gone and not came:
            return [f"stateful operators changed their order: {', '.join(new['state'])}"], []
        parts = [f"{_shortened(one)} is gone" for one in gone] + [f"{_shortened(one)} is new" for one in came]
        return [f"state cannot be kept: {'; '.join(parts)}"], []
    before, after = old.get("state_types"), new.get("state_types")
    if before is not None and after is not None and before != after:  # older manifests do not know theirs
        return [f"state cannot be kept: its types change from {_names(before)} to {_names(after)}"], []
    if old["mode"] != new["mode"]:
        reason = f"the mode changed from {old['mode']} to {new['mode']}"
        return ([reason], []) if new["state"] else ([], [reason])
    return [], []


def _source_changes(name: str, old: Any, new: Any) -> tuple[list[str], list[str]]:
    if old is None:
        return [], [f"source {name} is added, and starts at its 'start'"]
    if new is None:
        return [], [f"source {name} is no longer read"]
    if old["kind"] != new["kind"]:
        return [f"source {name} has another kind, so its offsets no longer apply"], []
    fatal: list[str] = []
    harmless: list[str] = []
    if old["reads"] != new["reads"]:
        if old["kind"] == "TopicSource":
            added_only = isinstance(old["reads"], list) and set(old["reads"]) < set(new["reads"])
            text = f"source {name} reads {_names(new['reads'])} instead of {_names(old['reads'])}"
            (harmless if added_only else fatal).append(text)
        else:
            harmless.append(f"source {name} reads {_names(new['reads'])} from now on")
    if old["rows"] != new["rows"]:
        harmless.append(f"source {name} decodes new records in another way")
    if old["watermark"] != new["watermark"]:
        harmless.append(f"the watermark of {name} changes with the next batch")
    return fatal, harmless


def _names(reads: Any) -> str:
    return ", ".join(reads) if isinstance(reads, list) else str(reads)


def _shortened(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:99]}…"
