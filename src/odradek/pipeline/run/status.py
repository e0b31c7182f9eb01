"""The progress of a pipeline, whether it runs or not. Needs no Spark.

The checkpoint knows best. If it is not on this machine, because the pipeline runs elsewhere or its directory is
gone, the groups show the progress: every query commits the offsets of its finished batches to one.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from odradek.client.cluster import borrow_cluster
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import TimedOut
from odradek.errors import KafkaError
from odradek.ledger.record import Entry, UnreadableRecord
from odradek.ledger.topic import Ledger
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import BOOTSTRAP, Pipeline
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.kinds.registry import sink_kinds, source_kinds
from odradek.pipeline.kinds.topics import BrokersAway, Offsets, client_settings, group_of, topics_of
from odradek.pipeline.run.progress import waiting_in


@dataclass
class QueryStatus:
    name: str
    kind: str
    group: str
    batch: int | None = None
    finished_at: str | None = None
    unfinished: bool = False
    lag: dict[str, int] = field(default_factory=dict)
    lag_from: str | None = None  # "checkpoint" or "group"
    skipped: int = 0
    late_at_least: int = 0
    unmet: list[dict[str, Any]] = field(
        default_factory=list
    )  # requirements that rows did not meet, and how many
    shares_with: list[str] = field(default_factory=list)  # other sinks and rejects of its query
    ledger: dict[str, Any] | None = None  # the last batch that was written exactly once, as the ledger has it

    @property
    def label(self) -> str:
        return self.name if self.kind == "sink" else f"rejects of {self.name}"


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


@dataclass
class _Cluster:
    """The brokers' part of a status: where topics end, by source, and the committed offsets of groups."""

    latest: dict[str, Offsets] = field(default_factory=dict)
    committed: dict[str, Offsets] = field(default_factory=dict)


def status(pipeline: Pipeline) -> Status:
    checkpoint = Checkpoint(pipeline)
    manifest = checkpoint.manifest()
    process = checkpoint.runner()
    found = Status(pipeline.name, "", process, str(checkpoint.directory), (manifest or {}).get("version"))
    found.queries = _queries(pipeline, checkpoint)
    cluster = _ask_cluster(pipeline, found)
    _read_ledgers(pipeline, checkpoint, found)
    for query in found.queries:
        _read_checkpoint(checkpoint, query, cluster)
        _read_group(query, cluster)
    if manifest is None:
        found.queries = [query for query in found.queries if query.lag_from]
    if checkpoint.is_paused:
        found.state = "paused"
    elif process:
        found.state = "running"
    elif manifest:
        found.state = "stopped"
    else:
        found.state = "not run on this machine" if found.queries else "never run"
    return found


def _queries(pipeline: Pipeline, checkpoint: Checkpoint) -> list[QueryStatus]:
    """Return the queries of the file, and those that an earlier version of it has left in the checkpoint."""
    groups = checkpoint.groups()
    sinks = _directories(checkpoint, "sinks") | {name for group in groups for name in group.sinks}
    rejects = _directories(checkpoint, "rejects") | {name for group in groups for name in group.rejects}
    found = [QueryStatus(name, "sink", group_of(pipeline, name)) for name in sorted(sinks or pipeline.sinks)]
    found += [QueryStatus(name, "rejects", group_of(pipeline, f"{name}-rejects")) for name in sorted(rejects)]
    if (
        checkpoint.manifest() is None
    ):  # it is elsewhere, if anywhere: only the groups know what shares a query
        found += [
            QueryStatus(f"{name}, shared", "sink", group_of(pipeline, f"{name}-shared"))
            for name in pipeline.sources
        ]
    for query in found:
        group = checkpoint.group_of(query.kind, query.name)
        if group is not None:
            query.group = group_of(pipeline, f"{group.name}-shared")
            members = [*group.sinks, *(f"rejects of {name}" for name in group.rejects)]
            query.shares_with = [name for name in members if name != query.label]
    return found


def _directories(checkpoint: Checkpoint, part: str) -> set[str]:
    parent = checkpoint.directory / part
    return {path.name for path in parent.iterdir() if path.name[0] != "."} if parent.is_dir() else set()


