"""`odradek pipeline`: data pipelines on Spark, from one TOML file. Here is what their authors use.

Spark is imported only where it is used. `pipeline_run` and `pipeline_operations` have the other commands.
"""

import json
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import Consumer, TopicPartition

from odradek.cli import pipeline_operations
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
    partition_ids,
    settings_for,
)
from odradek.cli.pipeline_run import run
from odradek.cli.pipeline_shared import (
    Conf,
    FileArgument,
    FilesArgument,
    Master,
    Offline,
    Verbose,
    find_file,
    spark_for,
    told,
)
from odradek.pipeline.errors import PipelineError, PipelineErrors
from odradek.pipeline.reading import load

app = typer.Typer(
    help="Run data pipelines on Spark, each defined by one TOML file: sources, transforms, sinks.",
    no_args_is_help=True,
    epilog="A beginning: 'odradek pipeline init', then test, check and run the file. docs/PIPELINES.md describes "
    "every key.",
)

SAMPLE_RECORDS = 1000


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


for command in (
    init,
    test,
    check,
    plan,
    explain,
    run,
    pipeline_operations.status,
    pipeline_operations.pause,
    pipeline_operations.resume,
    pipeline_operations.reset,
    pipeline_operations.dead_letters,
    pipeline_operations.replay_dead_letters,
):
    app.command()(command)
