"""The setup of Spark's Python processes, whatever they do: tasks, planning, the source of a stream.

**Garbage.** A worker serves many tasks, and collects garbage after each of them. With numba, Arrow and pandas in
memory that takes as long as a small task itself, and finds nothing: what the first task imported stays as
long as the process. So it is excluded from all later collections.

**Log.** Logging is not set up in these processes, and Python would print bare messages. Their standard error is
the JVM's, which on one machine is the driver's; our lines go there, with time and level.

**Failures.** Spark shows a Python error with its stack, several times over, with our message somewhere in it. Our own
errors need no stack: they are raised bare, and Spark is told to leave out the frames. All others are bugs, and keep
theirs.
"""

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from odradek.archive.failures import ArchiveError
from odradek.client.cluster import MissingTopic
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import TimedOut
from odradek.errors import KafkaError
from odradek.spark.options import InvalidColumn, InvalidOption, NoTable
from odradek.spark.planning import DataLoss

OWN_ERRORS = (
    ArchiveError,
    InvalidOption,
    NoTable,
    InvalidColumn,
    DataLoss,
    TimedOut,
    ConnectionLost,
    MissingTopic,
    KafkaError,
)
HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"  # read by Spark in the process that reports an error, which then ends
LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"

P = ParamSpec("P")
R = TypeVar("R")


@cache
def spare_what_stays() -> None:
    """To be called at the end of a task; only the first call does something."""
    gc.freeze()


def is_spark_process() -> bool:
    """True if Spark started this process, so that no code of the user has set it up."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


@cache
def set_up_logging() -> None:
    log = logging.getLogger("odradek")
    if is_spark_process() and not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(LINE))
        log.addHandler(handler)
        log.setLevel(logging.INFO)


def called_by_spark(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function that Spark calls in its own processes."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        set_up_logging()
        try:
            return function(*args, **kwargs)
        except OWN_ERRORS as error:
            raise bare(error) from None

    return call


def iterated_by_spark(function: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """The same for a generator, which fails while it is iterated."""

    @wraps(function)
    def iterate(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        set_up_logging()
        try:
            yield from function(*args, **kwargs)
        except OWN_ERRORS as error:
            raise bare(error) from None

    return iterate


def bare(error: Exception) -> Exception:
    if is_spark_process():
        os.environ[HIDE_TRACEBACK] = "1"
    return error.with_traceback(None)
