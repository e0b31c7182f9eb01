"""The parts of pipeline tests beside Spark: files, topics, runs in this process and in others."""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.file.reading import load
from odradek.pipeline.run.progress import BatchProgress
from odradek.pipeline.run.running import Events, PipelineRun, Supervisor
from tests.read_topic import read_to_the_end

WAIT_S = 300  # of a busy machine
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Dderby.stream.error.file=/dev/null"
# Short lives and few rows: compiling thoroughly, by the JVM or by Spark, does not pay.
SETTINGS = {
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    "spark.task.maxFailures": "1",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
_numbers = itertools.count()


class Recorder(Events):
    """Keeps what a run told."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.batches: list[BatchProgress] = []
        self.shown: list[str] = []

    def message(self, pipeline: str, text: str, **facts: Any) -> None:
        self.messages.append(text)

    def batch(self, progress: BatchProgress) -> None:
        self.batches.append(progress)

    def rows(self, text: str) -> None:
        self.shown.append(text)


class Lab:
    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap, self.directory = bootstrap, directory
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.events = Recorder()

    # Topics

    def topic(self, partitions: int = 2, name: str | None = None, **config: str) -> str:
        name = name or f"t{os.getpid()}x{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        for result in self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values():
            result.result(30)
        return name

    def fresh_name(self) -> str:
        return f"n{os.getpid()}x{next(_numbers)}"

    def fill(
        self,
        topic: str,
        values: Iterable[Any],
        partitions: int = 2,
        partition: int | None = None,
        **record: Any,
    ) -> None:
        """Values as they are, or as JSON; one after the other to partition 0, 1, …, or all to the same one."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number, value in enumerate(values):
            data = value if isinstance(value, (bytes, type(None))) else json.dumps(value).encode()
            place = number % partitions if partition is None else partition
            producer.produce(topic, value=data, partition=place, **record)
        assert producer.flush(60) == 0

    def records(self, topic: str) -> list[Any]:
        known = self.admin.list_topics(topic, timeout=30).topics[topic].partitions
        return read_to_the_end(self.bootstrap, topic, list(known))

    def values(self, topic: str) -> list[Any]:
        return [json.loads(one.value()) for one in self.records(topic) if one.value() is not None]

    def letters(self, topic: str) -> list[dict[str, Any]]:
        """Dead letters: their headers, and key and value."""
        found = []
        for record in self.records(topic):
            facts = {name.removeprefix("odradek."): value.decode() for name, value in record.headers() or []}
            found.append(facts | {"raw": record.value(), "record_key": record.key()})
        return found

    # Pipelines

    def write(self, text: str, name: str = "pipe.toml") -> Path:
        path = self.directory / name
        path.write_text(f'[kafka]\n"bootstrap.servers" = "{self.bootstrap}"\n{text}')
        return path

    def pipeline(self, text: str, name: str = "pipe.toml") -> Pipeline:
        return load(self.write(text, name))

    def run(self, spark: Any, pipeline: Pipeline, *, retries: int | None = 4) -> PipelineRun:
        """Once, to its end; whether it went well is in `problem`. On a busy machine Spark's workers may start too late,
        which is tried again."""
        run = PipelineRun(spark, pipeline, self.events, once=True, retries=retries)
        run.prepare()
        Supervisor([run]).run()
        return run

    def run_well(self, spark: Any, pipeline: Pipeline) -> PipelineRun:
        run = self.run(spark, pipeline)
        assert run.problem is None, run.problem
        return run


def at_least_once(file: str) -> str:
    """The same pipeline without transactions; each topic of its sinks has one partition."""
    return file.replace("partitions = 1", 'partitions = 1\ndelivery = "at_least_once"')


def wait_until(condition: Callable[[], Any], problem: Callable[[], str], wait_s: float = WAIT_S) -> Any:
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(problem())


def conf_arguments(**more: str) -> list[str]:
    settings = SETTINGS | more
    return [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]


def start_command(
    *arguments: str, cwd: Path, log: Path, environ: dict[str, str] | None = None
) -> "subprocess.Popen[str]":
    """`odradek pipeline …` as a process, in a session of its own so that a test can end all of it."""
    command = [sys.executable, "-m", "odradek", "pipeline", *arguments]
    with log.open("a") as errors:
        return subprocess.Popen(
            command,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **(environ or {})},
            start_new_session=True,
        )
