"""Source, sink and a pipeline over TLS with a password, by Java's setting names."""

import pytest

from odradek.testing import broker as secure_broker
from tests.pipeline.lab import Lab

COPY = """
{security}

[sources.orders]
topic = "{orders}"
schema = "id BIGINT NOT NULL"

[sinks.copies]
from = "orders"
topic = "{copies}"
partitions = 1
"""


@pytest.fixture(scope="module")
def protected():
    with secure_broker(security="SASL_SSL") as kafka:
        yield kafka


def options(kafka) -> dict[str, str]:
    named = {f"kafka.{name}": value for name, value in kafka.login.java.items()}
    return {"kafka.bootstrap.servers": kafka.bootstrap, **named}


def test_rows_go_to_a_protected_topic_and_come_back(spark, protected, tmp_path, monkeypatch):
    orders, copies = protected.create_topic(), protected.create_topic()
    frame = spark.range(100).selectExpr("concat('{\"id\": ', id, '}') AS value")
    frame.write.format("odradek").options(**options(protected)).option("topic", orders).mode("append").save()
    read = spark.read.format("odradek").options(**options(protected)).option("subscribe", orders).load()
    assert read.count() == 100
    monkeypatch.setenv("JAAS", protected.login.java["sasl.jaas.config"])
    settings = {**protected.login.java, "sasl.jaas.config": "${JAAS}"}
    lines = "".join(f'"{name}" = "{value}"\n' for name, value in settings.items())
    lab = Lab(protected.bootstrap, tmp_path)
    pipeline = lab.pipeline(COPY.format(security=lines, orders=orders, copies=copies))
    lab.run_well(spark, pipeline)
    written = spark.read.format("odradek").options(**options(protected)).option("subscribe", copies).load()
    assert written.count() == 100
