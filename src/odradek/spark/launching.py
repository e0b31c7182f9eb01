"""A Spark session with defaults for one machine, and the Python that its workers use.

Spark starts its Python workers, and the process that looks for data sources, with `PYSPARK_PYTHON`, or else with
the first `python3` on the path. If the program was started as `.venv/bin/python app.py` that is another Python, which
has neither Odradek nor Arrow: the format is "not found". So the Python that runs the program is the default here.
Spark reads the variable when its JVM starts: `import odradek.spark` has to come before the first session.

That Python has PySpark installed, with bytecode. But Spark lets its workers import the copy in `pyspark.zip`, which has
none: each process compiles it for most of a second, and every stream starts one for its source. On one machine the two
are the same PySpark, so workers are started by a script that leaves the zip out (`installed_pyspark`).
"""

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from odradek.spark.failures import show_last

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "spark.master"
LOGGING = Path(__file__).with_name("log4j2.properties")
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit: there is already a JVM, with its settings
PYTHON = "PYSPARK_PYTHON"
DRIVER_PYTHON = "PYSPARK_DRIVER_PYTHON"  # Spark prefers it for the processes next to the driver
WORKER_PYTHON = Path(__file__).with_name("worker_python.sh")
WORKER_PYTHON_RUNS = "ODRADEK_WORKER_PYTHON"


class SparkUnavailable(RuntimeError):
    """Spark cannot run here; the message says what is missing and how to get it."""


def use_this_python() -> None:
    """Let Spark's workers use the Python of this process, unless one is already set."""
    if SUBMITTED not in os.environ and sys.executable:
        os.environ.setdefault(PYTHON, sys.executable)


@contextmanager
def installed_pyspark(master: str | None) -> Iterator[None]:
    """A JVM that is started meanwhile lets its workers import PySpark as it is installed in this Python.

    Only on one machine, and only if the workers use this Python; otherwise nothing changes.
    """
    if not (_is_one_machine(master) and _has_the_pyspark_of_spark()):
        yield
        return
    os.environ |= {PYTHON: str(WORKER_PYTHON), WORKER_PYTHON_RUNS: sys.executable}
    try:
        yield
    finally:
        os.environ[PYTHON] = sys.executable


def _has_the_pyspark_of_spark() -> bool:
    if SUBMITTED in os.environ or DRIVER_PYTHON in os.environ or os.environ.get(PYTHON) != sys.executable:
        return False
    import pyspark
    from pyspark.find_spark_home import _find_spark_home

    if pyspark.SparkContext._gateway is not None:  # its JVM has the environment of its start
        return False
    installed = Path(pyspark.__file__).parent
    py4j = importlib.util.find_spec("py4j")
    return (
        installed.resolve() == Path(_find_spark_home()).resolve()
        and py4j is not None
        and Path(py4j.origin or "").is_file()
        and os.access(WORKER_PYTHON, os.X_OK)
    )


def session(
    name: str = "odradek",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    stderr: int | IO[Any] | None = None,
) -> "SparkSession":
    """The session of this process: the active one, or a new, quiet one for this machine.

    `settings` are Spark's and override every default. `master` is `local[*]` unless it is given here, in `settings`
    or to `spark-submit`. `stderr` gets the output of a new JVM and its Python workers; by default it is ours. An
    active session is returned with those of the settings that Spark lets a running session change. If the program
    ends with an error of ours, its message is printed again below Spark's.

    With `SPARK_REMOTE` set it is a session of that Spark Connect server, whose settings are its own.
    """
    from pyspark.sql import SparkSession

    from odradek.spark.environment import missing

    use_this_python()
    show_last()
    chosen: dict[str, Any] = dict(settings or {})
    if master is not None:
        chosen[MASTER] = master
    if "SPARK_REMOTE" not in os.environ and SparkSession.getActiveSession() is None:
        reason = missing()
        if reason is not None:
            raise SparkUnavailable(reason)
        where = chosen.get(MASTER) or _given_master()
        chosen = {"spark.app.name": name, **defaults(where), **chosen}
        with installed_pyspark(where):
            if stderr is not None:
                _launch_jvm(chosen, stderr)
            return SparkSession.builder.config(map=chosen).getOrCreate()
    return SparkSession.builder.config(map=chosen).getOrCreate()


def _given_master() -> str | None:
    """The setting of `spark-submit`, or of the variable that it would read."""
    if SUBMITTED not in os.environ:
        return os.environ.get("MASTER")
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return SparkConf().get(MASTER)


def _launch_jvm(settings: Mapping[str, str], stderr: int | IO[Any]) -> None:
    """Spark launches its JVM once per process; a later session shares it."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SUBMITTED in os.environ or SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    gateway = launch_gateway(conf, popen_kwargs={"stderr": stderr})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)


def defaults(master: str | None) -> dict[str, str]:
    """Settings of a new session. On a cluster only those that concern what the driver prints."""
    quiet = {
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={LOGGING}",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.python.filterPushdown.enabled": "true",  # for `archive_scan`
    }
    if not _is_one_machine(master):
        return quiet
    return quiet | {
        MASTER: master or "local[*]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 1)),
        "spark.ui.enabled": "false",
    }


def _is_one_machine(master: str | None) -> bool:
    return master is None or master == "local" or master.startswith("local[")
