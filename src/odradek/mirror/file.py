"""The file of a mirror: two clusters, the topics, the groups. All its problems are reported together.

    [source]
    name = "west"
    kafka = { "bootstrap.servers" = "west-1:9092" }

    [target]
    name = "east"
    kafka = { "bootstrap.servers" = "east-1:9092" }

    [topics]
    names = ["orders"]

It is read like a pipeline's: `${NAME}` from the environment, `[secrets]` from files.
"""

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.client.properties import KNOWN, MAPPED, InvalidProperty, Properties, parse_properties
from odradek.mirror.names import CLUSTER_NAME, Choice, Direction
from odradek.pipeline.file import document as documents
from odradek.pipeline.file.document import Document, Key
from odradek.pipeline.file.errors import PipelineError, PipelineErrors
from odradek.pipeline.file.tables import Table
from odradek.pipeline.file.variables import SECRETS, substitute

DEFAULTS = {
    "fetch.min.bytes": str(1 << 20),
    "fetch.max.wait.ms": "500",
    "max.partition.fetch.bytes": str(2 << 20),
    "transaction.timeout.ms": "60000",
    "isolation.level": "read_committed",
}
WITHOUT_EFFECT = {
    "isolation.level": "a mirror always reads committed records",
    "compression.type": "batches keep the compression that they have",
    "batch.size": "batches stay as they are",
}
EXAMPLES = {"source": "west", "target": "east"}
BROKER_DEFAULT = -1
NOWHERE = 'name its brokers: kafka = { "bootstrap.servers" = "host:9092" }'


@dataclass(frozen=True)
class ClusterSettings:
    """`given` are the settings as written, for those who pass them on."""

    name: str
    given: Mapping[str, str]
    properties: Properties


@dataclass(frozen=True)
class MirrorSettings:
    source: ClusterSettings
    target: ClusterSettings
    topics: Choice
    groups: Choice
    replication_factor: int = BROKER_DEFAULT
    own_settings: tuple[str, ...] = ()

    @property
    def direction(self) -> Direction:
        return Direction(self.source.name, self.target.name)


def load(path: Path, environ: Mapping[str, str] | None = None) -> MirrorSettings:
    """Read a file; `PipelineErrors` has all its problems."""
    raw = documents.read(path, "docs/MIRROR.md has one to start from")
    return _Reader(substitute(raw, os.environ if environ is None else environ)).settings()


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[PipelineError] = []

    def settings(self) -> MirrorSettings:
        top = self._table((), self.document.values)
        top.has(SECRETS)
        source, target = (self._cluster(name, top.mapping(name)) for name in ("source", "target"))
        topics = self._table(("topics",), top.mapping("topics"))
        groups = self._table(("groups",), top.mapping("groups"))
        found = MirrorSettings(
            source,
            target,
            self._choice(topics),
            self._choice(groups),
            topics.number("replication_factor") or BROKER_DEFAULT,
            topics.texts("own_settings"),
        )
        topics.finish()
        groups.finish()
        top.finish()
        self._check(found, topics)
        if self.problems:
            raise PipelineErrors(self.problems)
        return found

    def _table(self, key: Key, values: Any) -> Table:
        return Table(self.document, key, values, self.problems)

    def _cluster(self, kind: str, values: Any) -> ClusterSettings:
        table = self._table((kind,), values)
        name = table.text("name")
        if not CLUSTER_NAME.fullmatch(name):
            table.complain(
                "name" if name else "",
                f"give the cluster a name of letters, digits, '_' and '-': name = \"{EXAMPLES[kind]}\"",
            )
        given = table.settings("kafka")
        table.finish()
        return ClusterSettings(name, given, self._properties(table, given))

    def _properties(self, table: Table, given: Mapping[str, str]) -> Properties:
        for name in given:
            self._check_setting(table, name)
        try:
            if "bootstrap.servers" not in given:
                raise InvalidProperty("bootstrap.servers", NOWHERE)
            return parse_properties(DEFAULTS | dict(given))
        except InvalidProperty as error:
            table.complain("kafka", str(error))
            return parse_properties({"bootstrap.servers": "localhost:9092"})

    def _check_setting(self, table: Table, name: str) -> None:
        if name in WITHOUT_EFFECT:
            table.complain("kafka", f"{name}: leave it out: {WITHOUT_EFFECT[name]}")
        elif name not in KNOWN:
            close = difflib.get_close_matches(name, sorted(MAPPED), n=1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            table.complain("kafka", f"{name}: there is no such setting of a client{hint}")

    def _choice(self, table: Table) -> Choice:
        found = {name: table.text(name) for name in ("pattern", "exclude")}
        for name, pattern in found.items():
            try:
                re.compile(pattern)
            except re.error as error:
                table.complain(name, f"this is not a regular expression: {error}")
                found[name] = ""
        return Choice(table.texts("names"), found["pattern"], found["exclude"])

    def _check(self, found: MirrorSettings, topics: Table) -> None:
        if not found.topics.names and not found.topics.pattern:
            topics.complain("", 'say which topics to mirror: names = ["orders"], or pattern = "shop.*"')
        if found.source.name == found.target.name != "":
            self.problems.append(
                self.document.error(("target", "name"), "the two clusters must have different names")
            )
        for name in found.topics.names:
            if found.direction.returns(name):
                topics.complain(
                    "names",
                    f"{name} has come from {found.target.name}, as its name says: it is never copied back there",
                )
