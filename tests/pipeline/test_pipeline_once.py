"""Pipelines that write each row once: batches that run again, dead letters, adoption, and what is said about it."""

from pathlib import Path

from confluent_kafka import Producer

from odradek.pipeline.kinds.topic_sink import TopicSinkKind
from odradek.pipeline.run.status import status
from tests.pipeline.lab import Lab, at_least_once
from tests.pipeline.test_pipeline_sharing import SHOP, ids, shop
from tests.spark.committed import forget_last_commit

TWICE = """
[sources.orders]
topic = "{orders}"
schema = "id BIGINT NOT NULL"

[sinks.copies]
from = "orders"
topic = "{copies}"
partitions = 1
"""


def queries_of(lab: Lab) -> list[Path]:
    """The checkpoints of all queries."""
    return [path.parent for path in (lab.directory / "checkpoints").rglob("commits")]


def reasons(lab: Lab, topic: str) -> list[str]:
    return sorted(letter["raw"].decode() for letter in lab.letters(topic))


def test_batches_that_run_again_write_nothing_a_second_time(spark, lab):
    """In a query that is shared by two sinks and the rejects, and in one with state."""
    topics = shop(lab)
    pipeline = lab.pipeline(SHOP.format(**topics))
    lab.fill(
        topics["orders"], [{"id": 1, "amount": 5}, {"id": 2, "amount": 20}, {"id": 3, "amount": -1}, b"x"]
    )
    lab.run_well(spark, pipeline)
    checkpoints = queries_of(lab)
    assert len(checkpoints) == 2
    for checkpoint in checkpoints:
        forget_last_commit(checkpoint)
    lab.fill(topics["orders"], [{"id": 4, "amount": 30}])
    lab.run_well(spark, pipeline)
    assert ids(lab, topics["good"]) == [1, 2, 4]
    assert ids(lab, topics["shares"]) == [2, 4]
    assert sorted(row["total"] for row in lab.values(topics["totals"])) == [5.0, 20.0, 50.0]
    assert reasons(lab, topics["dead"]) == ["x", '{"id": 3, "amount": -1}']


def test_a_record_that_a_sink_fails_on_is_a_dead_letter_of_the_batchs_transaction(spark, lab):
    topics = shop(lab)
    pipeline = lab.pipeline(SHOP.format(**topics))
    lab.fill(topics["orders"], [{"id": number, "amount": 20} for number in (12, 13, 14)])
    lab.run_well(spark, pipeline)
    assert ids(lab, topics["good"]) == [12, 13, 14]
    assert ids(lab, topics["shares"]) == [12, 14]
    assert len(lab.letters(topics["dead"])) == 1
    for checkpoint in queries_of(lab):
        forget_last_commit(checkpoint)
    lab.run_well(spark, pipeline)
    assert len(lab.letters(topics["dead"])) == 1
    assert ids(lab, topics["good"]) == [12, 13, 14]


def test_a_permanent_failure_of_one_sink_leaves_nothing_of_the_batch_in_the_others(spark, lab, monkeypatch):
    topics = shop(lab)
    lab.fill(topics["orders"], [{"id": 1, "amount": 20}])
    part = TopicSinkKind.part

    def part_or_fail(self, frame):
        if self.sink.name == "shares":
            raise RuntimeError("odradek.spark.failures.MissingTopic: the topic is gone")
        return part(self, frame)

    monkeypatch.setattr(TopicSinkKind, "part", part_or_fail)
    run = lab.run(spark, lab.pipeline(SHOP.format(**topics)))
    others = "good, rejects of orders, rejects of good"
    assert run.problem == f"shares (which shares a query with {others}): the topic is gone"
    assert lab.values(topics["good"]) == []


def test_a_checkpoint_that_was_written_at_least_once_is_adopted_and_status_shows_the_ledger(spark, lab):
    topics = {"orders": lab.topic(1), "copies": lab.fresh_name()}
    before = lab.pipeline(at_least_once(TWICE.format(**topics)))
    lab.fill(topics["orders"], [{"id": 1}], partitions=1)
    lab.run_well(spark, before)
    (query,) = status(before).queries
    assert query.ledger is None
    after = lab.pipeline(TWICE.format(**topics))
    lab.fill(topics["orders"], [{"id": 2}], partitions=1)
    lab.run_well(spark, after)
    assert ids(lab, topics["copies"]) == [1, 2]
    (query,) = status(after).queries
    assert query.ledger is not None
    assert (query.ledger["batch"], query.ledger["rows"]) == (query.batch, 1)
    assert query.ledger["name"] == "pipe.copies"


def test_records_of_aborted_transactions_are_not_read(spark, lab):
    topics = {"orders": lab.topic(1), "copies": lab.fresh_name()}
    producer = Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": topics["orders"]})
    producer.init_transactions(30)
    for number, ends in ((1, producer.abort_transaction), (2, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topics["orders"], value=f'{{"id": {number}}}')
        producer.flush(30)
        ends(30)
    lab.run_well(spark, lab.pipeline(TWICE.format(**topics)))
    assert ids(lab, topics["copies"]) == [2]


def test_a_second_process_ends_the_pipeline_and_says_why(spark, lab, monkeypatch):
    """It initializes between the ledger's record and EndTxn."""
    from odradek.client.transactions import TransactionalProducer

    topics = {"orders": lab.topic(1), "copies": lab.fresh_name()}
    pipeline = lab.pipeline(TWICE.format(**topics))
    lab.fill(topics["orders"], [{"id": 1}], partitions=1)
    commit, rivals = TransactionalProducer.commit, []

    def overtaken(self):
        if not rivals:
            own = self._cluster, self.transactional_id, self._settings, self.timeout_ms
            rivals.append(TransactionalProducer(*own))
            rivals[0].initialize()
        commit(self)

    monkeypatch.setattr(TransactionalProducer, "commit", overtaken)
    run = lab.run(spark, pipeline)
    assert run.problem is not None and "another process has begun to write" in run.problem
    assert lab.values(topics["copies"]) == []
    lab.run_well(spark, pipeline)
    assert ids(lab, topics["copies"]) == [1]
