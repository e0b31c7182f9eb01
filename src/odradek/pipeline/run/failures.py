"""The consequences of a query's failure for the run: wait, retry, make dead letters, or give up.

Spark wraps everything that goes wrong in a batch into one exception, with the cause as text. SQLSTATE says what
kind it is: class 22 is data that an expression cannot handle. Failures of our source and sink are recognised by the
names of their exceptions, refusals of a database by those of JDBC. A function of the user's that raised is recognised
by the class of the exception, `PythonException`: its text is not the same in a stream and in a batch.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from pyspark.errors import PythonException

from odradek.client.cluster import MissingTopic
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import TimedOut
from odradek.errors import ErrorCode, KafkaError
from odradek.ledger.protocol import ExactlyOnceError, TransactionLost
from odradek.ledger.record import UnreadableRecord
from odradek.ledger.topic import NAME as LEDGER
from odradek.pipeline.kinds.database.access import DatabaseAway, DatabaseRefused, RowsRefused
from odradek.pipeline.kinds.function_sink import FunctionFailed
from odradek.pipeline.kinds.jdbc import ROW_REFUSED, refusal
from odradek.pipeline.kinds.sink import Refused
from odradek.pipeline.rows.expectations import FAILED
from odradek.spark.options import InvalidColumn, InvalidOption


class Kind(Enum):
    OUTAGE = "outage"
    DATA = "data"
    PERMANENT = "permanent"
    OTHER = "other"


@dataclass(frozen=True)
class Failure:
    kind: Kind
    reason: str
    needs_reset: bool = False  # the checkpoint's state or offsets do not fit the query


SQLSTATE = re.compile(r"SQLSTATE: (\w{5})")
OUTAGE = re.compile(r"\b(?:TimedOut|ConnectionLost)\b[^:\n]*: *([^\n]*)")
OURS = re.compile(
    r"\b(?:DataLoss|InvalidOption|InvalidColumn|MissingTopic|InvalidProperty"
    r"|OtherTopic|RecordsLost|MissingArchive|MissingExtra): ([^\n]*)"
)
USER_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] ([^\n]*?)(?: SQLSTATE|\n|$)")
SPARK_MESSAGE = re.compile(r"\[([A-Z][A-Z0-9_.]{3,})\] (?=([^\n]*))")
PYTHON_ERROR = re.compile(r"^(?:\s*)([A-Za-z_][\w.]*(?:Error|Exception)): ([^\n]*)$", re.MULTILINE)
JAVA_ERROR = re.compile(r"(?:Caused by: )?([a-z][\w.]*\.[A-Z]\w*(?:Exception|Error)): ([^\n]*)")
MISFIT = re.compile(
    r"\[(?:STATE_STORE_\w*(?:SCHEMA|TYPE_CHANGE|ROW_FORMAT|CONFIG_AFTER_RESTART)|STREAMING_STATEFUL_OPERATOR"
    r"|STREAM_STREAM_JOIN_INCOMPATIBLE|STREAMING_QUERY_EVOLUTION_ERROR)"
)
MALFORMED_FILE = re.compile(r"FAILED_READ_FILE.*MALFORMED_RECORD", re.DOTALL)  # a static side of a join
FULL_DISK = re.compile(
    r"No space left on device|\bENOSPC\b|os error 28\b|Errno 28\b|database or disk is full", re.IGNORECASE
)
PERMANENT_CODES = ("INCOMPATIBLE", "DATA_SOURCE_NOT_FOUND")
DATA_STATES = ("22", "P0001")
BRIDGE = "Py4JJavaError"
WORKER_ERROR = "PythonException"
FRAME = re.compile(r'File "([^"]+)", line \d+')
OUR_CODE = re.compile(r"\bodradek/(?:(?:spark|client|pipeline|archive)/|delta\.py)")
WRAPPERS = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "TASK_WRITE_FAILED", "FAILED_EXECUTE_UDF")

UNENCODABLE = re.compile(r"\bUnencodable: ([^\n]*)")  # a row that an Avro schema does not take
DATABASE = re.compile(r"\bDatabase(Away|Refused): ([^\n]*)")
DATABASES = {RowsRefused: Kind.DATA, DatabaseRefused: Kind.PERMANENT, DatabaseAway: Kind.OTHER}

WITHOUT_THEM = 'A sink with delivery = "at_least_once" does not need that right'


def classify(error: BaseException | str) -> Failure:
    """Classify a failure by the text of the exception, which has all causes in it, and by the classes of its causes."""
    text = str(error)
    if isinstance(error, ExactlyOnceError) and not isinstance(error, TransactionLost):
        return Failure(Kind.PERMANENT, text)
    if isinstance(error, KafkaError) and _lacks_a_right_for_transactions(error):
        return Failure(Kind.PERMANENT, f"{text}. {WITHOUT_THEM}")
    if isinstance(error, RowsRefused | DatabaseRefused | DatabaseAway):
        return Failure(DATABASES[type(error)], text)
    if isinstance(error, FunctionFailed):  # whatever its text may look like
        return Failure(Kind.OTHER, _clean(text))
    if isinstance(error, TimedOut | ConnectionLost):
        return Failure(Kind.OUTAGE, text)
    if isinstance(error, InvalidOption | InvalidColumn | MissingTopic | Refused | UnreadableRecord):
        return Failure(Kind.PERMANENT, text)
    if (found := OURS.search(text)) is not None:
        return Failure(Kind.PERMANENT, _clean(found[1]))
    if (found := UNENCODABLE.search(text)) is not None:
        return Failure(Kind.DATA, _clean(found[1]))
    if (found := DATABASE.search(text)) is not None:  # of a table that is read
        return Failure(Kind.OTHER if found[1] == "Away" else Kind.PERMANENT, _clean(found[2]))
    if (found := USER_RAISED.search(text)) is not None and FAILED in found[1]:
        return Failure(Kind.PERMANENT, _clean(found[1]))
    if (found := OUTAGE.search(text)) is not None:
        return Failure(Kind.OUTAGE, _clean(found[1]) or "no broker responds")
    if (found := USER_RAISED.search(text)) is not None:
        return Failure(Kind.DATA, _clean(found[1]))
    if ROW_REFUSED.search(text):
        return Failure(Kind.DATA, refusal(text))
    if FULL_DISK.search(text):
        return Failure(Kind.OTHER, f"a disk is full; free some space there: {_reason(text)}")
    reason = _reason(text)
    if MALFORMED_FILE.search(text):
        return Failure(Kind.PERMANENT, reason)
    if MISFIT.search(text):
        return Failure(Kind.PERMANENT, reason, needs_reset=True)
    if any(code in text for code in PERMANENT_CODES):
        return Failure(Kind.PERMANENT, reason)
    states = SQLSTATE.findall(text)
    if any(state.startswith(DATA_STATES) for state in states) or _in_user_code(error):
        return Failure(Kind.DATA, reason)
    return Failure(Kind.OTHER, reason)


def _lacks_a_right_for_transactions(error: KafkaError) -> bool:
    """True if the missing right is one that only a sink needs that writes exactly once."""
    if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return LEDGER in str(error)
    return error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _in_user_code(error: BaseException | str) -> bool:
    """True if a Python function of the user's raised: the worker's traceback does not end in our own code."""
    raised = _raised_in_worker(error)
    frames = [] if raised is None else FRAME.findall(raised)
    return raised is not None and not (frames and OUR_CODE.search(frames[-1]))


def _raised_in_worker(error: BaseException | str) -> str | None:
    """Return what a Python worker raised, with its traceback."""
    if isinstance(error, str):
        return error if WORKER_ERROR in error else None
    for cause in _causes(error):
        if isinstance(cause, PythonException):
            return str(cause)
    return _raised_in_worker(str(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Spark keeps Java's causes in an attribute of its own."""
    while error is not None:
        yield error
        error = getattr(error, "_cause", None) or error.__cause__


