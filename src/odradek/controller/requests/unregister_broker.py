"""UnregisterBroker (64): a broker will not come back. It leaves every ISR and ELR, and its registration is removed.

Its replicas stay assigned to it until they are reassigned. A broker that is not fenced is alive, and would continue
without a registration: unlike Kafka, this controller refuses to unregister it.
"""

from typing import Any

from odradek.controller.brokers import Records, begin_incarnation, registered_broker
from odradek.controller.controller import Terms
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import UnregisterBrokerRecord
from odradek.wire.messages.unregister_broker import UnregisterBrokerResponse


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, UnregisterBrokerResponse]:
    request: Any = part.request
    broker = registered_broker(image, request.broker_id)
    if not broker.is_fenced:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {broker.id} is alive: stop it first.")
    left = begin_incarnation(image, terms.config, broker.id, was_clean=False, is_fenced=True)
    terms.sessions.forget(broker.id)
    records: Records = [*left, UnregisterBrokerRecord(broker.id, broker.epoch)]
    return records, UnregisterBrokerResponse(error_message=None)
