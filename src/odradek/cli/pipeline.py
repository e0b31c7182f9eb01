"""`odradek pipeline`: data pipelines on Spark, from one TOML file. These are the commands for authors.

Spark is imported only where it is used. `pipeline_run` and `pipeline_operations` have the other commands.
"""

from pathlib import Path
from typing import Annotated

from odradek.admin.access import REQUEST_TIMEOUT_S, Access
from odradek.admin.librdkafka import failures_told, kafka, make_client
from odradek.cli import pipeline_operations
from odradek.cli.access import on_cluster
from odradek.cli.arguments import JsonOutput
from odradek.cli.completion import complete_topics
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Exit, Group, Option
from odradek.cli.output import print_json_line, print_line
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
from odradek.pipeline.file.errors import PipelineError, PipelineErrors
from odradek.pipeline.file.reading import load

app = Group(
    help="Run data pipelines on Spark, each defined by one TOML file: sources, transforms, sinks.",
    epilog="Start with 'odradek pipeline init', then test, check and run the file. docs/PIPELINES.md describes "
    "every key.",
)

SAMPLE_RECORDS = 1000


@on_cluster
def init(
    cluster: Access,
    file: Annotated[Path, Argument(metavar="[FILE]", help="The file to write.")] = Path("pipeline.toml"),
    from_topic: Annotated[
        str | None,
        Option(
            "--from-topic",
            metavar="TOPIC",
            help="Start with this topic; infer its schema.",
            complete=complete_topics,
        ),
    ] = None,
) -> None:
    """Write a first pipeline. It is a working example, or reads an existing topic."""
    from odradek.pipeline.file.examples import example, example_from_topic

    if file.exists():
        raise CommandError(f"{file} already exists; name another file")
    if from_topic is None:
        text = example(file.stem, str(file), cluster.bootstrap)
    else:
        values = sample(cluster, from_topic)
        if not values:
            raise CommandError(f"topic {from_topic} has no records to infer a schema from")
        text = example_from_topic(file.stem, from_topic, cluster.bootstrap, values)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    print_line(
        f"Wrote {file}. Next: odradek pipeline {'test' if from_topic is None else 'run --dry-run'} {file}"
    )


def sample(cluster: Access, topic: str) -> list[bytes]:
    """The first values of a topic, from all its partitions."""
    from odradek.admin.metadata import existing_partitions

    partitions = existing_partitions(cluster, topic)
    settings = {
        "group.id": "odradek-pipeline-init",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    with failures_told(cluster, topic):
        consumer = make_client(cluster, kafka.Consumer, settings)
        try:
            consumer.assign([kafka.TopicPartition(topic, number, 0) for number in partitions])
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
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Validate without running. It looks at types through the SQL, topics, sinks and checkpoint."""
    with told(as_json):
        from odradek.pipeline.check.checking import check as check_pipeline

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
        if as_json:
            print_json_line(report.as_json())
        else:
            print_line("\n".join(report.lines()))


def test(
    files: FilesArgument,
    only: Annotated[str, Option("-k", metavar="TEXT", help="Run only tests with this in their name.")] = "",
    as_json: JsonOutput = False,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Run the tests of a pipeline. They are in its file or in NAME.tests.toml, and need no broker."""
    failed = passed = 0
    with told(as_json):
        from odradek.pipeline.check.testing import all_tests, run_test

        pipelines = [load(find_file(file)) for file in files]
        chosen = [
            (pipeline, where, case)
            for pipeline in pipelines
            for where, case in all_tests(pipeline)
            if only in case.name
        ]
        if not chosen:
            raise CommandError("there are no tests: write them as [[tests]] (docs/PIPELINES.md)")
        with spark_for(pipelines, "local[2]", conf, verbose, stores_classes=True) as spark:
            for pipeline, where, case in chosen:
                outcome = run_test(spark, pipeline, where, case)
                failed += bool(outcome.problems)
                passed += not outcome.problems
                if as_json:
                    facts = {"pipeline": pipeline.name, "test": case.name, "ok": not outcome.problems}
                    print_json_line(facts | {"problems": outcome.problems})
                    continue
                mark = "FAILED" if outcome.problems else "ok"
                print_line(f"{mark:6} {pipeline.name}: {case.name}")
                for problem in outcome.problems:
                    print_line(f"       {where.path}:{where.line(case.key)}: {problem}")
    if not as_json:
        print_line(f"{passed} passed" + (f", {failed} failed" if failed else ""))
    if failed:
        raise Exit(1)


def plan(
    file: FileArgument,
    as_json: JsonOutput = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Show what a change of the file does. A pipeline that has run before keeps its state, or needs a reset."""
    with told(as_json):
        from odradek.pipeline.check.checking import check as check_pipeline
        from odradek.pipeline.check.planning import plan as make_plan

        pipeline = load(find_file(file))
        with spark_for([pipeline], master, conf, verbose) as spark:
            changes = make_plan(spark, check_pipeline(spark, pipeline, offline=True))
    if as_json:
        print_json_line([change.as_json() for change in changes])
        return
    for change in changes:
        print_line(f"{change.sink}: {change.verdict}")
        for reason in change.reasons:
            print_line(f"  {reason}")


def explain(
    file: FileArgument,
    mode: Annotated[str, Option("--mode", help="simple, extended, formatted or cost.")] = "formatted",
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Print which sinks share a query, and Spark's plan of every query."""
    if mode not in ("simple", "extended", "formatted", "cost"):
        raise BadParameter(f"{mode!r} is not one of simple, extended, formatted, cost", param_hint="--mode")
    with told():
        from odradek.pipeline.run.explaining import explain as explain_pipeline

        pipeline = load(find_file(file))
        with spark_for([pipeline], master, conf, verbose) as spark:
            explain_pipeline(spark, pipeline, mode, print_line)


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
    app.command(command.__name__.replace("_", "-"))(command)
