"""A small cluster to decide upon."""

from uuid import UUID

from odradek.controller.brokers import register_broker
from odradek.metadata.delta import apply_records
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import BrokerEndpoint


def apply(image, records):
    return apply_records(image, records, image.offset + max(len(records), 1), 1)[0]


def cluster(*broker_ids, fenced=()):
    image = MetadataImage("cluster")
    for broker_id in broker_ids:
        records = register_broker(
            image,
            broker_id,
            broker_epoch=image.offset + 1,
            incarnation_id=UUID(int=broker_id),
            endpoints=[BrokerEndpoint("PLAINTEXT", "localhost", 9092)],
            directories=[directory_of(broker_id)],
            is_fenced=broker_id in fenced,
        )
        image = apply(image, records)
    return image


def directory_of(broker_id):
    return UUID(int=0xD00 + broker_id)
