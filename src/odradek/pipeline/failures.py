"""What a failure of a query means for the run: wait, retry, make dead letters, or give up.

Spark wraps everything that goes wrong in a batch into one exception, with the cause as text. SQLSTATE says what
kind it is: class 22 is data that an expression cannot handle. Failures of our source and sink are recognised by the
names of their exceptions, refusals of a database by those of JDBC.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    OUTAGE = "outage"
    DATA = "data"
    PERMANENT = "permanent"
    OTHER = "other"


@dataclass(frozen=True)
class Failure:
    kind: Kind
    reason: str


SQLSTATE = re.compile(r"SQLSTATE: (\w{5})")
OUTAGE = re.compile(r"\b(?:TimedOut|ConnectionLost)\b[^:\n]*: *([^\n]*)")
OURS = re.compile(r"\b(?:DataLoss|InvalidOption|InvalidColumn|MissingTopic|InvalidProperty): ([^\n]*)")
USER_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] ([^\n]*?)(?: SQLSTATE|\n|$)")
SPARK_MESSAGE = re.compile(r"\[([A-Z][A-Z0-9_.]{3,})\] (?=([^\n]*))")
PYTHON_ERROR = re.compile(r"^(?:\s*)([A-Za-z_][\w.]*(?:Error|Exception)): ([^\n]*)$", re.MULTILINE)
JAVA_ERROR = re.compile(r"(?:Caused by: )?([a-z][\w.]*\.[A-Z]\w*(?:Exception|Error)): ([^\n]*)")
ROW_REFUSED = re.compile(
    r"SQLIntegrityConstraintViolationException|SQLDataException|DataTruncation|SQLState: 2[23]"
)
REFUSAL = re.compile(
    r"(?:SQLIntegrityConstraintViolationException|SQLDataException|DataTruncation): ([^\n]*)"
)
PERMANENT_CODES = (
    "STREAMING_QUERY_EVOLUTION_ERROR",
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STREAMING_STATEFUL_OPERATOR",
    "INCOMPATIBLE",
    "DATA_SOURCE_NOT_FOUND",
)
DATA_STATES = ("22", "P0001")
BRIDGE = "Py4JJavaError"
WRAPPERS = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "TASK_WRITE_FAILED", "FAILED_EXECUTE_UDF")


def classify(text: str) -> Failure:
    """By the text of the exception, which has all causes in it."""
    if (found := OURS.search(text)) is not None:
        return Failure(Kind.PERMANENT, _clean(found[1]))
    if (found := OUTAGE.search(text)) is not None:
        return Failure(Kind.OUTAGE, _clean(found[1]) or "no broker responds")
    if (found := USER_RAISED.search(text)) is not None:
        return Failure(Kind.DATA, _clean(found[1]))
    if ROW_REFUSED.search(text):
        return Failure(Kind.DATA, refusal(text))
    reason = _reason(text)
    if any(code in text for code in PERMANENT_CODES):
        return Failure(Kind.PERMANENT, reason)
    states = SQLSTATE.findall(text)
    if any(state.startswith(DATA_STATES) for state in states) or _in_user_code(text):
        return Failure(Kind.DATA, reason)
    return Failure(Kind.OTHER, reason)


def _in_user_code(text: str) -> bool:
    """A Python function of the user's raised: its traceback does not end in our source or sink."""
    return "PythonException" in text and "odradek/spark/" not in text and "odradek/client/" not in text


def refusal(text: str) -> str:
    """Why a database refused a row."""
    found = REFUSAL.search(text)
    return _clean(found[1]) if found else _reason(text)


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
