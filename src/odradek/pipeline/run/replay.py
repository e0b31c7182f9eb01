"""Sending dead letters again, after the cause of their failure was fixed. Needs no Spark.

Dead letters with a record go back to the topic they came from, or to another (`to`), with their key, value, headers
and time; records that came from files become a new file next to the others. The progress of a replay is kept next to
the checkpoint, so that the next one takes only new ones. Dead letters with a row, because its record was no longer
known, or with only a part of a large record, are not sent.
"""

import base64
import heapq
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from odradek.admin.dead_letters import WHOLE, Letter, facts_of, letter_of_record
from odradek.pipeline.checkpoint import Checkpoint, write_file
from odradek.pipeline.file.definition import Pipeline, TopicDeclaration
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.kinds.registry import source_kinds
from odradek.pipeline.kinds.topic_records import read_records, send_records
from odradek.pipeline.kinds.topics import topics_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEY = ("dead_letters", "topic")


@dataclass
class Replayed:
    sent: dict[str, int] = field(default_factory=dict)
    kept: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"sent": self.sent, "kept": self.kept, "reasons": self.reasons}


class Replay:
    def __init__(self, pipeline: Pipeline, *, to: str | None, everything: bool) -> None:
        if pipeline.dead_letters is None:
            raise PipelineError("this pipeline has no [dead_letters]", pipeline.document.path)
        self._pipeline, self._target, self._to = pipeline, pipeline.dead_letters, to
        self._place = Checkpoint(pipeline).directory / "replayed.json"
        self._done: dict[str, Any] = {} if everything else self._read_place()

    def _read_place(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._place.read_text())
            return found
        except FileNotFoundError:
            return {}

    def run(self, *, dry: bool) -> Replayed:
        letters, done = self.letters()
        result = Replayed()
        lines: dict[str, list[bytes]] = {}
        records = self._records(letters, result, lines)
        if dry:
            for _ in records:
                pass
        else:
            send_records(self._pipeline, self._kafka(), KEY, records)
        self._to_files(lines, result, dry)
        if not dry:
            write_file(self._place, json.dumps(done))
        return result

    def _records(
        self, letters: Iterator[Letter], result: Replayed, lines: dict[str, list[bytes]]
    ) -> Iterator[dict[str, Any]]:
        """Rows for topics; lines for files are collected by their source."""
        reasons: Counter[str] = Counter()
        sent: Counter[str] = Counter()
        for letter in letters:
            facts = letter.facts
            reasons[facts["reason"]] += 1
            if facts["content"] != WHOLE:
                result.kept += 1
            elif facts["topic"] is not None:
                topic = self._to or facts["topic"]
                sent[topic] += 1
                yield _row(letter, topic)
            elif facts["file"] is not None:
                lines.setdefault(facts["name"], []).append(letter.value or b"")
        result.reasons, result.sent = dict(reasons), dict(sent)

    def _kafka(self) -> Mapping[str, str]:
        for kind in source_kinds(self._pipeline).values():
            if kind.subscription is not None:
                return kind.subscription.kafka
        return {} if self._target.topic is None else self._target.topic.kafka

    def _to_files(self, lines: dict[str, list[bytes]], result: Replayed, dry: bool) -> None:
        """Lines of a file back into the directory they came from, in a new file."""
        for name, kind in source_kinds(self._pipeline).items():
            if kind.directory is None or name not in lines:
                continue
            result.sent[str(kind.directory)] = len(lines[name])
            if not dry:
                path = kind.directory / f"replayed-{time.time_ns()}.{kind.source.format}"
                temporary = path.with_name(f".{path.name}")
                temporary.write_bytes(b"\n".join(lines[name]) + b"\n")
                temporary.replace(path)

    # Reading

    def letters(self) -> tuple[Iterator[Letter], dict[str, Any]]:
        """This pipeline's that have not been replayed, and the progress to store once they are."""
        topic = self._target.topic
        found, done = self._from_files() if topic is None else self._from_topic(topic)
        return (one for one in found if one.facts["pipeline"] == self._pipeline.name), done

    def _from_topic(self, topic: TopicDeclaration) -> tuple[Iterator[Letter], dict[str, Any]]:
        with topics_of(self._pipeline, topic.kafka, KEY) as topics:
            ending, starting = topics.latest([topic.topic]), topics.earliest([topic.topic])
        begun = starting[topic.topic]
        for one, offset in self._done.get(topic.topic, {}).items():
            if one in begun:
                begun[one] = max(offset, begun[one])
        records = read_records(self._pipeline, topic.kafka, KEY, starting, ending)
        return (letter_of_record(place, record) for place, record in records), ending

    def _from_files(self) -> tuple[Iterator[Letter], dict[str, Any]]:
        directory = Path(self._pipeline.path(self._target.path))
        seen = set(self._done.get("files", []))
        files = sorted(
            str(path)
            for path in directory.rglob("*.json")
            if path.stat().st_size and not path.name.startswith(("_", "."))
        )
        return (one for path in files if path not in seen for one in letters_of_file(Path(path))), {
            "files": files
        }


def letters_of_file(path: Path) -> Iterator[Letter]:
    with path.open() as file:
        for line in file:
            row = json.loads(line)
            headers = [(one["key"], _bytes(one.get("value"))) for one in row.get("headers") or []]
            yield Letter(
                path.as_uri(), facts_of(row), _bytes(row.get("key")), _bytes(row.get("value")), headers
            )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _row(letter: Letter, topic: str) -> dict[str, Any]:
    time_ms = letter.facts["timestamp"]
    return {
        "topic": topic,
        "key": letter.key,
        "value": letter.value,
        "headers": [{"key": name, "value": value} for name, value in letter.replayed_headers],
        "timestamp": None if time_ms is None else EPOCH + timedelta(milliseconds=time_ms),
    }


def newest_letters(pipeline: Pipeline, rows: int) -> list[dict[str, Any]]:
    """Return the newest letters as plain values, the newest last."""
    letters, _ = Replay(pipeline, to=None, everything=True).letters()

    def age(letter: Letter) -> tuple[bool, int, str]:
        time_ms = letter.facts["timestamp"]
        return time_ms is None, -(time_ms or 0), letter.place

    found = heapq.nsmallest(rows, letters, key=age)
    return [{**one.facts, "value": _text(one.value)} for one in reversed(found)]


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
