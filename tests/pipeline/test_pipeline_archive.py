"""A pipeline whose source has its history in an archive."""

import json

import pytest

from odradek.archiving.archiver import Archiver, Order
from odradek.client.settings import ClientSettings
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.file.reading import load
from odradek.pipeline.kinds.registry import source_kind
from odradek.pipeline.run.failures import Failure, Kind, classify
from tests.pipeline.lab import Lab

FILE = """
[pipeline]
name = "history"
[sources.orders]
topic = "{topic}"
archive = "{archive}"
schema = "n INT NOT NULL"
[transforms.doubled]
sql = "select n * 2 as n from orders"
[sinks.out]
from = "doubled"
topic = "{topic}-out"
partitions = 1
[dead_letters]
topic = "{topic}-letters"
partitions = 1
"""


def delete_before(lab: Lab, topic: str, offset: int) -> None:
    from odradek.admin.access import Access
    from odradek.admin.places import Place
    from odradek.admin.topics import delete_records

    delete_records(Access(lab.bootstrap, {}), {Place(topic, 0): offset})


def test_a_pipeline_reads_the_history_and_then_the_topic(spark, lab: Lab):
    archive, topic = lab.directory / "archive", lab.topic(1)
    lab.fill(topic, [*({"n": number} for number in range(10)), {"n": "none"}], 1)
    host, _, port = lab.bootstrap.partition(":")
    order = Order(ClientSettings(((host, int(port)),)), str(archive), (topic,))
    Archiver(order, lambda done: None, lambda text: None).run_once()
    delete_before(lab, topic, 11)
    lab.fill(topic, ({"n": number} for number in range(10, 15)), 1)
    pipeline = lab.pipeline(FILE.format(topic=topic, archive=archive))
    lab.run_well(spark, pipeline)
    assert sorted(one["n"] for one in lab.values(f"{topic}-out")) == list(range(0, 30, 2))
    (letter,) = lab.letters(f"{topic}-letters")
    assert json.loads(letter["raw"]) == {"n": "none"} and letter["offset"] == "10"


def test_an_archive_that_is_not_there_is_named_with_its_line(lab: Lab):
    topic = lab.topic(1)
    pipeline = lab.pipeline(FILE.format(topic=topic, archive=lab.directory / "nowhere"))
    with pytest.raises(
        PipelineError, match=r"pipe.toml:8: sources.orders.archive: there is no archive of a topic at"
    ):
        source_kind(pipeline, pipeline.sources["orders"]).check_outside()


def test_failures_of_an_archive_are_told_from_those_that_pass():
    gone = "pyspark.errors.PythonException: odradek.archive.failures.OtherTopic: topic orders was deleted and created"
    assert classify(gone) == Failure(Kind.PERMANENT, "topic orders was deleted and created")
    full = "odradek.archive.failures.ArchiveError: cannot read the archive s3://bucket/orders: timed out"
    assert classify(full).kind is Kind.OTHER


def test_a_start_by_time_is_refused(lab: Lab):
    text = FILE.format(topic="orders", archive="/archive").replace(
        "archive =", 'start = "1700000000000"\narchive ='
    )
    with pytest.raises(PipelineError, match="an archive is not searched by time"):
        load(lab.write(text))
