"""One quiet Spark for all pipelines of a process.

Java and Spark write to the terminal before they can be configured not to. So while the JVM is started, and only
then, standard output and error are a log file: the JVM and Spark's Python workers inherit that, and this process
gets its terminal back. `verbose` changes nothing.

Ctrl-C waits until Java responds, a few seconds. If PySpark is interrupted before that, it deletes the directory in
which Java is about to write its port; Java then fails to do so, and keeps running forever.

On one machine Java's classes are kept between runs (`odradek.spark.class_archive`), which halves what a start takes.

Every query is woven in its own session (`new_session`): views of two pipelines may have the same name.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.pipeline.file.errors import PipelineError
from odradek.spark import kernels
from odradek.spark.class_archive import java_options
from odradek.spark.environment import missing
from odradek.spark.launching import installed_pyspark, use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_SHUFFLE_PARTITIONS = 4
SOURCE_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "60000",
}

# The profile `small`, for runs of seconds: thorough compilation, by the JVM or by Spark, does not pay off.
SMALL = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}


def start(
    master: str | None,
    conf: Mapping[str, str],
    *,
    log_file: Path | None,
    python_path: Sequence[str] = (),
    small: bool = False,
    stores_classes: bool = False,
) -> "SparkSession":
    """Start Spark. Its log goes to the file; without one, to standard error. `small`: for few rows, by that profile.
    `stores_classes`: this run may store an archive of Java's classes for the next one, and compiled kernels."""
    reason = missing()
    if reason is not None:
        raise PipelineError(reason)
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    given = dict(conf)
    chosen = master or given.pop("spark.master", None) or os.environ.get("MASTER") or "local[*]"
    settings = SETTINGS | (SMALL if small else {}) | given
    if chosen.startswith("local"):
        settings.setdefault("spark.sql.shuffle.partitions", str(LOCAL_SHUFFLE_PARTITIONS))
        settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
        settings.setdefault("spark.driver.host", "127.0.0.1")
        own = settings.get("spark.driver.extraJavaOptions", "")
        if options := java_options("small" if small else "run", stores=stores_classes, given=own):
            settings.setdefault("spark.driver.defaultJavaOptions", options)
        if stores_classes:
            kernels.prepare()
    use_this_python()
    _extend_path(python_path)
    for name in (
        "SQLQueryContextLogger",
        "DataFrameQueryContextLogger",
        "py4j",
    ):  # we report exceptions, once
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    builder = SparkSession.builder.master(chosen).appName("odradek pipeline").config(map={**settings})
    with _redirected(log_file), installed_pyspark(chosen):
        try:
            with _interrupts_deferred():
                SparkContext._ensure_initialized(
                    conf=SparkConf().setMaster(chosen).setAll([*settings.items()])
                )
            spark = builder.getOrCreate()
            _keep_quiet_without_java(spark)
            return spark
        except Exception as error:
            raise PipelineError(
                f"Spark did not start at {chosen}: {first_line(error)}{_see(log_file)}"
            ) from None


def _keep_quiet_without_java(spark: "SparkSession") -> None:
    """Silence PySpark's threads, which print stack traces if Java dies. We say what happened, in one message."""
    logging.getLogger().addFilter(_is_not_from_py4j)
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def java_ended(wait_s: float = 0.0) -> str | None:
    """Say how Spark's Java process ended; None while it runs. After a lost connection it may take a moment."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:  # started by spark-submit, which watches it
        return None
    try:
        status = process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None
    how = f"it was killed by signal {-status}" if status < 0 else f"its exit status is {status}"
    return (
        f"Spark's Java process, the driver, ended unexpectedly: {how} (out of memory, perhaps). Run the same command "
        "again: it continues from the checkpoint"
    )


def connection_lost(error: BaseException) -> bool:
    """True if the error may come from a Java process that is gone."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

    is_java = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    return is_java or isinstance(error, (ConnectionError, EOFError))


def new_session(spark: "SparkSession", *, named_sources: bool = True) -> "SparkSession":
    """Make a session for one query. With named sources, checkpoints keep offsets by name, not by position in the
    query.
    """
    session = spark.newSession()
    session.conf.set(SOURCE_EVOLUTION, str(named_sources).lower())
    return session


def first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _see(log_file: Path | None) -> str:
    return "" if log_file is None else f" (Spark's log: {log_file})"


def _extend_path(directories: Sequence[str]) -> None:
    """Functions of the user's modules run here and in Spark's workers, which inherit PYTHONPATH."""
    for directory in reversed(directories):
        if directory not in sys.path:
            sys.path.insert(0, directory)
    inherited = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*directories, *inherited]))


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # Python interrupts no other
        yield
        return
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _redirected(log_file: Path | None) -> Iterator[None]:
    if log_file is None:
        yield
        return
    log_file.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with log_file.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
            for descriptor in kept:
                os.close(descriptor)
