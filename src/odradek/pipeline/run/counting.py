"""Tells the cluster how many rows did not meet a requirement, so that consoles can show it (`ledger.counts`).

Totals are sent whenever they have changed, and all that are known at a start. A run does not wait for that: while the
cluster does not take them, they are sent again now and then, and `status` knows them all the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from odradek.client.cluster import MissingTopic, borrow_cluster
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import TimedOut
from odradek.errors import KafkaError
from odradek.ledger.counts import CountsTopic, SinkCounts, sink_counts
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.kinds.registry import sink_kinds, source_kinds
from odradek.pipeline.kinds.topics import client_settings

PATIENCE_S = 5.0
PAUSE_S = 60.0


def counting_cluster(pipeline: Pipeline) -> Mapping[str, str] | None:
    """The client settings of the cluster that is told: that of the first topic in the file, if there is one."""
    read = (kind.subscription for kind in source_kinds(pipeline).values())
    written = (kind.kafka for kind in sink_kinds(pipeline).values())
    found = (*(topics.kafka for topics in read if topics is not None), *written)
    return next((settings for settings in found if settings is not None), None)


class Counting:
    """The counts of one pipeline that are still to be told."""

    def __init__(self, pipeline: Pipeline, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._pipeline, self._tell, self._clock = pipeline, tell, clock
        self._checkpoint, self._kafka = Checkpoint(pipeline), counting_cluster(pipeline)
        self._waiting: dict[str, SinkCounts] = {}
        self._not_before_s = 0.0
        self._told = ""

    def take(self, sink: str) -> None:
        """The sink's totals, which the checkpoint knows."""
        if self._kafka is not None and (unmet := self._checkpoint.unmet("sink", sink)):
            self._waiting[sink] = sink_counts(self._pipeline.name, sink, unmet)

    def send(self, *, is_last: bool = False) -> None:
        """Send what is waiting. After a failure the next attempt has time, but for the last one."""
        if not self._waiting or (self._clock() < self._not_before_s and not is_last):
            return
        try:
            self._write()
            self._waiting.clear()
        except (TimedOut, ConnectionLost, KafkaError, MissingTopic) as error:
            self._not_before_s = self._clock() + PAUSE_S
            if self._told != str(error):
                self._told = str(error)
                self._tell(f"consoles do not learn what requirements have counted, but status does: {error}")

    def _write(self) -> None:
        assert self._kafka is not None
        settings = replace(
            client_settings(self._kafka),
            connect_timeout_s=PATIENCE_S,
            request_timeout_s=PATIENCE_S,
            api_timeout_s=PATIENCE_S,
        )
        with borrow_cluster(settings) as cluster:
            CountsTopic(cluster).write(self._waiting.values(), PATIENCE_S)
