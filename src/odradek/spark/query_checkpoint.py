"""The knowledge that a batch of a stream has of its query: Spark's id of it, and its checkpoint.

Spark tells `foreachBatch` the number of a batch and nothing else, but it sets the query's id for the thread, and knows
the query. Files of the checkpoint are read and written by Hadoop's file systems, as Spark does it, because they may be
anywhere.
"""

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from odradek.ledger.protocol import Adoption
from odradek.spark.options import InvalidOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID = "sql.streaming.queryId"
ADOPTION = "odradek-ledger.json"
UTF_8 = "UTF-8"
DEFAULT_ROOT = "spark.sql.streaming.checkpointLocation"  # of queries that have no location of their own
RANDOM = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
TEMPORARY = re.compile(f"temporary-{RANDOM}")  # Spark's, where there is no other
NAMELESS = re.compile(RANDOM)  # Spark's below the default root, if the query has no name


class QueryCheckpoint:
    def __init__(self, query_id: str, root: str, name: str, jvm: Any, hadoop: Any) -> None:
        self.query_id, self.root, self.name = query_id, root, name
        self._jvm, self._hadoop = jvm, hadoop

    @classmethod
    def of(cls, batch: "DataFrame") -> "QueryCheckpoint":
        """The query that runs in this thread."""
        context = batch.sparkSession.sparkContext
        query_id, jvm = context.getLocalProperty(QUERY_ID), context._jvm
        if query_id is None or jvm is None:
            raise InvalidOption("exactly once", "this is not a batch of a streaming query; use write_once")
        session: Any = batch.sparkSession._jsparkSession
        running = session.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query_id))
        hadoop = session.sessionState().newHadoopConf()
        name = str(running.name() or "")
        found = cls(query_id, str(running.resolvedCheckpointRoot()), name, jvm, hadoop)
        if found._is_lost_at_the_end(batch.sparkSession.conf.get(DEFAULT_ROOT, None)):
            raise InvalidOption(
                "checkpointLocation",
                "must be set for the query, with .option('checkpointLocation', …): the next start would not find the "
                "one that Spark has made up, and write all rows again",
            )
        return found

    def _is_lost_at_the_end(self, default_root: str | None) -> bool:
        """True if Spark chose the place, at random: under the default root, too, unless the query has a name."""
        parent, _, last = self.root.rpartition("/")
        if default_root is None or self.name or not NAMELESS.fullmatch(last):
            return TEMPORARY.fullmatch(last) is not None
        path = self._jvm.org.apache.hadoop.fs.Path(default_root)
        return str(path.getFileSystem(self._hadoop).makeQualified(path).toString()) == parent

    def fingerprint(self, batch: int) -> str:
        """Return a fingerprint of what the batch reads: Spark writes it down before the batch runs, and never changes
        it.
        """
        text = self._read(f"offsets/{batch}")
        assert text is not None, "Spark writes the offsets of a batch before it runs"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def adoption(self) -> Adoption | None:
        text = self._read(ADOPTION)
        if text is None:
            return None
        found = json.loads(text)
        return Adoption(int(found["first"]), str(found["topic_id"]))

    def adopt(self, adoption: Adoption) -> None:
        self.write_note(ADOPTION, json.dumps({"first": adoption.first, "topic_id": adoption.topic_id}))

    def note(self, name: str) -> str | None:
        """A text that was kept in the checkpoint."""
        return self._read(name)

    def write_note(self, name: str, text: str) -> None:
        """Whole or not at all: written under another name first."""
        target, new = self._path(name), self._path(f".{name}.new")
        files = target.getFileSystem(self._hadoop)
        stream = files.create(new, True)
        stream.write(bytearray(text.encode()))
        stream.hsync()
        stream.close()
        files.delete(target, False)
        if not files.rename(new, target):
            raise OSError(f"cannot write {name} in {self.root}")

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{name}")

    def _read(self, name: str) -> str | None:
        path = self._path(name)
        files = path.getFileSystem(self._hadoop)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, UTF_8))
        finally:
            stream.close()
