"""Sending dead letters again, after the cause of their failure was fixed.

Dead letters with a record go back to the topic they came from, or to another (`to`), with their key, value, headers
and time; records that came from files become a new file next to the others. The progress of a replay is kept next to
the checkpoint, so that the next one takes only new ones. Dead letters with a row, because its record was no longer
known, or with only a part of a large record, are not sent.
"""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipeline import sources
from odradek.pipeline.checkpoint import Checkpoint, write_file
from odradek.pipeline.dead_letters import FACTS, HEADER_TYPE, PREFIX
from odradek.pipeline.definition import FileSource, Pipeline, TopicSource
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.topics import topics_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_SCHEMA = (
    "pipeline string, version string, stage string, name string, content string, reason string, topic string, "
    "`partition` int, `offset` bigint, `timestamp` bigint, file string, key string, value string, "
    "headers array<struct<key: string, value: string>>"
)


@dataclass
class Replayed:
    sent: dict[str, int] = field(default_factory=dict)
    kept: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"sent": self.sent, "kept": self.kept, "reasons": self.reasons}


class Replay:
    def __init__(
        self, spark: "SparkSession", pipeline: Pipeline, *, to: str | None, everything: bool
    ) -> None:
        if pipeline.dead_letters is None:
            raise PipelineError("this pipeline has no [dead_letters]", pipeline.document.path)
        self._spark, self._pipeline, self._target = spark.newSession(), pipeline, pipeline.dead_letters
        self._to = to
        self._place = Checkpoint(pipeline).directory / "replayed.json"
        self._done: dict[str, Any] = {} if everything else self._read_place()

    def _read_place(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._place.read_text())
            return found
        except FileNotFoundError:
            return {}

    def run(self, *, dry: bool) -> Replayed:
        letters, done = self.letters()
        result = Replayed()
        if letters is None:
            return result
        letters = letters.where(F.col("pipeline") == self._pipeline.name).cache()
        try:
            for row in letters.groupBy("reason").count().collect():
                result.reasons[row["reason"]] = row["count"]
            result.kept = letters.where(F.col("content") != "record").count()
            records = letters.where(F.col("content") == "record")
            self._to_topics(records.where(F.col("topic").isNotNull()), result, dry)
            self._to_files(records.where(F.col("file").isNotNull()), result, dry)
        finally:
            letters.unpersist()
        if not dry:
            write_file(self._place, json.dumps(done))
        return result

    # Reading

    def letters(self) -> tuple[DataFrame | None, dict[str, Any]]:
        """All that have not been replayed, and the progress to store once they are."""
        return self._from_topic() if self._target.topic is not None else self._from_files()

    def _from_topic(self) -> tuple[DataFrame | None, dict[str, Any]]:
        declaration = self._target.topic
        assert declaration is not None
        with topics_of(self._pipeline, declaration.kafka, ("dead_letters", "topic")) as topics:
            ending = topics.latest([declaration.topic])
            starting = topics.earliest([declaration.topic])
        for one, offset in self._done.get(declaration.topic, {}).items():
            if one in starting[declaration.topic]:
                starting[declaration.topic][one] = max(offset, starting[declaration.topic][one])
        if starting == ending:
            return None, ending
        options = sources.kafka_options(declaration.kafka) | {"includeHeaders": "true"}
        options |= {"startingOffsets": json.dumps(starting), "endingOffsets": json.dumps(ending)}
        records = self._spark.read.format("odradek").options(**options, subscribe=declaration.topic).load()
        place = F.concat_ws("/", F.col("topic"), F.col("partition"), F.col("offset"))
        facts = {name: _fact(name) for name in FACTS}
        own = F.filter(
            F.coalesce(F.col("headers"), F.array().cast(HEADER_TYPE)),
            lambda header: ~F.startswith(header["key"], F.lit(PREFIX)),
        )
        columns = [facts[name].alias(name) for name in FACTS]
        return records.select("key", "value", own.alias("headers"), place.alias("letter"), *columns), ending

    def _from_files(self) -> tuple[DataFrame | None, dict[str, Any]]:
        directory = Path(self._pipeline.path(self._target.path))
        seen = set(self._done.get("files", []))
        files = sorted(
            str(path)
            for path in directory.rglob("*.json")
            if path.stat().st_size and not path.name.startswith(("_", "."))
        )
        new = [path for path in files if path not in seen]
        if not new:
            return None, {"files": files}
        letters = self._spark.read.schema(FILE_SCHEMA).json(new)
        headers = F.transform(
            "headers",
            lambda header: F.struct(header["key"].alias("key"), F.unbase64(header["value"]).alias("value")),
        )
        letters = letters.withColumns(
            {
                "key": F.unbase64("key"),
                "value": F.unbase64("value"),
                "headers": F.coalesce(headers, F.array().cast(HEADER_TYPE)),
                "letter": F.input_file_name(),
            }
        )
        return letters, {"files": files}

    # Writing

    def _to_topics(self, records: DataFrame, result: Replayed, dry: bool) -> None:
        target = F.lit(self._to) if self._to else F.col("topic")
        counts = records.groupBy(target.alias("topic")).count().collect()
        for row in counts:
            result.sent[row["topic"]] = row["count"]
        if dry or not counts:
            return
        replayed = F.struct(
            F.lit(f"{PREFIX}replayed").alias("key"), F.col("letter").cast("binary").alias("value")
        )
        written = records.select(
            target.alias("topic"),
            "key",
            "value",
            F.concat("headers", F.array(replayed)).alias("headers"),
            F.timestamp_millis(F.col("timestamp").cast("bigint")).alias("timestamp"),
        )
        options = sources.kafka_options(self._kafka())
        written.write.format("odradek").options(**options).mode("append").save()

    def _kafka(self) -> Any:
        for source in self._pipeline.sources.values():
            if isinstance(source.origin, TopicSource):
                return source.origin.kafka
        assert self._target.topic is not None
        return self._target.topic.kafka

    def _to_files(self, records: DataFrame, result: Replayed, dry: bool) -> None:
        """A line of a file back into the directory it came from, in a new file."""
        for name, source in self._pipeline.sources.items():
            if not isinstance(source.origin, FileSource):
                continue
            lines = [
                bytes(row["value"]) for row in records.where(F.col("name") == name).select("value").collect()
            ]
            if not lines:
                continue
            directory = Path(self._pipeline.path(source.origin.path))
            result.sent[str(directory)] = len(lines)
            if not dry:
                text = b"\n".join(lines) + b"\n"
                path = directory / f"replayed-{time.time_ns()}.{source.format}"
                temporary = path.with_name(f".{path.name}")
                temporary.write_bytes(text)
                temporary.replace(path)


def _fact(name: str) -> Any:
    value = F.filter("headers", lambda header: header["key"] == F.lit(f"{PREFIX}{name}"))
    text = F.try_element_at(value, F.lit(-1))["value"].cast("string")
    return (
        text.cast("int")
        if name == "partition"
        else text.cast("bigint")
        if name in ("offset", "timestamp")
        else text
    )


def newest_letters(spark: "SparkSession", pipeline: Pipeline, rows: int) -> list[dict[str, Any]]:
    """As plain values, the newest last."""
    replay = Replay(spark, pipeline, to=None, everything=True)
    letters, _ = replay.letters()
    if letters is None:
        return []
    letters = letters.where(F.col("pipeline") == pipeline.name)
    found = letters.orderBy(F.col("timestamp").desc_nulls_last(), "letter").limit(rows)
    value = F.coalesce(F.try_validate_utf8(F.col("value").cast("string")), F.base64("value")).alias("value")
    return [row.asDict() for row in reversed(found.select(*FACTS, value).collect())]