def _reason(text: str) -> str:
    for found in SPARK_MESSAGE.finditer(text):
        if found[1].split(".")[0] not in WRAPPERS:
            return _clean(found[2])
    python = [found for found in PYTHON_ERROR.findall(text) if not found[0].endswith(BRIDGE)]
    if python:
        return _clean(f"{python[-1][0]}: {python[-1][1]}")
    java = list(_java_causes(text))
    if java:
        return _clean(f"{java[-1][0].rsplit('.', 1)[-1]}: {java[-1][1]}")
    return _clean(text.strip().splitlines()[0]) if text.strip() else "the reason is not known"


def _java_causes(text: str) -> Iterable[tuple[str, str]]:
    """Java's exceptions, the cause last, without Python's that is only the bridge to them."""
    return (found for found in JAVA_ERROR.findall(text) if not found[0].endswith(BRIDGE))


def _clean(text: str) -> str:
    text = re.split(r" SQLSTATE: \w+", text)[0]
    return " ".join(text.split()).rstrip(". ") or "the reason is not known"


class Backoff:
    """Growing pauses: 1 s, doubled each time up to a minute; a batch that succeeds resets them."""

    FIRST_S, LONGEST_S = 1.0, 60.0

    def __init__(self) -> None:
        self.failures = 0

    def next_s(self) -> float:
        self.failures += 1
        return float(min(self.FIRST_S * 2 ** (self.failures - 1), self.LONGEST_S))

    def reset(self) -> None:
        self.failures = 0
