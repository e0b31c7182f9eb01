"""Numbered batches written exactly once to Apache Kafka, by the tests that our own broker has to pass."""

import pytest

from tests.ledger import program, test_ledger_broker
from tests.spark.spark_topics import Topics
from tools.peer.kafka import KafkaPeer


@pytest.fixture(scope="module")
def broker(kafka: KafkaPeer) -> KafkaPeer:
    Topics(kafka.bootstrap).create(partitions=2, name=program.TOPIC)
    return kafka


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_request(broker, after):
    test_ledger_broker.test_killed_at_every_request(broker, after)


def test_a_second_process_stops_the_first(broker):
    test_ledger_broker.test_a_second_process_stops_the_first(broker)


def test_a_batch_that_takes_longer_than_its_timeout_is_written_again(broker):
    test_ledger_broker.test_a_batch_that_takes_longer_than_its_timeout_is_written_again(broker)
