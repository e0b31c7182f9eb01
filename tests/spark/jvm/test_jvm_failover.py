"""Spark's own connector on three of our brokers, one of which dies."""

import pytest

from tests.spark.failover import check_a_stream_goes_on_when_a_broker_dies

pytestmark = pytest.mark.timeout(900)


def test_a_stream_of_the_connector_goes_on_when_a_broker_dies(spark, tmp_path):
    check_a_stream_goes_on_when_a_broker_dies(spark, "kafka", tmp_path)
