"""`odradek pipeline` for operators: status, pause, resume, reset, and dead letters."""

import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any

from odradek.cli.arguments import JsonOutput
from odradek.cli.danger import Yes, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Option
from odradek.cli.output import print_columns, print_json_line, print_line, warn
from odradek.cli.pipeline_shared import FileArgument, find_file, told
from odradek.pipeline.checkpoint import PARTS, Checkpoint
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.file.reading import load
from odradek.wording import counted

if TYPE_CHECKING:
    from odradek.pipeline.kinds.sink import SinkKind


def status(file: FileArgument, as_json: JsonOutput = False) -> None:
    """Show how a pipeline is doing. It shows state, batches, lag and dead letters, and starts no Spark."""
    with told(as_json):
        from odradek.pipeline.run.status import status as read_status

        found = read_status(load(find_file(file)))
    if as_json:
        print_json_line(found.as_json())
        return
    process = f" in process {found.process}" if found.process else ""
    print_line(f"{found.pipeline}: {found.state}{process}, checkpoint in {found.checkpoint}")
    if found.queries:
        rows = [
            (
                one.name,
                one.kind,
                one.batch if one.batch is not None and one.batch >= 0 else None,
                one.finished_at,
                None if one.ledger is None else one.ledger["batch"],
                ", ".join(f"{topic} {waiting}" for topic, waiting in one.lag.items()),
                one.skipped,
                f"≥ {one.late_at_least}" if one.late_at_least else 0,
                one.group,
            )
            for one in found.queries
        ]
        header = ("QUERY", "KIND", "BATCH", "FINISHED", "LEDGER", "LAG", "SKIPPED", "LATE", "GROUP")
        print_columns(header, rows)
    for one in found.queries:
        for unmet in one.unmet:
            print_line(
                f"{one.name}: {unmet['rows']} row(s) of {unmet['stage']} did not meet '{unmet['requirement']}' "
                f"({unmet['action']})"
            )
    if found.warning:
        warn(found.warning)


def pause(file: FileArgument) -> None:
    """Pause a pipeline between two batches. The process that runs it stays."""
    with told():
        pipeline = load(find_file(file))
        Checkpoint(pipeline).pause()
    print_line(f"{pipeline.name} is paused; 'odradek pipeline resume' resumes it.")


def resume(file: FileArgument) -> None:
    """Resume a paused pipeline."""
    with told():
        pipeline = load(find_file(file))
        Checkpoint(pipeline).resume()
    print_line(f"{pipeline.name} goes on.")


