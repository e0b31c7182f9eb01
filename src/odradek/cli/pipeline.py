"""`odradek pipeline`: data pipelines on Spark, from one TOML file. Spark is imported only where it is used."""

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from confluent_kafka import Consumer, TopicPartition

from odradek.cli.clients import (
    DEFAULT_BOOTSTRAP_SERVER,
    REQUEST_TIMEOUT_S,
    BootstrapServer,
    CommandConfig,
    CommandError,
    JsonOutput,
    build,
    check_reachable,
    failures_told,
    key_value,
    partition_ids,
    print_columns,
    settings_for,
    warn,
)
from odradek.pipeline import document
from odradek.pipeline.checkpoint import SPARK_METADATA, Checkpoint
from odradek.pipeline.definition import FileSink, Pipeline, load
from odradek.pipeline.errors import PipelineError, PipelineErrors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(
    help="Run data pipelines on Spark, each defined by one TOML file: sources, transforms, sinks.",
    no_args_is_help=True,
    epilog="A beginning: 'odradek pipeline init', then test, check and run the file. docs/PIPELINES.md describes "
    "every key.",
)

SAMPLE_RECORDS = 1000

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The pipeline's file, or its name if the file is here.")
]
FilesArgument = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="Pipelines' files, or their names.")
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local[2], spark://host:7077, yarn …"),
]
Conf = Annotated[
    list[str], typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's; may be repeated.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show what Spark and Java log.")]
Offline = Annotated[
    bool, typer.Option("--offline", help="Look at no cluster, no database and no checkpoint.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@contextlib.contextmanager
def told(as_json: bool = False) -> Iterator[None]:
    """What is wrong with a pipeline, as one message and exit status 1."""
    try:
        yield
    except PipelineError as error:
        if as_json:
            errors = error.errors if isinstance(error, PipelineErrors) else [error]
            found = [
                {
                    "file": str(one.file) if one.file else None,
                    "line": one.line,
                    "key": one.key,
                    "problem": one.problem,
                }
                for one in errors
            ]
            typer.echo(json.dumps({"ok": False, "errors": found}))
            raise typer.Exit(1) from None
        raise CommandError(str(error)) from None


def find_file(text: str) -> Path:
    """A file, or that of the pipeline with this name in the current directory."""
    path = Path(text)
    if path.suffix == ".toml" or path.exists():
        return path
    if path.with_name(f"{path.name}.toml").exists():
        return path.with_name(f"{path.name}.toml")
    for candidate in sorted(Path().glob("*.toml")):
        with contextlib.suppress(PipelineError):
            table = document.read(candidate).values.get("pipeline")
            if isinstance(table, dict) and table.get("name") == text:
                return candidate
    raise CommandError(f"there is no file {text}, and no pipeline of that name in this directory")


@contextlib.contextmanager
def spark_for(
    pipelines: Sequence[Pipeline],
    master: str | None,
    conf: list[str],
    verbose: bool,
    *,
    log_file: Path | None = None,
    short_lived: bool = True,
) -> Iterator["SparkSession"]:
    """Spark, quiet unless asked, and stopped at the end."""
    from odradek.pipeline import session

    settings: dict[str, str] = {}
    for pipeline in pipelines:
        settings |= pipeline.spark
    settings |= dict(map(key_value, conf))
    places = [
        place for one in pipelines for place in (one.directory, *map(one.directory.joinpath, one.python_path))
    ]
    with tempfile.TemporaryDirectory(prefix="odradek-pipeline-") as directory:
        log = None if verbose else log_file or Path(directory) / "spark.log"
        path = [str(place.absolute()) for place in places]
        spark = session.start(master, settings, log_file=log, python_path=path, short_lived=short_lived)
        try:
            yield spark
        finally:
            spark.stop()


@app.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to write.")] = Path("pipeline.toml"),
    from_topic: Annotated[
        str | None,
        typer.Option("--from-topic", metavar="TOPIC", help="Begin with this topic; infer its schema."),
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Write a pipeline to begin with: an example that works, or one for a topic that exists."""
    from odradek.pipeline.examples import example, example_from_topic

    if file.exists():
        raise CommandError(f"{file} exists already; name another file")
    if from_topic is None:
        text = example(file.stem, str(file), bootstrap_server)
    else:
        values = sample(from_topic, bootstrap_server, command_config)
        if not values:
            raise CommandError(f"topic {from_topic} has no records to infer a schema from")
        text = example_from_topic(file.stem, from_topic, bootstrap_server, values)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    typer.echo(
        f"Wrote {file}. Next: odradek pipeline {'test' if from_topic is None else 'run --dry-run'} {file}"
    )


def sample(topic: str, bootstrap_server: str, command_config: Path | None) -> list[bytes]:
    """The first values of a topic, from all its partitions."""
    check_reachable(bootstrap_server)
    settings = settings_for(bootstrap_server, command_config) | {
        "group.id": "odradek-pipeline-init",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    with failures_told(bootstrap_server, topic):
        consumer = build(Consumer, settings)
        try:
            partitions = partition_ids(consumer, topic)
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            values: list[bytes] = []
            ended: set[int] = set()
            while len(values) < SAMPLE_RECORDS and len(ended) < len(partitions):
                messages = consumer.consume(SAMPLE_RECORDS, timeout=REQUEST_TIMEOUT_S)
                if not messages:
                    break
                for message in messages:
                    if message.error() is not None:
                        ended.add(message.partition())
                    elif message.value() is not None:
                        values.append(message.value())
            return values
        finally:
            consumer.close()


@app.command()
def check(
    files: FilesArgument,
    offline: Offline = False,
    as_json: JsonOutput = False,
    master: Master = None,
    conf: Conf = [],  # noqa: B006 - Typer reads the default, nothing changes it
    verbose: Verbose = False,
) -> None:
    """Validate without running: types through the SQL, topics, sinks, checkpoint."""
    from odradek.pipeline.checking import check as check_pipeline

    with told(as_json):
        pipelines = [load(find_file(file)) for file in files]
        with spark_for(pipelines, master, conf, verbose) as spark:
            problems: list[PipelineError] = []
            reports = []
            for pipeline in pipelines:
                try:
                    reports.append(check_pipeline(spark, pipeline, offline=offline))
                except PipelineErrors as error:
                    problems += error.errors
                except PipelineError as error:
                    problems.append(error)
            if problems:
                raise PipelineErrors(problems)
    for report in reports:
        typer.echo(json.dumps(report.as_json()) if as_json else "\n".join(report.lines()))


@app.command()
def test(
    files: FilesArgument,
    only: Annotated[
        str, typer.Option("-k", metavar="TEXT", help="Run only tests with this in their name.")
    ] = "",
    as_json: JsonOutput = False,
    conf: Conf = [],  # noqa: B006 - as above
    verbose: Verbose = False,
) -> None:
    """Run the tests of a pipeline, which are in its file or in NAME.tests.toml: no broker, a few seconds."""
    from odradek.pipeline.testing import all_tests, run_test

    failed = passed = 0
    with told(as_json):
        pipelines = [load(find_file(file)) for file in files]
        chosen = [
            (pipeline, where, case)
            for pipeline in pipelines
            for where, case in all_tests(pipeline)
            if only in case.name
        ]
        if not chosen:
            raise CommandError("there are no tests: write them as [[tests]] (docs/PIPELINES.md)")
        with spark_for(pipelines, "local[2]", conf, verbose) as spark:
            for pipeline, where, case in chosen:
                outcome = run_test(spark, pipeline, where, case)
                failed += bool(outcome.problems)
                passed += not outcome.problems
                if as_json:
                    facts = {"pipeline": pipeline.name, "test": case.name, "ok": not outcome.problems}
                    typer.echo(json.dumps(facts | {"problems": outcome.problems}))
                    continue
                mark = "FAILED" if outcome.problems else "ok"
                typer.echo(f"{mark:6} {pipeline.name}: {case.name}")
                for problem in outcome.problems:
                    typer.echo(f"       {where.path}:{where.line(case.key)}: {problem}")
    if not as_json:
        typer.echo(f"{passed} passed" + (f", {failed} failed" if failed else ""))
    if failed:
        raise typer.Exit(1)


@app.command()
def plan(
    file: FileArgument,
    as_json: JsonOutput = False,
    master: Master = None,
    conf: Conf = [],  # noqa: B006 - as above
    verbose: Verbose = False,
) -> None:
    """Say what the file would do to a pipeline that has run before: keep its state, or need a reset."""
    from odradek.pipeline.checking import check as check_pipeline
    from odradek.pipeline.planning import plan as make_plan

    with told(as_json):
        pipeline = load(find_file(file))
        with spark_for([pipeline], master, conf, verbose) as spark:
            changes = make_plan(spark, check_pipeline(spark, pipeline, offline=True))
    if as_json:
        typer.echo(json.dumps([change.as_json() for change in changes]))
        return
    for change in changes:
        typer.echo(f"{change.sink}: {change.verdict}")
        for reason in change.reasons:
            typer.echo(f"  {reason}")


@app.command()
def explain(
    file: FileArgument,
    mode: Annotated[str, typer.Option("--mode", help="simple, extended, formatted or cost.")] = "formatted",
    master: Master = None,
    conf: Conf = [],  # noqa: B006 - as above
    verbose: Verbose = False,
) -> None:
    """Print Spark's plan of every query of a pipeline."""
    from odradek.pipeline.queries import Query, QueryId

    if mode not in ("simple", "extended", "formatted", "cost"):
        raise typer.BadParameter(
            f"{mode!r} is not one of simple, extended, formatted, cost", param_hint="--mode"
        )
    with told():
        pipeline = load(find_file(file))
        with spark_for([pipeline], master, conf, verbose) as spark:
            for name in pipeline.sinks:
                query = Query(spark, pipeline, QueryId("sink", name), once=True, show=typer.echo)
                typer.echo(f"-- {name}")
                query.frame().explain(mode=mode)


@app.command()
def run(
    files: FilesArgument,
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, and end.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the first rows of each stage; write nothing.")
    ] = False,
    rows: Annotated[int, typer.Option("--rows", min=1, help="With --dry-run: how many rows.")] = 10,
    master: Master = None,
    conf: Conf = [],  # noqa: B006 - as above
    retries: Annotated[
        int | None,
        typer.Option("--retries", min=0, help="Give up after so many; 5 with --once, else never."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", help="Serve Prometheus metrics here; 0 lets the system choose."),
    ] = None,
    metrics_host: Annotated[str, typer.Option("--metrics-host", help="… at this address.")] = "127.0.0.1",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines at a terminal too.")] = False,
    verbose: Verbose = False,
) -> None:
    """Run pipelines until Ctrl-C, or with --once until all that is there has been read.

    Progress is a live table at a terminal and JSON lines elsewhere. A restart goes on where the last run stopped.
    """
    with told():
        pipelines = [load(find_file(file)) for file in files]
        if len({pipeline.state_directory.absolute() for pipeline in pipelines}) < len(pipelines):
            raise CommandError("two of the files are of the same pipeline; names must differ")
        if dry_run:
            return _preview(pipelines, rows, master, conf, verbose)
        return _run(pipelines, once, master, conf, retries, metrics_host, metrics_port, as_json, verbose)


def _preview(
    pipelines: list[Pipeline], rows: int, master: str | None, conf: list[str], verbose: bool
) -> None:
    from odradek.pipeline.previewing import preview

    with spark_for(pipelines, master, conf, verbose) as spark:
        for pipeline in pipelines:
            for text in preview(spark, pipeline, rows):
                typer.echo(f"{text}\n")


def _run(
    pipelines: list[Pipeline],
    once: bool,
    master: str | None,
    conf: list[str],
    retries: int | None,
    metrics_host: str,
    metrics_port: int | None,
    as_json: bool,
    verbose: bool,
) -> None:
    from odradek.pipeline.display import JsonLines, LiveView
    from odradek.pipeline.metrics import Metrics, serve
    from odradek.pipeline.running import PipelineRun, Supervisor

    metrics = Metrics()
    with contextlib.ExitStack() as stack:
        for pipeline in pipelines:
            checkpoint = Checkpoint(pipeline)
            checkpoint.manifest()
            stack.enter_context(checkpoint.locked())
            if once and checkpoint.is_paused:
                raise CommandError(
                    f"pipeline {pipeline.name} is paused: 'odradek pipeline resume' lets it run"
                )
        log_file = Checkpoint(pipelines[0]).log_file
        spark = stack.enter_context(
            spark_for(pipelines, master, conf, verbose, log_file=log_file, short_lived=False)
        )
        live = sys.stdout.isatty() and not as_json
        events = stack.enter_context(LiveView(metrics)) if live else JsonLines(metrics)
        runs = [PipelineRun(spark, one, events, once=once, retries=retries) for one in pipelines]
        failed = prepare_all(runs)
        supervisor = Supervisor([one for one in runs if one not in failed])
        if metrics_port is not None:
            server = serve(metrics, metrics_host, metrics_port)
            stack.callback(server.shutdown)
            host, port = server.server_address[:2]
            for one in pipelines:
                events.message(one.name, f"metrics at http://{host!s}:{port}/metrics", metrics_port=port)
        with _stopping(supervisor.request_stop):
            went_well = supervisor.run()
    if failed or not went_well:
        raise typer.Exit(1)


def prepare_all(runs: Sequence[Any]) -> list[Any]:
    """Check all; those that cannot run are told, and do not keep the others from running."""
    failed = []
    for one in runs:
        try:
            one.prepare()
        except PipelineError as error:
            if len(runs) == 1:
                raise
            failed.append(one)
            typer.echo(f"error: {error}", err=True)
    return failed


@contextlib.contextmanager
def _stopping(stop: Any) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop cleanly; a second one does not wait."""

    def handle(number: int, _: object) -> None:
        if asked:
            os._exit(128 + number)
        asked.append(number)
        stop()

    asked: list[int] = []
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@app.command()
def status(file: FileArgument, as_json: JsonOutput = False) -> None:
    """Say where a pipeline stands: running or not, batches, lag, records set aside. Needs no Spark."""
    from odradek.pipeline.status import status as read_status

    with told(as_json):
        found = read_status(load(find_file(file)))
    if as_json:
        typer.echo(json.dumps(found.as_json()))
        return
    process = f" in process {found.process}" if found.process else ""
    typer.echo(f"{found.pipeline}: {found.state}{process}, checkpoint in {found.checkpoint}")
    if found.queries:
        rows = [
            (
                one.name,
                one.kind,
                one.batch if one.batch is not None and one.batch >= 0 else None,
                one.finished_at,
                ", ".join(f"{topic} {waiting}" for topic, waiting in one.lag.items()),
                one.skipped,
                one.group,
            )
            for one in found.queries
        ]
        print_columns(("QUERY", "KIND", "BATCH", "FINISHED", "LAG", "SKIPPED", "GROUP"), rows)
    if found.warning:
        warn(found.warning)


@app.command()
def pause(file: FileArgument) -> None:
    """Stop a pipeline between two batches, without ending the process that runs it."""
    with told():
        pipeline = load(find_file(file))
        Checkpoint(pipeline).pause()
    typer.echo(f"{pipeline.name} is paused; 'odradek pipeline resume' lets it go on.")


@app.command()
def resume(file: FileArgument) -> None:
    """Let a paused pipeline go on."""
    with told():
        pipeline = load(find_file(file))
        Checkpoint(pipeline).resume()
    typer.echo(f"{pipeline.name} goes on.")


@app.command()
def reset(
    file: FileArgument,
    sink: Annotated[
        list[str], typer.Option("--sink", metavar="NAME", help="Only this sink; may be repeated.")
    ] = [],  # noqa: B006 - as above
    delete_output: Annotated[
        bool, typer.Option("--delete-output", help="Delete the files that file sinks have written, too.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Forget how far a pipeline came, and its state: the next run begins where its sources say.

    What was written stays: rows that are read again are written again. Files that Spark's file sink wrote must be
    deleted (--delete-output) or moved, or the pipeline would take new batches for written.
    """
    with told():
        pipeline = load(find_file(file))
        checkpoint = Checkpoint(pipeline)
        manifest = checkpoint.manifest()
        if manifest is None:
            raise CommandError(f"{pipeline.name} has never run: there is nothing to reset")
        known = {*pipeline.sinks, *manifest.get("sinks", {})}
        for name in sink:
            if name not in known:
                raise CommandError(f"{pipeline.name} has no sink {name}; it has {', '.join(sorted(known))}")
        outputs = _outputs(pipeline, sink)
        if outputs and not delete_output:
            raise CommandError(
                f"{', '.join(map(str, outputs))} would be in the way of a new beginning: add --delete-output, or "
                "move what is there elsewhere first"
            )
        if sys.stdin.isatty() and not yes:
            deleted = f" and delete {', '.join(map(str, outputs))}" if outputs else ""
            typer.confirm(f"Forget the state of {', '.join(sink) or pipeline.name}{deleted}?", abort=True)
        with checkpoint.locked():
            _forget(checkpoint, sink, manifest, outputs)
    typer.echo(f"{', '.join(sink) or pipeline.name} begins anew with the next run.")


def _outputs(pipeline: Pipeline, chosen: list[str]) -> list[Path]:
    found = []
    for name, sink in pipeline.sinks.items():
        if isinstance(sink.target, FileSink) and (not chosen or name in chosen):
            output = Path(pipeline.path(sink.target.path))
            if (output / SPARK_METADATA).is_dir():
                found.append(output)
    return found


def _forget(checkpoint: Checkpoint, sinks: list[str], manifest: dict[str, Any], outputs: list[Path]) -> None:
    for output in outputs:
        shutil.rmtree(output)
    if sinks:
        for name in sinks:
            checkpoint.remove_query("sink", name)
        kept = {name: facts for name, facts in manifest.get("sinks", {}).items() if name not in sinks}
        checkpoint.write_manifest({**manifest, "sinks": kept})
        return
    for part in ("sinks", "rejects", "skipped"):
        shutil.rmtree(checkpoint.directory / part, ignore_errors=True)
    (checkpoint.directory / "manifest.json").unlink(missing_ok=True)


@app.command("dead-letters")
def dead_letters(
    file: FileArgument,
    rows: Annotated[int, typer.Option("--rows", min=1, help="How many to show.")] = 20,
    as_json: JsonOutput = False,
    verbose: Verbose = False,
) -> None:
    """Show the newest dead letters of a pipeline: stage, reason, origin, value."""
    from odradek.pipeline.replay import newest_letters

    with told(as_json):
        pipeline = load(find_file(file))
        with spark_for([pipeline], "local[2]", [], verbose) as spark:
            found = newest_letters(spark, pipeline, rows)
    if as_json:
        for letter in found:
            typer.echo(json.dumps(letter))
    elif not found:
        typer.echo("There are no dead letters.")
    else:
        header = ("stage", "name", "reason", "topic", "partition", "offset", "value")
        print_columns([name.upper() for name in header], [[one[name] for name in header] for one in found])


@app.command("replay-dead-letters")
def replay_dead_letters(
    file: FileArgument,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TOPIC", help="Send them here instead of where they came from."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Those that were replayed before, too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be sent.")] = False,
    as_json: JsonOutput = False,
    master: Master = None,
    conf: Conf = [],  # noqa: B006 - as above
    verbose: Verbose = False,
) -> None:
    """Send records that were set aside once more, after a fix: back to their topics, or to another one."""
    from odradek.pipeline.replay import Replay

    with told(as_json):
        pipeline = load(find_file(file))
        with spark_for([pipeline], master, conf, verbose) as spark:
            found = Replay(spark, pipeline, to=to, everything=everything).run(dry=dry_run)
    if as_json:
        typer.echo(json.dumps(found.as_json()))
        return
    verb = "Would send" if dry_run else "Sent"
    for target, count in found.sent.items():
        typer.echo(f"{verb} {count} to {target}.")
    if not found.sent:
        typer.echo("There is nothing to replay.")
    if found.kept:
        typer.echo(f"{found.kept} hold rows whose records are not known; they stay where they are.")
