"""`explain`: which sinks share a query, and Spark's plan of every query, over the stream or over a batch of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.pipeline.check.sharing import Shape, candidates, shape, shape_lines
from odradek.pipeline.check.weaving import StreamReader, Weaver
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.run.outputs import QueryId, rejects_of
from odradek.pipeline.run.queries import Query
from odradek.pipeline.run.shared_query import SharedQuery
from odradek.pipeline.session import new_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def explain(spark: "SparkSession", pipeline: Pipeline, mode: str, show: Callable[[str], None]) -> None:
    found = _shape(spark, pipeline)
    for line in shape_lines(pipeline, found):
        show(line)
    for group in found.groups:
        query = SharedQuery(spark, pipeline, group, once=True, show=show)
        show(f"-- {query.label}: what is read and decoded once")
        query.frame().explain(mode=mode)
        for output in query.outputs:
            show(f"-- {output.label}: what is made of each batch of it")
            query.woven(output).explain(mode=mode)
    alone = [
        *(QueryId("sink", name) for name in found.sinks),
        *(rejects_of(pipeline, name) for name in found.rejects),
    ]
    for identity in alone:
        show(f"-- {identity.label}")
        Query(spark, pipeline, identity, once=True, show=show).frame().explain(mode=mode)


def _shape(spark: "SparkSession", pipeline: Pipeline) -> Shape:
    session = new_session(spark)
    woven = Weaver(session, pipeline, StreamReader(session, pipeline, "explain")).weave()
    return shape(pipeline, woven.graph, candidates(pipeline, woven), Checkpoint(pipeline))
