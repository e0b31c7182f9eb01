"""`odradek pipeline run`: until Ctrl-C, or until the end of its sources."""

import contextlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit

from odradek.cli.failures import CommandError
from odradek.cli.framework import Exit, Option
from odradek.cli.metrics_server import MetricsHost, MetricsPort, metrics_served
from odradek.cli.output import note, print_line
from odradek.cli.pipeline_shared import Conf, FilesArgument, Master, Verbose, find_file, spark_for, told
from odradek.cli.stopping import stopping
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.file.reading import load


def run(
    files: FilesArgument,
    once: Annotated[
        bool, Option("--once", help="Process the records that are there now, then exit.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print the first rows of each stage; write nothing.")
    ] = False,
    rows: Annotated[int, Option("--rows", min=1, help="With --dry-run: how many rows.")] = 10,
    master: Master = None,
    conf: Conf = None,
    retries: Annotated[
        int | None,
        Option("--retries", min=0, help="Give up after this many retries; 5 with --once, else never."),
    ] = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    as_json: Annotated[bool, Option("--json", help="Print JSON lines even at a terminal.")] = False,
    verbose: Verbose = False,
) -> None:
    """Run pipelines until Ctrl-C. With --once, until the end of its sources.

    Progress is a live table at a terminal and JSON lines elsewhere. A restart continues where the last run stopped.
    """
    with told():
        pipelines = [load(find_file(file)) for file in files]
        if len({pipeline.state_directory.absolute() for pipeline in pipelines}) < len(pipelines):
            raise CommandError("two of the files have the same pipeline name; names must differ")
        if dry_run:
            return _preview(pipelines, rows, master, conf, verbose)
        return _run(pipelines, once, master, conf, retries, metrics_host, metrics_port, as_json, verbose)


def _preview(
    pipelines: list[Pipeline], rows: int, master: str | None, conf: Sequence[str] | None, verbose: bool
) -> None:
    from odradek.pipeline.check.previewing import preview

    with spark_for(pipelines, master, conf, verbose) as spark:
        for pipeline in pipelines:
            for text in preview(spark, pipeline, rows):
                print_line(f"{text}\n")


def _run(
    pipelines: list[Pipeline],
    once: bool,
    master: str | None,
    conf: Sequence[str] | None,
    retries: int | None,
    metrics_host: str,
    metrics_port: int | None,
    as_json: bool,
    verbose: bool,
) -> None:
    from odradek.pipeline.run.display import JsonLines
    from odradek.pipeline.run.metrics import Metrics
    from odradek.pipeline.run.running import PipelineRun, Supervisor

    is_live = sys.stdout.isatty() and not as_json
    if is_live:
        from odradek.pipeline.run.live_view import LiveView

    metrics = Metrics()
    with contextlib.ExitStack() as stack:
        for pipeline in pipelines:
            checkpoint = Checkpoint(pipeline)
            checkpoint.manifest()
            stack.enter_context(checkpoint.locked())
            if once and checkpoint.is_paused:
                raise CommandError(
                    f"pipeline {pipeline.name} is paused: 'odradek pipeline resume' resumes it"
                )
        log_file = Checkpoint(pipelines[0]).log_file
        lines = JsonLines(metrics)
        for pipeline in pipelines:
            if is_live:
                note(f"{pipeline.name}: starting Spark")
            else:
                lines.message(pipeline.name, "starting Spark", log=str(log_file))
        small = all(pipeline.profile == "small" for pipeline in pipelines)
        started = spark_for(
            pipelines, master, conf, verbose, log_file=log_file, small=small, stores_classes=True
        )
        spark = stack.enter_context(started)
        events = stack.enter_context(LiveView(metrics)) if is_live else lines
        runs = [PipelineRun(spark, one, events, once=once, retries=retries) for one in pipelines]
        failed = prepare_all(runs)
        supervisor = Supervisor([one for one in runs if one not in failed])
        url = stack.enter_context(metrics_served(metrics.text, metrics_port, metrics_host))
        for one in pipelines if url is not None else ():
            events.message(one.name, f"metrics at {url}", metrics_port=urlsplit(url).port)
        with stopping(supervisor.request_stop):
            went_well = supervisor.run()
    if failed or not went_well:
        raise Exit(1)


def prepare_all(runs: Sequence[Any]) -> list[Any]:
    """Check all pipelines; those that cannot run are reported, and do not stop the others from running."""
    failed = []
    for one in runs:
        try:
            one.prepare()
        except PipelineError as error:
            if len(runs) == 1:
                raise
            failed.append(one)
            note(f"error: {error}")
    return failed
