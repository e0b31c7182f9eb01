"""Which sinks share a query, so that their source is read and decoded once.

A query is one fate: if it fails or waits, everything that it writes does. So only sinks share one that fail together
anyway: sinks for topics of one cluster, which read one source, row by row. The dead letters of what they read go with
them, if they are written to a topic of that cluster. Files, databases, lake tables and the console keep their own
queries, because they may be away while the topics are not; so do sinks with state, which Spark keeps by query, and
sinks that read a function of DataFrames, which is called with a stream once and must not be called again for each
batch. A function of Arrow batches is called by workers, and does not know whether they read a stream.

Who shares is decided when a group runs for the first time, and is then part of the checkpoint: offsets of two queries
cannot be merged. A sink with a checkpoint of its own keeps it, and a sink that is added later gets its own, because it
starts where its source says and not where the group is. A member that leaves the group (`own_query = true`)
continues from the offsets that the group has committed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.pipeline.check.state import streams_read
from odradek.pipeline.check.weaving import Graph, Woven
from odradek.pipeline.checkpoint import Checkpoint, Group
from odradek.pipeline.file.definition import BOOTSTRAP, DEAD_LETTER, Pipeline
from odradek.pipeline.kinds.registry import sink_kind, sink_kinds, source_kinds
from odradek.pipeline.rows.plans import is_row_by_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class Candidates:
    """The candidates by name: the source whose reading a sink, or the rejects of a stage, may share with others."""

    sinks: dict[str, str] = field(default_factory=dict)
    rejects: dict[str, str] = field(default_factory=dict)


def candidates(pipeline: Pipeline, woven: Woven) -> Candidates:
    """`woven` are streams; stages that could not be woven are left out."""
    found = Candidates()
    kinds = sink_kinds(pipeline)
    for name, sink in pipeline.sinks.items():
        if sink.own_query or kinds[name].cluster is None or sink.input not in woven.rows:
            continue
        if source := _shared_source(pipeline, sink.input, woven.graph, woven.rows[sink.input]):
            found.sinks[name] = source
    for name, frame in (woven.decoded | woven.judged).items():
        if source := _shared_source(pipeline, name, woven.graph, frame):
            found.rejects[name] = source
    return found


def _shared_source(pipeline: Pipeline, stage: str, stages: Graph, rows: "DataFrame") -> str | None:
    """The topic source that a stage reads row by row, alone and once."""
    reads = streams_read(rows)
    if len(reads) != 1 or source_kinds(pipeline)[reads[0]].subscription is None:
        return None
    needed = stages.needed_by(stage)
    transforms = (transform for one, transform in pipeline.transforms.items() if one in needed)
    if any(transform.function and not transform.returns for transform in transforms):
        return None
    return reads[0] if is_row_by_row(rows) else None


@dataclass
class Shape:
    """The queries of a pipeline: groups that share one, and by name the sinks and rejects that have their own."""

    groups: list[Group] = field(default_factory=list)
    sinks: list[str] = field(default_factory=list)
    rejects: list[str] = field(default_factory=list)


def rejecting_stages(pipeline: Pipeline, needed: Iterable[str]) -> list[str]:
    """Return the stages whose rejected rows become dead letters."""
    if pipeline.dead_letters is None:
        return []
    wanted = set(needed)
    sources = [name for name, kind in source_kinds(pipeline).items() if kind.can_reject]
    transforms = [
        name for name, one in pipeline.transforms.items() if DEAD_LETTER in pipeline.actions_of(one).values()
    ]
    return [name for name in (*sources, *transforms) if name in wanted]


def shape(pipeline: Pipeline, stages: Graph, may_share: Candidates, checkpoint: Checkpoint) -> Shape:
    needed: set[str] = set()
    for sink in pipeline.sinks.values():
        needed |= stages.needed_by(sink.input)
    rejecting = rejecting_stages(pipeline, needed)
    deciding = _Deciding(pipeline, may_share, checkpoint, rejecting)
    found = Shape([*deciding.continued(), *deciding.begun()])
    found.sinks = [name for name in pipeline.sinks if name not in deciding.shared]
    found.rejects = [name for name in rejecting if name not in deciding.rejected]
    return found


@dataclass
class _Deciding:
    pipeline: Pipeline
    may_share: Candidates
    checkpoint: Checkpoint
    rejecting: list[str]
    shared: set[str] = field(default_factory=set)
    rejected: set[str] = field(default_factory=set)
    places: set[tuple[str, str]] = field(default_factory=set)  # source and cluster of groups that have begun
    names: set[str] = field(default_factory=set)

    def continued(self) -> Iterator[Group]:
        """Groups that have run before, with the members that may stay."""
        for group in self.checkpoint.groups():
            if self.checkpoint.progress("group", group.name) is None:
                continue
            staying = [
                name
                for name in group.sinks
                if self.may_share.sinks.get(name) == group.source and not self._has_own("sink", name)
            ]
            cluster = self._cluster(staying[0]) if staying else self._letters_cluster
            sinks = [name for name in staying if self._cluster(name) == cluster]
            rejects = [one for one in self._rejects(group.source, cluster) if one in group.rejects]
            if sinks or rejects:
                yield self._add(group.name, (group.source, cluster), sinks, rejects)

    def begun(self) -> Iterator[Group]:
        """New groups, of sinks and rejects that have no checkpoint yet."""
        found: dict[tuple[str, str], list[str]] = {}
        for name, source in self.may_share.sinks.items():
            place = (source, self._cluster(name))
            if place not in self.places and not self._has_run("sink", name):
                found.setdefault(place, []).append(name)
        for name in self.rejecting:  # a source that no sink may share: its rejects share among themselves
            place = (self.may_share.rejects.get(name, ""), self._letters_cluster)
            if place not in self.places:
                found.setdefault(place, [])
        for place, sinks in found.items():
            rejects = [one for one in self._rejects(*place) if not self._has_run("rejects", one)]
            if len(sinks) + len(rejects) > 1:
                yield self._add(self._free_name(place[0]), place, sinks, rejects)

    def _rejects(self, source: str, cluster: str) -> list[str]:
        """Stages that read the source, whose rejected rows go to the cluster and are written by no other query."""
        if not cluster or self._letters_cluster != cluster:
            return []
        return [
            name
            for name in self.rejecting
            if self.may_share.rejects.get(name) == source
            and name not in self.rejected
            and not self._has_own("rejects", name)
        ]

    def _add(self, name: str, place: tuple[str, str], sinks: list[str], rejects: list[str]) -> Group:
        self.names.add(name)
        self.shared |= set(sinks)
        self.rejected |= set(rejects)
        self.places.add(place)
        return Group(name, place[0], tuple(sinks), tuple(rejects))

    @property
    def _letters_cluster(self) -> str:
        """Empty if dead letters do not go to a topic."""
        letters = self.pipeline.dead_letters
        return "" if letters is None or letters.topic is None else letters.topic.kafka[BOOTSTRAP]

    def _cluster(self, sink: str) -> str:
        return sink_kind(self.pipeline, self.pipeline.sinks[sink]).cluster or ""

    def _has_own(self, kind: str, name: str) -> bool:
        return self.checkpoint.progress(kind, name) is not None

    def _has_run(self, kind: str, name: str) -> bool:
        """True if it has offsets, its own or those of a group: it continues from there, and joins no new group."""
        return self.checkpoint.progress_of(kind, name) is not None

    def _free_name(self, source: str) -> str:
        """A group is called like its source; one whose name is taken gets a number."""
        name, number = source, 2
        while name in self.names or self.checkpoint.query("group", name).exists():
            name, number = f"{source}-{number}", number + 1
        return name


def leave(pipeline: Pipeline, stages: Graph, new: Shape, checkpoint: Checkpoint) -> None:
    """Give members that leave their groups a checkpoint of their own, with the offsets that the group has committed."""
    for group in checkpoint.groups():
        now = next((one for one in new.groups if one.name == group.name), Group(group.name, group.source))
        for name in group.sinks:
            alone = name in new.sinks and group.source in stages.needed_by(pipeline.sinks[name].input)
            if alone and name not in now.sinks:
                checkpoint.separate(group.name, "sink", name)
        for name in group.rejects:
            if name in new.rejects:
                checkpoint.separate(group.name, "rejects", name)


def described(new: Shape) -> dict[str, Any]:
    """Return what the manifest keeps."""
    return {
        one.name: {"source": one.source, "sinks": [*one.sinks], "rejects": [*one.rejects]}
        for one in new.groups
    }


def shape_lines(pipeline: Pipeline, found: Shape) -> list[str]:
    """Tell people what shares a query, and what has its own."""
    lines = []
    for group in found.groups:
        members = [*group.sinks, *(f"rejects of {name}" for name in group.rejects)]
        lines.append(f"{', '.join(members)} share a query, which reads {group.source} once")
    kinds = sink_kinds(pipeline)
    lines += [f"{name} has its own query, to {kinds[name].destination}" for name in found.sinks]
    return lines + [f"rejects of {name} have their own query" for name in found.rejects]
