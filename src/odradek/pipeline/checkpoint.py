"""The directory where a pipeline keeps its state, and which pipeline it belongs to.

    checkpoints/NAME/
      manifest.json     the pipeline that this belongs to, and the definition of its last run
      lock              held by the process that runs the pipeline
      paused            exists while the pipeline is paused
      sinks/SINK/       Spark's checkpoint of the query that feeds a sink
      rejects/STAGE/    Spark's checkpoint of the query that writes a stage's rejected rows to the dead letters
      groups/GROUP/     Spark's checkpoint of a query that several of these share; the manifest names its members
      skipped/          records set aside because a query failed on them
      pending/          dead letters of such records, until the transaction of their batch has them
      unmet/            how many rows did not meet a requirement, by sink
      late/             how many rows a query dropped because they came after the watermark
      spark.log         the log of Spark and Java

Spark's checkpoints are keyed by names: of the pipeline and the sink as directories, and of sources within (Spark
keeps offsets by the names that `sources.stream` gives). The order in the file does not matter.

Files are replaced, never rewritten: a crash leaves the old one or the new one.
"""

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.file.errors import PipelineError

FORMAT = 1


@dataclass(frozen=True)
class Progress:
    """The state of one of Spark's checkpoints: offsets by source, and whether its last batch is finished."""

    batch: int
    finished: int
    offsets: dict[str, Any]
    committed: dict[str, Any]
    committed_at_s: float | None


@dataclass(frozen=True)
class Group:
    """Sinks, and stages whose rejected rows are written, that share a query. It reads one source."""

    name: str
    source: str
    sinks: tuple[str, ...] = ()
    rejects: tuple[str, ...] = ()

    def has(self, kind: str, name: str) -> bool:
        return name in (self.sinks if kind == "sink" else self.rejects)


DIRECTORIES = {"sink": "sinks", "group": "groups"}  # of other kinds: rejects


PARTS = ("sinks", "rejects", "groups", "skipped", "pending", "late", "unmet")  # what a reset deletes


