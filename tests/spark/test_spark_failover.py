"""Source and sink on three brokers, one of which dies."""

import pytest

from tests.spark.failover import check_a_stream_goes_on_when_a_broker_dies

pytestmark = pytest.mark.timeout(900)


def test_a_stream_goes_on_when_a_broker_dies(spark, tmp_path):
    check_a_stream_goes_on_when_a_broker_dies(spark, "odradek", tmp_path)
