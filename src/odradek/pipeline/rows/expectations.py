"""Requirements of a transform for its rows, and what happens to a row that does not meet one.

    dead_letter  the row becomes a dead letter, with the requirement as its reason
    drop         the row is left out
    warn         the row stays
    fail         the run ends

The first requirement of the file that a row does not meet decides, but for those that only warn. Every requirement is
counted by itself, by each sink's query that a row passes: a row may fail several.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.file.definition import DEAD_LETTER, FAIL, WARN, Pipeline, Transform
from odradek.pipeline.rows.decoding import held_in_place
from odradek.pipeline.rows.transforms import plain

REASON = "__reason"  # why a row becomes a dead letter
ACTION = "__action"  # what happens to a row that does not stay
MET = "__met"  # by requirement: whether the row meets it
ADDED = (REASON, ACTION, MET)
PLACE = ("_topic", "_partition", "_offset")

UNMET = "odradek.unmet."  # before what is observed: the transform's name, and in it its requirements
FAILED = "the action of this requirement is to end the run"


def check_requirements(pipeline: Pipeline, transform: Transform, frame: DataFrame) -> None:
    for text, condition in transform.require.items():
        key = (*transform.key, "require", text)
        try:
            kind = frame.select(F.expr(condition).alias("met")).dtypes[0][1]
        except (AnalysisException, ParseException) as error:
            raise pipeline.error(key, plain(error)) from None
        if kind != "boolean":
            raise pipeline.error(key, f"the condition is {kind}, it must be boolean")


def judged(pipeline: Pipeline, transform: Transform, frame: DataFrame) -> DataFrame:
    """The rows with what is decided about each; they are not filtered yet."""
    met = [F.coalesce(F.expr(condition), F.lit(False)) for condition in transform.require.values()]
    frame = frame.withColumn(MET, F.array(*met))
    action = reason = F.lit(None).cast("string")
    decided = enumerate(pipeline.actions_of(transform).items())
    for number, (text, done) in reversed([one for one in decided if one[1][1] != WARN]):
        is_met = F.col(MET)[number]
        action = F.when(~is_met, F.lit(done)).otherwise(action)
        said = F.lit(text if done == DEAD_LETTER else None).cast("string")
        reason = F.when(~is_met, said).otherwise(reason)
    return frame.withColumns({ACTION: action, REASON: reason})


def unmet_counts(transform: Transform) -> list[Column]:
    """Return what is observed of judged rows: for each requirement, the number of rows that do not meet it."""
    return [F.count_if(~F.col(MET)[at]).alias(f"{UNMET}{text}") for at, text in enumerate(transform.require)]


def kept(pipeline: Pipeline, transform: Transform, rows: DataFrame) -> DataFrame:
    """The rows that stay, of judged ones."""
    stays = F.col(ACTION).isNull()
    actions = pipeline.actions_of(transform)
    if FAIL in actions.values():
        stays = held_in_place(_or_failed(pipeline, transform, rows, stays))
    return rows.where(stays).drop(*ADDED)


def _or_failed(pipeline: Pipeline, transform: Transform, rows: DataFrame, stays: Column) -> Column:
    """The condition, or an error that names the requirement that ends the run."""
    reason = F.lit("")
    for number, (text, action) in reversed(list(enumerate(pipeline.actions_of(transform).items()))):
        if action == FAIL:
            hint = FAILED if text in transform.actions else "Declare [dead_letters] to set such rows aside"
            reason = F.when(~F.col(MET)[number], F.lit(f"{text}'. {hint}")).otherwise(reason)
    begin = F.lit(f"transform '{transform.name}': a row")
    said = F.concat(begin, _place(rows), F.lit(" does not meet '"), reason)
    return F.when(F.col(ACTION) == FAIL, F.raise_error(said).cast("boolean")).otherwise(stays)


def _place(rows: DataFrame) -> Column:
    """Say where a row came from, if it knows that."""
    if not all(rows.columns.count(name) == 1 for name in PLACE):
        return F.lit("")
    topic, partition, offset = (F.coalesce(F.col(name).cast("string"), F.lit("?")) for name in PLACE)
    return F.concat(F.lit(" (record "), topic, F.lit("-"), partition, F.lit(" offset "), offset, F.lit(")"))


def unmet_of(pipeline: Pipeline, counts: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put what was observed, by transform, into the words of batch events; requirements that all rows met are left
    out.
    """
    found = []
    for name, rows in counts.items():
        actions = pipeline.actions_of(pipeline.transforms[name])
        found += [
            {"stage": name, "requirement": text, "action": action, "rows": int(rows[f"{UNMET}{text}"])}
            for text, action in actions.items()
            if rows.get(f"{UNMET}{text}")
        ]
    return found
