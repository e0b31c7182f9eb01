"""Where a pipeline stands, told from its checkpoint and its cluster, whether it runs or not. Needs no Spark."""

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.definition import Pipeline, TopicSource
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.progress import waiting_in
from odradek.pipeline.topics import BrokersAway, Offsets, topics_of


@dataclass
class QueryStatus:
    name: str
    kind: str
    batch: int | None
    finished_at: str | None
    unfinished: bool
    group: str
    lag: dict[str, int] = field(default_factory=dict)
    skipped: int = 0


@dataclass
class Status:
    pipeline: str
    state: str
    process: int | None
    checkpoint: str
    version: str | None
    queries: list[QueryStatus] = field(default_factory=list)
    warning: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def status(pipeline: Pipeline) -> Status:
    checkpoint = Checkpoint(pipeline)
    manifest = checkpoint.manifest()
    process = checkpoint.runner()
    paused = checkpoint.is_paused
    state = "paused" if paused else "running" if process else "stopped" if manifest else "never run"
    found = Status(pipeline.name, state, process, str(checkpoint.directory), (manifest or {}).get("version"))
    latest = _latest(pipeline, found)
    for kind, directory in (("sink", "sinks"), ("rejects", "rejects")):
        parent = checkpoint.directory / directory
        for path in sorted(parent.iterdir()) if parent.is_dir() else []:
            found.queries.append(_query_status(pipeline, checkpoint, kind, path.name, latest))
    return found


def _latest(pipeline: Pipeline, found: Status) -> dict[str, Offsets]:
    """The ends of the topics, by source."""
    latest: dict[str, Offsets] = {}
    try:
        for source in pipeline.sources.values():
            if isinstance(source.origin, TopicSource):
                with topics_of(pipeline, source.origin.kafka, source.key) as topics:
                    latest[source.name] = topics.latest(topics.subscribed(source.origin))
    except BrokersAway as error:
        found.warning = f"lag is not known: {error.problem}"
    except PipelineError as error:
        found.warning = f"lag is not known: {error.text()}"
    except Exception as error:  # a topic that is gone
        found.warning = f"lag is not known: {error}"
    return latest


def _query_status(
    pipeline: Pipeline, checkpoint: Checkpoint, kind: str, name: str, latest: dict[str, Offsets]
) -> QueryStatus:
    progress = checkpoint.progress(kind, name)
    suffix = "" if kind == "sink" else "-rejects"
    group = f"odradek-pipeline-{pipeline.name}-{name}{suffix}"
    if progress is None:
        return QueryStatus(name, kind, None, None, False, group)
    finished = None
    if progress.committed_at_s is not None:
        finished = datetime.fromtimestamp(progress.committed_at_s, UTC).isoformat(timespec="seconds")
    lag: dict[str, int] = {}
    for source, ends in (progress.committed or {}).items():
        known = latest.get(source) or (next(iter(latest.values())) if len(latest) == 1 else {})
        if isinstance(ends, dict):
            lag |= waiting_in(ends, known)
    skipped = sum(
        len(offsets)
        for topics in checkpoint.skipped(kind, name).values()
        for partitions in topics.values()
        for offsets in partitions.values()
    )
    unfinished = progress.finished < progress.batch
    return QueryStatus(name, kind, progress.finished, finished, unfinished, group, lag, skipped)
