"""Why a record could not be decoded, in words.

Spark says only that a value does not fit. Few records are rejected, so each is examined again here, in plain
Python, to find the field and what is wrong with it. Spark decides; this only explains.
"""

import csv
import io
import json
from datetime import datetime
from typing import Any

from odradek.spark.typed.avro import AvroError, Decoder

GENERIC = "the value does not fit the schema"
SHOWN_CHARACTERS = 60
WHOLE_NUMBERS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
FRACTIONS = ("float", "double")


def reason_for(form: str, schema: dict[str, Any], value: bytes | None, avro: Decoder | None = None) -> str:
    """`schema` is Spark's, as JSON."""
    if value is None:
        return "the value is null"
    if form == "avro":
        return _avro_reason(avro, value)
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return f"the value is not UTF-8: byte {error.start} is 0x{value[error.start]:02x}"
    if not text.strip():
        return "the value is empty"
    if form == "json":
        return _json_reason(text, schema)
    if form == "csv":
        return _csv_reason(text, schema)
    return GENERIC


def _avro_reason(avro: Decoder | None, value: bytes) -> str:
    try:
        if avro is not None:
            avro.decode(value)
    except AvroError as error:
        return str(error)
    return GENERIC


def _json_reason(text: str, schema: dict[str, Any]) -> str:
    try:
        value, end = json.JSONDecoder().raw_decode(text.lstrip())
    except json.JSONDecodeError as error:
        problem = error.msg.removesuffix(" at")  # Python's messages end with it where a position is to follow
        return f"the value is not JSON: {problem[:1].lower()}{problem[1:]} at character {error.pos + 1}"
    except RecursionError:
        return "the value is not JSON that can be read: it is nested too deeply"
    rest = text.lstrip()[end:].strip()
    if rest:
        return f"text follows after the JSON value: {_shown(rest)}"
    if not isinstance(value, dict):
        return f"the value is not a JSON object but {_shown(text.strip())}"
    return _misfit(schema, value, "") or GENERIC


def _misfit(schema: dict[str, Any], value: dict[str, Any], prefix: str) -> str:
    for field in schema["fields"]:
        name, found = f"{prefix}{field['name']}", value.get(field["name"])
        if found is None:
            if not field["nullable"]:
                return (
                    f"field '{name}' is missing" if field["name"] not in value else f"field '{name}' is null"
                )
            continue
        problem = _type_problem(field["type"], found, name)
        if problem:
            return problem
    return ""


def _type_problem(kind: Any, found: Any, name: str) -> str:
    wanted = kind if isinstance(kind, str) else kind["type"]
    if wanted == "struct":
        return _misfit(kind, found, f"{name}.") if isinstance(found, dict) else _not(name, "an object", found)
    if wanted == "array":
        if not isinstance(found, list):
            return _not(name, "an array", found)
        problems = (
            _type_problem(kind["elementType"], one, f"{name}[{number}]")
            for number, one in enumerate(found)
            if one is not None
        )
        return next((problem for problem in problems if problem), "")
    if wanted == "map":
        return "" if isinstance(found, dict) else _not(name, "an object", found)
    return _primitive_problem(wanted, found, name)


def _primitive_problem(wanted: str, found: Any, name: str) -> str:
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    if wanted in WHOLE_NUMBERS:
        if not isinstance(found, int) or isinstance(found, bool):
            return _not(name, "a whole number", found)
        limit = 1 << WHOLE_NUMBERS[wanted]
        return "" if -limit <= found < limit else _not(name, f"within the range of {wanted}", found)
    if wanted in FRACTIONS or wanted.startswith("decimal"):
        return "" if is_number else _not(name, "a number", found)
    if wanted == "boolean":
        return "" if isinstance(found, bool) else _not(name, "true or false", found)
    if wanted in ("timestamp", "timestamp_ntz", "date"):
        return "" if is_number or _is_time(found) else _not(name, f"a {wanted}", found)
    return ""


def _is_time(found: Any) -> bool:
    try:
        datetime.fromisoformat(found)
    except (TypeError, ValueError):
        return False
    return True


def _csv_reason(text: str, schema: dict[str, Any]) -> str:
    rows = list(csv.reader(io.StringIO(text)))
    if len(rows) > 1:
        return "there is more than one line in the value"
    wanted = len(schema["fields"])
    if rows and len(rows[0]) != wanted:
        return f"the value has {len(rows[0])} columns, the schema {wanted}"
    return f"{GENERIC}: {_shown(text)}"


def _not(name: str, wanted: str, found: Any) -> str:
    return f"field '{name}' is not {wanted} but {_shown(json.dumps(found, ensure_ascii=False))}"


def _shown(text: str) -> str:
    text = text.encode(errors="backslashreplace").decode()  # half of a surrogate pair, which JSON can have
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