def _ask_cluster(pipeline: Pipeline, found: Status) -> _Cluster:
    cluster = _Cluster()
    try:
        for name, kind in source_kinds(pipeline).items():
            if (origin := kind.subscription) is not None:
                with topics_of(pipeline, origin.kafka, kind.source.key) as topics:
                    cluster.latest[name] = topics.latest(topics.subscribed(origin))
                    for query in found.queries:
                        committed = cluster.committed.setdefault(query.group, {})
                        for topic, offsets in topics.committed(query.group).items():
                            committed.setdefault(topic, {}).update(offsets)
    except BrokersAway as error:
        found.warning = f"lag is not known: {error.problem}"
    except PipelineError as error:
        found.warning = f"lag is not known: {error.text()}"
    except Exception as error:  # a deleted topic
        found.warning = f"lag is not known: {error}"
    return cluster


def _read_ledgers(pipeline: Pipeline, checkpoint: Checkpoint, found: Status) -> None:
    """Read the entries by the id that Spark has given a query, which the checkpoint knows."""
    try:
        entries: dict[str, Entry] = {}
        for kafka in _clusters_with_ledger(pipeline):
            with borrow_cluster(client_settings(kafka)) as cluster:
                entries |= Ledger(cluster).entries()
    except (TimedOut, ConnectionLost, KafkaError, UnreadableRecord) as error:
        found.warning = found.warning or f"the ledger cannot be read: {error}"
        return
    for query in found.queries:
        group = checkpoint.group_of(query.kind, query.name)
        kind, name = (query.kind, query.name) if group is None else ("group", group.name)
        try:
            entry = entries.get(checkpoint.query_id(kind, name))
        except OSError:  # it has not begun
            continue
        query.ledger = None if entry is None else asdict(entry)


def _clusters_with_ledger(pipeline: Pipeline) -> list[Mapping[str, str]]:
    found = [kind.ledger_settings for kind in sink_kinds(pipeline).values()]
    if pipeline.dead_letters is not None and (topic := pipeline.dead_letters.topic) is not None:
        found.append(topic.kafka if topic.exactly_once else None)
    return list({one[BOOTSTRAP]: one for one in found if one is not None}.values())


def _read_checkpoint(checkpoint: Checkpoint, query: QueryStatus, cluster: _Cluster) -> None:
    progress = checkpoint.progress_of(query.kind, query.name)
    if progress is None:
        return
    query.batch, query.unfinished = progress.finished, progress.finished < progress.batch
    if progress.committed_at_s is not None:
        query.finished_at = datetime.fromtimestamp(progress.committed_at_s, UTC).isoformat(timespec="seconds")
    latest = cluster.latest
    for source, ends in (progress.committed or {}).items():
        known = latest.get(source, {})
        if source not in checkpoint.pipeline.sources and len(latest) == 1:
            known = next(iter(latest.values()))  # a query that does not name its only source
        if isinstance(ends, dict):
            query.lag |= waiting_in(ends, known)
            query.lag_from = "checkpoint"
    query.late_at_least = _late(checkpoint, query)
    query.unmet = checkpoint.unmet(query.kind, query.name)
    query.skipped = sum(
        len(offsets)
        for kind, name, skipped in checkpoint.all_skipped()
        if name == query.name and (kind == "sink") == (query.kind == "sink")
        for topics in skipped.values()
        for partitions in topics.values()
        for offsets in partitions.values()
    )


def _late(checkpoint: Checkpoint, query: QueryStatus) -> int:
    kinds = ("sink",) if query.kind == "sink" else ("decode", "transform")
    return sum(checkpoint.late(kind, query.name) for kind in kinds)


def _read_group(query: QueryStatus, cluster: _Cluster) -> None:
    committed = cluster.committed.get(query.group)
    if query.batch is not None or not committed:
        return
    for ends in cluster.latest.values():
        query.lag |= waiting_in(committed, {topic: end for topic, end in ends.items() if topic in committed})
    query.lag_from = "group"
