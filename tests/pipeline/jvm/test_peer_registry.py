"""Topics in Avro with a real schema registry: schemas registered and checked, values read back by Confluent's own
deserializer."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.pipeline.check.checking import check
from odradek.pipeline.file.errors import PipelineError
from tests.pipeline.lab import Lab
from tests.pipeline.test_avro_sinks import GIVEN, PLAIN, SHOP
from tools.peer.kafka import PeerUnavailable
from tools.schema_registry import running_registry


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    try:
        with running_registry() as address:
            yield address
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


def deserialized(lab: Lab, topic: str, registry: str) -> list[Any]:
    """The values of a topic, as a consumer with Confluent's deserializer has them."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    read = AvroDeserializer(SchemaRegistryClient({"url": registry}))
    context = SerializationContext(topic, MessageField.VALUE)
    return [read(record.value(), context) for record in lab.records(topic)]


def test_a_schema_is_registered_evolves_and_is_read_by_others(spark, lab: Lab, registry: str):
    names = {"orders": lab.topic(1), "out": lab.topic(1)}
    subject = f"{names['out']}-value"
    text = SHOP.format(**names, columns=PLAIN, more=f'registry = "{registry}"\n')
    with pytest.raises(PipelineError, match=f"the registry has no subject '{subject}'"):
        check(spark, lab.pipeline(text))
    asks = text + "register = true\n"
    check(spark, lab.pipeline(asks))
    with pytest.raises(PipelineError, match=f"the registry has no subject '{subject}'"):
        check(spark, lab.pipeline(text))  # a check registers nothing
    lab.fill(names["orders"], [{"id": 1, "item": "a", "amount": 1.5}, {"id": 2}], 1)
    lab.run_well(spark, lab.pipeline(asks))
    first = [{"id": 1, "item": "a", "amount": 1.5}, {"id": 2, "item": None, "amount": None}]
    assert deserialized(lab, names["out"], registry) == first
    check(spark, lab.pipeline(text))
    wider = asks.replace(PLAIN, "id, item, amount, CAST(NULL AS STRING) AS shop")
    lab.fill(names["orders"], [{"id": 3, "item": "c"}], 1)
    lab.run_well(spark, lab.pipeline(wider))
    assert deserialized(lab, names["out"], registry) == [
        *first,
        {"id": 3, "item": "c", "amount": None, "shop": None},
    ]
    frames = {record.value()[:5] for record in lab.records(names["out"])}
    assert len(frames) == 2 and all(frame[:1] == b"\0" for frame in frames)


def test_what_the_registry_does_not_take_is_refused_by_a_check(spark, lab: Lab, registry: str):
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    names = {"orders": lab.topic(1), "out": lab.topic(1)}
    subject = f"{names['out']}-value"
    client = SchemaRegistryClient({"url": registry})
    client.register_schema(subject, Schema(json.dumps(GIVEN), "AVRO"))
    client.set_compatibility(subject_name=subject, level="BACKWARD")
    text = SHOP.format(**names, columns=PLAIN, more=f'registry = "{registry}"\n')
    check(spark, lab.pipeline(text))
    other = text.replace(PLAIN, "id, CAST(item AS BINARY) AS item") + "register = true\n"
    with pytest.raises(
        PipelineError, match=f"the schema is not compatible with the newest one of '{subject}'"
    ):
        check(spark, lab.pipeline(other))
    lab.fill(names["orders"], [{"id": 1, "item": "a"}], 1)
    lab.run_well(spark, lab.pipeline(text))
    assert deserialized(lab, names["out"], registry) == [
        {"id": 1, "item": "a", "amount": None, "since": 2026}
    ]