def reset(
    file: FileArgument,
    sink: Annotated[
        list[str] | None, Option("--sink", metavar="NAME", help="Only this sink; repeatable.")
    ] = None,
    delete_output: Annotated[
        bool, Option("--delete-output", help="Also delete the files that file sinks have written.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Delete progress and state of a pipeline. The next run starts where its sources say.

    Output stays: rows that are read again are written again. Files that Spark's file sink wrote must be
    deleted (--delete-output) or moved, or Spark would treat new batches as already written.
    """
    with told():
        pipeline = load(find_file(file))
        checkpoint = Checkpoint(pipeline)
        manifest = checkpoint.manifest()
        if manifest is None:
            raise CommandError(f"{pipeline.name} has never run: there is nothing to reset")
        known = {*pipeline.sinks, *manifest.get("sinks", {})}
        sinks = sink or []
        for name in sinks:
            if name not in known:
                raise CommandError(f"{pipeline.name} has no sink {name}; it has {', '.join(sorted(known))}")
            _refuse_member(pipeline, checkpoint, name, sinks)
        subject = ", ".join(sinks) or pipeline.name
        kinds = _kinds(pipeline, sinks)
        outputs = [path for kind in kinds for path in kind.leftovers()]
        if outputs and not delete_output:
            raise CommandError(
                f"{', '.join(map(str, outputs))} would be in the way of a fresh start: add --delete-output, or "
                "move the files elsewhere first"
            )
        if sys.stdin and sys.stdin.isatty():
            deleted = f" and delete {', '.join(map(str, outputs))}" if outputs else ""
            confirm(f"Delete the state of {subject}{deleted}?", yes)
        with checkpoint.locked():
            for kind in kinds:
                kind.reset()
            _forget(checkpoint, sinks, manifest)
    print_line(f"{subject} will start from scratch with the next run.")


def _refuse_member(pipeline: Pipeline, checkpoint: Checkpoint, name: str, chosen: list[str]) -> None:
    """Refuse to reset one member of a shared query alone, unless the file separates it: offsets are those of all."""
    group = checkpoint.group_of("sink", name)
    is_leaving = name not in pipeline.sinks or pipeline.sinks[name].own_query
    if group is None or is_leaving:
        return
    others = [*(one for one in group.sinks if one != name), *(f"rejects of {one}" for one in group.rejects)]
    raise CommandError(
        f"{name} shares a query with {', '.join(others)}, and their offsets are the same: reset the whole pipeline, "
        f"without --sink, or set own_query = true in [sinks.{name}] first"
    )


def _kinds(pipeline: Pipeline, chosen: list[str]) -> list["SinkKind"]:
    from odradek.pipeline.kinds.registry import sink_kinds

    return [kind for name, kind in sink_kinds(pipeline).items() if not chosen or name in chosen]


def _forget(checkpoint: Checkpoint, sinks: list[str], manifest: dict[str, Any]) -> None:
    if sinks:
        for name in sinks:
            checkpoint.remove_query("sink", name)
        kept = {name: facts for name, facts in manifest.get("sinks", {}).items() if name not in sinks}
        groups = {
            name: facts | {"sinks": [one for one in facts["sinks"] if one not in sinks]}
            for name, facts in manifest.get("groups", {}).items()
        }
        checkpoint.write_manifest({**manifest, "sinks": kept, "groups": groups})
        return
    for part in PARTS:
        shutil.rmtree(checkpoint.directory / part, ignore_errors=True)
    (checkpoint.directory / "manifest.json").unlink(missing_ok=True)


def dead_letters(
    file: FileArgument,
    rows: Annotated[int, Option("--rows", min=1, help="How many to show.")] = 20,
    as_json: JsonOutput = False,
) -> None:
    """Show the newest dead letters. It shows stage, reason, origin and value of each."""
    with told(as_json):
        from odradek.pipeline.run.replay import newest_letters

        pipeline = load(find_file(file))
        found = newest_letters(pipeline, rows)
    if as_json:
        for letter in found:
            print_json_line(letter)
    elif not found:
        print_line("There are no dead letters.")
    else:
        header = ("stage", "name", "reason", "topic", "partition", "offset", "value")
        print_columns([name.upper() for name in header], [[one[name] for name in header] for one in found])


def replay_dead_letters(
    file: FileArgument,
    to: Annotated[
        str | None,
        Option("--to", metavar="TOPIC", help="Send them to this topic instead of the one they came from."),
    ] = None,
    everything: Annotated[bool, Option("--all", help="Include those that were replayed before.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be sent.")] = False,
    as_json: JsonOutput = False,
) -> None:
    """Send dead letters again after a fix, to their topics or to another one."""
    with told(as_json):
        from odradek.pipeline.run.replay import Replay

        pipeline = load(find_file(file))
        found = Replay(pipeline, to=to, everything=everything).run(dry=dry_run)
    if as_json:
        print_json_line(found.as_json())
        return
    verb = "Would send" if dry_run else "Sent"
    for target, count in found.sent.items():
        print_line(f"{verb} {counted(count, 'record')} to {target}.")
    if not found.sent:
        print_line("There is nothing to replay.")
    if found.kept:
        kept = (
            "does not contain a whole record and was"
            if found.kept == 1
            else "do not contain whole records and were"
        )
        print_line(f"{counted(found.kept, 'dead letter')} {kept} not sent.")
