"""BrokerHeartbeat (63): a broker is alive, and says how far it has followed the metadata log.

A broker that registers is fenced. It is unfenced once it has seen its own registration in the log, whose offset is its
broker epoch: from then on it knows all that it is to lead. A heartbeat that changes nothing writes nothing.

A broker that wants to be fenced is fenced. One that wants to shut down first loses what it leads, and is not elected
any more. It may stop, and is fenced, once every other active broker has read of that: until then clients may still ask
for it.
"""

from typing import Any

from odradek.controller.brokers import Records, begin_controlled_shutdown, fence_broker, unfence_broker
from odradek.controller.controller import Terms
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import Broker, MetadataImage
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, BrokerHeartbeatResponse]:
    request: Any = part.request
    broker = _registered(image, request)
    terms.sessions.heard(broker.id, request.current_metadata_offset, terms.now_ms)
    response = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= broker.epoch, is_fenced=broker.is_fenced
    )
    if request.want_shut_down:
        return _shut_down(image, broker, terms, response, at_once=request.want_fence), response
    if request.want_fence:
        response.is_fenced = True
        return ([] if broker.is_fenced else fence_broker(image, terms.config, broker.id)), response
    if broker.is_fenced and response.is_caught_up and not broker.in_controlled_shutdown:
        response.is_fenced = False
        return unfence_broker(image, terms.config, broker.id), response
    return [], response


def _shut_down(
    image: MetadataImage, broker: Broker, terms: Terms, response: BrokerHeartbeatResponse, *, at_once: bool
) -> Records:
    if broker.is_fenced:
        response.should_shut_down = True
        return []
    if not (broker.in_controlled_shutdown or at_once):
        moved = begin_controlled_shutdown(image, terms.config, broker.id)
        terms.sessions.shut_down(broker.id, image.offset + len(moved))
        return moved
    others = [other.id for other in image.active_brokers() if other.id not in (broker.id, terms.node_id)]
    if at_once or terms.sessions.shutdown_known_by_all(broker.id, image.offset, others):
        response.should_shut_down = response.is_fenced = True
        return fence_broker(image, terms.config, broker.id)
    return []


def _registered(image: MetadataImage, request: BrokerHeartbeatRequest) -> Broker:
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {request.broker_id} is not registered.")
    if request.broker_epoch != broker.epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker.id} is registered in epoch {broker.epoch}, not in {request.broker_epoch}.",
        )
    return broker
