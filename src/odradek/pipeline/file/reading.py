"""Reads a TOML file into a `Pipeline`, and reports all problems of the file together.

A stage may read any other stage of the file, in whichever order they are listed.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.pipeline.file import document as documents
from odradek.pipeline.file.definition import (
    ACTIONS,
    BOOTSTRAP,
    DEAD_LETTER,
    PROFILES,
    DeadLetters,
    Pipeline,
    Sink,
    Source,
    Storage,
    TestCase,
    TopicDeclaration,
    Transform,
    fingerprint,
)
from odradek.pipeline.file.document import Document, Key
from odradek.pipeline.file.errors import PipelineError, PipelineErrors
from odradek.pipeline.file.sinks import AT_LEAST_ONCE, EXACTLY_ONCE, read_declaration, read_sink
from odradek.pipeline.file.sources import FUNCTION, read_duration, read_source, read_watermark
from odradek.pipeline.file.storage import read_storage
from odradek.pipeline.file.tables import Table
from odradek.pipeline.file.variables import SECRETS, substitute

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
PIPELINE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
DEFAULT_BOOTSTRAP = "localhost:9092"


def load(path: Path, environ: Mapping[str, str] | None = None) -> Pipeline:
    """Read a file; `PipelineErrors` has all its problems."""
    raw = documents.read(path)
    document = substitute(raw, os.environ if environ is None else environ)
    return _Reader(document).pipeline()


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[PipelineError] = []
        self.kafka: dict[str, str] = {}
        self.deliveries: set[str] = set()  # of all sinks that are topics

    def pipeline(self) -> Pipeline:
        top = self._table((), self.document.values)
        top.has(SECRETS)
        self.kafka = {BOOTSTRAP: DEFAULT_BOOTSTRAP} | top.settings("kafka")
        about = self._table(("pipeline",), top.mapping("pipeline"))
        name = about.text("name", self.document.path.stem)
        if not PIPELINE_NAME.fullmatch(name):
            about.complain("name", f"'{name}' is not a name: use letters, digits, '.', '_' and '-'")
        pipeline = Pipeline(
            name=name,
            version=about.text("version", fingerprint(self.document.text)),
            document=self.document,
            checkpoint=about.text("checkpoint", "checkpoints"),
            trigger=read_duration(about, "trigger"),
            profile=about.choice("profile", "standard", PROFILES),
            spark=about.settings("spark"),
            python_path=about.texts("python_path"),
            sources=self._named(top, "sources", self._source),
            transforms=self._named(top, "transforms", self._transform),
            sinks=self._named(top, "sinks", self._sink),
            dead_letters=self._dead_letters(top),
            tests=self._tests(top),
            storage=self._storage(top),
        )
        about.finish()
        top.finish()
        self._check_names(pipeline)
        self._check_actions(pipeline)
        if self.problems:
            raise PipelineErrors(self.problems)
        return pipeline

    def _table(self, key: Key, values: Any) -> Table:
        return Table(self.document, key, values, self.problems)

    def _named(self, top: Table, kind: str, build: Any) -> dict[str, Any]:
        found = {}
        for name, values in top.mapping(kind).items():
            table = self._table((kind, name), values)
            if not NAME.fullmatch(name):
                table.complain("", f"'{name}' is not a name: use letters, digits and '_'; it is used in SQL")
            found[name] = build(name, table)
            table.finish()
        return found

    def _source(self, name: str, table: Table) -> Source:
        return read_source(name, table, self.kafka)

    def _sink(self, name: str, table: Table) -> Sink:
        if table.has("topic"):
            self.deliveries.add(str(table.values.get("delivery", EXACTLY_ONCE)))
        return read_sink(name, table, self.kafka)

    # Transforms

    def _transform(self, name: str, table: Table) -> Transform:
        given = [one for one in ("sql", "sql_file", "function") if table.has(one)]
        if len(given) != 1:
            table.complain("", "give exactly one of sql, sql_file and function")
        function = table.text("function")
        if function and not FUNCTION.fullmatch(function):
            table.complain("function", f"'{function}' is not of the form package.module:function")
        inputs = table.texts("inputs") if function else ()
        if function and not inputs:
            table.complain("", 'name what the function reads: inputs = ["orders"]')
        returns = table.text("returns") if function else ""
        if returns and len(inputs) > 1:
            table.complain("returns", "a function of Arrow batches has one input")
        require, actions = self._requirements(table)
        return Transform(
            name=name,
            key=table.key,
            sql=table.text("sql"),
            sql_file=table.text("sql_file"),
            function=function,
            inputs=inputs,
            returns=returns,
            require=require,
            actions=actions,
            watermark=read_watermark(table),
        )

    def _requirements(self, table: Table) -> tuple[dict[str, str], dict[str, str]]:
        """Conditions, and the actions that the file says, by reason."""
        require, actions = {}, {}
        for reason, given in table.mapping("require").items():
            if isinstance(given, dict):
                inner = self._table((*table.key, "require", reason), given)
                require[reason] = inner.text("condition")
                if inner.has("action"):
                    actions[reason] = inner.choice("action", DEAD_LETTER, ACTIONS)
                inner.finish()
            else:
                require[reason] = given
            if not isinstance(require[reason], str) or not require[reason]:
                table.complain("require", f"'{reason}' must be a condition in SQL")
        return require, actions

    # Dead letters and tests

    def _dead_letters(self, top: Table) -> DeadLetters | None:
        if not top.has("dead_letters"):
            return None
        table = self._table(("dead_letters",), top.values["dead_letters"])
        if table.has("topic") == table.has("path"):
            table.complain("", "give a topic or a path for them")
        letters = DeadLetters(
            topic=self._letters_topic(table) if table.has("topic") else None,
            path=table.text("path"),
            limit=table.fraction("limit", 0.5),
            limit_rows=table.number("limit_rows", 1000) or 1000,
        )
        table.finish()
        return letters

    def _letters_topic(self, table: Table) -> TopicDeclaration:
        """Dead letters must not make a transaction of batches whose sinks all do without."""
        declined = self.deliveries == {AT_LEAST_ONCE}
        return read_declaration(table, self.kafka, AT_LEAST_ONCE if declined else EXACTLY_ONCE)

    def _storage(self, top: Table) -> Storage:
        if not top.has("storage"):
            return Storage()
        table = self._table(("storage",), top.values["storage"])
        storage = read_storage(table)
        table.finish()
        return storage

    def _tests(self, top: Table) -> tuple[TestCase, ...]:
        if not top.has("tests"):
            return ()
        return read_tests(self.document, top.values["tests"], self.problems)

    def _check_actions(self, pipeline: Pipeline) -> None:
        if pipeline.dead_letters is not None:
            return
        for transform in pipeline.transforms.values():
            for reason, action in transform.actions.items():
                if action == DEAD_LETTER:
                    problem = (
                        "there is no place for dead letters: declare [dead_letters], or choose another action"
                    )
                    key = (*transform.key, "require", reason, "action")
                    self.problems.append(self.document.error(key, problem))

    # Names

    def _check_names(self, pipeline: Pipeline) -> None:
        kinds = (pipeline.sources, pipeline.transforms, pipeline.sinks)
        if not pipeline.sources:
            self.problems.append(self.document.error((), "there is no source: add a table [sources.NAME]"))
        if not pipeline.sinks:
            self.problems.append(self.document.error((), "there is no sink: add a table [sinks.NAME]"))
        for name in pipeline.transforms:
            if name in pipeline.sources:
                problem = f"there is also a source named '{name}'; SQL could not tell them apart"
                self.problems.append(self.document.error(("transforms", name), problem))
        readable = [*pipeline.sources, *pipeline.transforms]
        for key, name in [
            *((sink.key, sink.input) for sink in pipeline.sinks.values()),
            *((one.key, name) for one in pipeline.transforms.values() for name in one.inputs),
        ]:
            if name and name not in readable:
                problem = f"there is no source or transform '{name}'; there are {', '.join(readable)}"
                field_name = "from" if key[0] == "sinks" else "inputs"
                self.problems.append(self.document.error((*key, field_name), problem))
        lower = [name.lower() for kind in kinds[:2] for name in kind]
        for name in {name for name in lower if lower.count(name) > 1}:
            if not set(pipeline.sources) & set(pipeline.transforms):
                problem = f"two stages are named '{name}' except for upper and lower case, which SQL ignores"
                self.problems.append(self.document.error((), problem))


def read_tests(document: Document, values: Any, problems: list[PipelineError]) -> tuple[TestCase, ...]:
    if not isinstance(values, list):
        problems.append(document.error(("tests",), "tests are written as [[tests]]"))
        return ()
    found = []
    for number, one in enumerate(values):
        table = Table(document, ("tests", number), one, problems)
        given, expect = table.mapping("given"), table.mapping("expect")
        if not expect:
            table.complain("", "a test needs rows to expect: expect.NAME = [{…}]")
        found.append(TestCase(table.text("name", f"test {number + 1}"), table.key, given, expect))
        table.finish()
    return tuple(found)
