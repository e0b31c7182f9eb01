"""BrokerHeartbeat (63): a broker is alive, and says how far it has read the metadata log.

A broker that registers is fenced. It is unfenced once it has read its own registration, whose offset is its broker
epoch: from then on it knows everything that it must lead. A heartbeat that changes nothing writes nothing.

A broker that wants to be fenced is fenced. One that wants to shut down first loses what it leads, and is not elected
again. It may stop, and is fenced, once every other active broker has read that: until then clients may still be sent to
it.

A broker says in its heartbeats whether its disk is full. That is a record of its own; once it is committed,
`services.cluster.controller_duties` moves what the broker leads to other in-sync replicas.

Many partitions are changed in several writes. A broker that shuts down repeats its heartbeat, and each one moves some
more partitions. When a broker is fenced or unfenced, `services.cluster.controller_duties` does the rest after the first
write.
"""

from typing import Any

from odradek.controller.brokers import (
    FULL,
    NOT_FULL,
    PARTITIONS_AT_ONCE,
    Records,
    begin_controlled_shutdown,
    fence_broker,
    leave_isr,
    unfence_broker,
)
from odradek.controller.controller import Terms
from odradek.controller.features import can_cordon
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import Broker, MetadataImage
from odradek.metadata.records import BrokerRegistrationChangeRecord
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, BrokerHeartbeatResponse]:
    request: Any = part.request
    broker = _registered(image, request)
    terms.sessions.heard(broker.id, request.current_metadata_offset, terms.now_ms)
    response = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= broker.epoch, is_fenced=broker.is_fenced
    )
    has_other_cordons = _has_other_cordons(image, broker, request)
    if has_other_cordons or request.is_full != broker.is_full:
        change = BrokerRegistrationChangeRecord(
            broker.id,
            broker.epoch,
            cordoned_log_dirs=request.cordoned_log_dirs if has_other_cordons else None,
        )
        if request.is_full != broker.is_full:
            change.full = FULL if request.is_full else NOT_FULL
        return [change], response  # the next heartbeat gets the rest
    if request.want_shut_down:
        return _shut_down(image, broker, terms, response, at_once=request.want_fence), response
    if request.want_fence:
        response.is_fenced = True
        if broker.is_fenced:
            return [], response
        return fence_broker(image, terms.config, broker.id, PARTITIONS_AT_ONCE), response
    if broker.is_fenced and response.is_caught_up and not broker.in_controlled_shutdown:
        response.is_fenced = False
        return unfence_broker(image, terms.config, broker.id, PARTITIONS_AT_ONCE), response
    return [], response


def _has_other_cordons(image: MetadataImage, broker: Broker, request: BrokerHeartbeatRequest) -> bool:
    named = request.cordoned_log_dirs
    return named is not None and can_cordon(image) and set(named) != set(broker.cordoned or ())


def _shut_down(
    image: MetadataImage, broker: Broker, terms: Terms, response: BrokerHeartbeatResponse, *, at_once: bool
) -> Records:
    if broker.is_fenced:
        response.should_shut_down = True
        return []
    if not at_once:
        moved = _move_away(image, broker, terms)
        if moved:
            return moved
    others = [other.id for other in image.active_brokers() if other.id not in (broker.id, terms.node_id)]
    if at_once or terms.sessions.shutdown_known_by_all(broker.id, image.offset, others):
        response.should_shut_down = response.is_fenced = True
        return fence_broker(image, terms.config, broker.id, PARTITIONS_AT_ONCE)
    return []


def _move_away(image: MetadataImage, broker: Broker, terms: Terms) -> Records:
    """The next partitions that this broker leaves; none once it has left all."""
    if terms.sessions.has_moved_away(broker.id):
        return []
    if broker.in_controlled_shutdown:
        moved = count = leave_isr(image, terms.config, broker.id, PARTITIONS_AT_ONCE)
    else:
        moved = begin_controlled_shutdown(image, terms.config, broker.id, PARTITIONS_AT_ONCE)
        count = moved[1:]
    if len(count) < PARTITIONS_AT_ONCE:  # these are the last
        terms.sessions.shut_down(broker.id, image.offset + len(moved))
    return moved


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