class Checkpoint:
    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.directory = pipeline.state_directory

    # Places

    @property
    def log_file(self) -> Path:
        return self.directory / "spark.log"

    def query(self, kind: str, name: str) -> Path:
        return self.directory / DIRECTORIES.get(kind, "rejects") / name

    # Shared queries

    def groups(self) -> list[Group]:
        """Return the groups of the last run."""
        found = (self.manifest() or {}).get("groups", {})
        return [
            Group(name, one["source"], tuple(one["sinks"]), tuple(one["rejects"]))
            for name, one in found.items()
        ]

    def group_of(self, kind: str, name: str) -> Group | None:
        """The group that a sink or a stage's rejects belong to; None if they have a query of their own."""
        if kind == "group" or self.query(kind, name).exists():
            return None
        return next((group for group in self.groups() if group.has(kind, name)), None)

    def separate(self, group: str, kind: str, name: str) -> None:
        """Give a member of a group a checkpoint of its own, from the offsets that the group has committed. One that it
        has already is kept."""
        old, new = self.query("group", group), self.query(kind, name)
        progress = read_progress(old)
        if new.exists() or progress is None or progress.finished < 0:
            return
        copy = new.with_name(f".{new.name}.new")
        shutil.rmtree(copy, ignore_errors=True)
        for log in ("offsets", "commits"):
            (copy / log).mkdir(parents=True)
            for batch in (progress.finished - 1, progress.finished):  # Spark also looks at the one before
                if (old / log / str(batch)).exists():
                    shutil.copyfile(old / log / str(batch), copy / log / str(batch))
        write_file(copy / "metadata", json.dumps({"id": str(uuid.uuid4())}))
        copy.replace(new)

    # The manifest

    def manifest(self) -> dict[str, Any] | None:
        """The manifest of the last run; None before the first. A checkpoint of another pipeline is refused."""
        path = self.directory / "manifest.json"
        try:
            found = json.loads(path.read_text())
        except FileNotFoundError:
            if any((self.directory / part).is_dir() for part in ("offsets", "sinks", "groups")):
                raise self._foreign("it has no manifest") from None
            return None
        except (OSError, ValueError) as error:
            raise self._foreign(f"its manifest cannot be read: {error}") from None
        if not isinstance(found, dict) or found.get("pipeline") != self.pipeline.name:
            raise self._foreign(f"it belongs to the pipeline '{_name_in(found)}'")
        if found.get("format") != FORMAT:
            raise self._foreign(f"its format is {found.get('format')}, this version writes {FORMAT}")
        return found

    def _foreign(self, why: str) -> PipelineError:
        problem = (
            f"the checkpoint in {self.directory} cannot be used: {why}. Name another directory with "
            "pipeline.checkpoint, or move this one away"
        )
        return self.pipeline.error(("pipeline", "checkpoint"), problem)

    def write_manifest(self, content: dict[str, Any]) -> None:
        whole = {"format": FORMAT, "pipeline": self.pipeline.name, **content}
        write_file(self.directory / "manifest.json", json.dumps(whole, indent=2, sort_keys=True) + "\n")

    # One process at a time

    @contextmanager
    def locked(self) -> Iterator[None]:
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                process = file.read().strip() or "another process"
                problem = f"pipeline '{self.pipeline.name}' is already running in process {process}; stop that first"
                raise PipelineError(problem, self.pipeline.document.path) from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    def runner(self) -> int | None:
        """The process that runs the pipeline now."""
        try:
            with (self.directory / "lock").open("r") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return None
        except FileNotFoundError:
            return None
        except OSError:
            return int((self.directory / "lock").read_text().strip() or 0)

    # Pausing

    @property
    def is_paused(self) -> bool:
        return (self.directory / "paused").exists()

    def pause(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "paused").touch()

    def resume(self) -> None:
        (self.directory / "paused").unlink(missing_ok=True)

    # Records that were set aside

    def skipped(self, kind: str, name: str) -> dict[str, dict[str, dict[str, list[int]]]]:
        """Return the skipped offsets, by source, topic and partition."""
        try:
            found: dict[str, dict[str, dict[str, list[int]]]] = json.loads(
                self._skip_file(kind, name).read_text()
            )
            return found
        except FileNotFoundError:
            return {}

    def all_skipped(self) -> Iterator[tuple[str, str, dict[str, dict[str, dict[str, list[int]]]]]]:
        """Yield, for every query that skips records, its kind, its name and what it skips."""
        for path in sorted((self.directory / "skipped").glob("*.json")):
            kind, _, name = path.stem.partition(".")
            yield kind, name, self.skipped(kind, name)

    def skip(self, kind: str, name: str, source: str, topic: str, partition: int, offset: int) -> None:
        found = self.skipped(kind, name)
        offsets = found.setdefault(source, {}).setdefault(topic, {}).setdefault(str(partition), [])
        offsets[:] = sorted({*offsets, offset})
        write_file(self._skip_file(kind, name), json.dumps(found, sort_keys=True))

    def _skip_file(self, kind: str, name: str) -> Path:
        return self.directory / "skipped" / f"{kind}.{name}.json"

    # Their dead letters, where these are written in the transaction of the batch

    def pending(self, kind: str, name: str, batch: int) -> list[dict[str, Any]]:
        """Records that were set aside while this batch was tried."""
        return [one["record"] for one in self._pending(kind, name) if one["batch"] == batch]

    def add_pending(self, kind: str, name: str, batch: int, record: dict[str, Any]) -> None:
        """Note a record durably; those of batches before are written, and forgotten."""
        known = [one for one in self._pending(kind, name) if one["batch"] == batch]
        place = ("source", "topic", "partition", "offset")
        if not any(all(one["record"][part] == record[part] for part in place) for one in known):
            known.append({"batch": batch, "record": record})
        write_file(self._pending_file(kind, name), json.dumps(known, sort_keys=True))

    def _pending(self, kind: str, name: str) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = json.loads(self._pending_file(kind, name).read_text())
            return found
        except FileNotFoundError:
            return []

    def _pending_file(self, kind: str, name: str) -> Path:
        return self.directory / "pending" / f"{kind}.{name}.json"

    # Rows that came too late

    def late(self, kind: str, name: str) -> int:
        return int(self._late(kind, name)["rows"])

    def _late(self, kind: str, name: str) -> dict[str, int]:
        try:
            found: dict[str, int] = json.loads(self._late_file(kind, name).read_text())
            return found
        except FileNotFoundError:
            return {"batch": -1, "rows": 0}

    def add_late(self, kind: str, name: str, batch: int, rows: int) -> None:
        """Count the late rows of a batch, each batch once."""
        known = self._late(kind, name)
        if batch > known["batch"]:
            counted = {"batch": batch, "rows": known["rows"] + rows}
            write_file(self._late_file(kind, name), json.dumps(counted))

    def _late_file(self, kind: str, name: str) -> Path:
        return self.directory / "late" / f"{kind}.{name}.json"

    # Rows that did not meet a requirement

    def unmet(self, kind: str, name: str) -> list[dict[str, Any]]:
        """Return the counts, with stage, requirement, action and rows."""
        found: list[dict[str, Any]] = self._unmet(kind, name)["unmet"]
        return found

    def _unmet(self, kind: str, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._unmet_file(kind, name).read_text())
            return found
        except FileNotFoundError:
            return {"batch": -1, "unmet": []}

    def add_unmet(self, kind: str, name: str, batch: int, unmet: list[dict[str, Any]]) -> None:
        """Count such rows of a batch, each batch once."""
        known = self._unmet(kind, name)
        if batch <= known["batch"]:
            return
        place = ("stage", "requirement", "action")
        counts = {tuple(one[part] for part in place): one["rows"] for one in known["unmet"]}
        for one in unmet:
            at = tuple(one[part] for part in place)
            counts[at] = counts.get(at, 0) + one["rows"]
        counted = [dict(zip(place, at, strict=True)) | {"rows": rows} for at, rows in counts.items()]
        write_file(self._unmet_file(kind, name), json.dumps({"batch": batch, "unmet": counted}))

    def _unmet_file(self, kind: str, name: str) -> Path:
        return self.directory / "unmet" / f"{kind}.{name}.json"

    # Spark's checkpoints

    def progress(self, kind: str, name: str) -> Progress | None:
        return read_progress(self.query(kind, name))

    def progress_of(self, kind: str, name: str) -> Progress | None:
        """The progress of a sink or of rejects, in a query of its own or in a group's."""
        group = self.group_of(kind, name)
        return self.progress(kind, name) if group is None else self.progress("group", group.name)

    def query_id(self, kind: str, name: str) -> str:
        """Return Spark's id of the query: the same after a restart, another one after a reset."""
        return str(json.loads((self.query(kind, name) / "metadata").read_text())["id"])

    def remove_query(self, kind: str, name: str) -> bool:
        """With what is counted and skipped for it, which a member of a group has, too. True if it had a checkpoint."""
        path = self.query(kind, name)
        is_known = path.exists()
        if is_known:
            shutil.rmtree(path)
        for file in (self._skip_file, self._late_file, self._unmet_file, self._pending_file):
            file(kind, name).unlink(missing_ok=True)
        return is_known


def _name_in(found: Any) -> str:
    return str(found.get("pipeline")) if isinstance(found, dict) else "?"


def read_progress(directory: Path) -> Progress | None:
    """Spark's offset and commit logs, which are files named by the batch."""
    offsets, commits = _numbered(directory / "offsets"), _numbered(directory / "commits")
    if not offsets:
        return None
    last, finished = max(offsets), max(commits, default=-1)
    return Progress(
        batch=last,
        finished=finished,
        offsets=_read_offsets(offsets[last]),
        committed=_read_offsets(offsets[finished]) if finished in offsets else {},
        committed_at_s=commits[finished].stat().st_mtime if finished in commits else None,
    )


def _numbered(directory: Path) -> dict[int, Path]:
    if not directory.is_dir():
        return {}
    return {int(path.name): path for path in directory.iterdir() if path.name.isdigit()}


def _read_offsets(path: Path) -> dict[str, Any]:
    """`name:offset` a line after the header and the settings (`v2`); by position in older files (`v1`)."""
    lines = path.read_text().splitlines()
    found = {}
    for number, line in enumerate(lines[2:]):
        name, colon, rest = line.partition(":")
        if lines[0] == "v2" and colon and not line.startswith("{"):
            found[name] = _offset(rest)
        else:
            found[str(number)] = _offset(line)
    return found


def _offset(text: str) -> Any:
    return None if text == "-" else json.loads(text)


def write_file(path: Path, text: str) -> None:
    """Whole or not at all, and on disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
