"""BrokerRegistration (62): a broker that starts says where it can be reached.

It names the broker epoch in which it stopped cleanly (from version 3 on). A broker that names another, or none, was
killed, and its logs may have lost what was not synced (see `controller.elections`). In either case whatever it led has
a new leader epoch, in the same write: what it appends from now on cannot be taken for what it appended before.

It names its data directory. Where that is another one than a replica's log was in, the disk was lost or wiped: the
replica is empty. It leaves the ISR and the eligible leaders, and unlike one that was killed it does not lead as the
last known leader either. (Kafka elects no replica whose directory its broker has not registered.)

While a process of this id still has a session, another is refused, but for one with the same data directory: that is
locked by the process that uses it, so the earlier one is gone. A process that repeats its registration, because the
response was lost, has it already.

The controller's own broker has applied every record already, so it is registered unfenced. Others start fenced.
"""

from typing import Any

from odradek.controller.brokers import Records, begin_incarnation, register_broker
from odradek.controller.controller import Terms
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import Broker, MetadataImage
from odradek.metadata.records import BrokerEndpoint, SupportedFeature
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, BrokerRegistrationResponse]:
    request: Any = part.request
    if request.cluster_id != image.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Broker {request.broker_id} belongs to cluster {request.cluster_id}, not to {image.cluster_id}.",
        )
    existing = image.brokers.get(request.broker_id)
    if existing is not None and existing.incarnation_id == request.incarnation_id:
        return [], BrokerRegistrationResponse(broker_epoch=existing.epoch)
    if existing is not None and _may_be_alive(existing, request, terms):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"Another process runs as broker {existing.id}."
        )
    terms.sessions.begin(request.broker_id, terms.now_ms)
    is_fenced = request.broker_id != terms.node_id
    changes = begin_incarnation(
        image,
        terms.config,
        request.broker_id,
        was_clean=existing is not None and request.previous_broker_epoch == existing.epoch,
        is_fenced=is_fenced,
        directories=request.log_dirs,
    )
    broker_epoch = image.offset + 1 + len(changes)
    registration = register_broker(
        image,
        request.broker_id,
        broker_epoch=broker_epoch,
        incarnation_id=request.incarnation_id,
        endpoints=[
            BrokerEndpoint(item.name, item.host, item.port, item.security_protocol)
            for item in request.listeners
        ],
        directories=request.log_dirs,
        features=[
            SupportedFeature(item.name, item.min_supported_version, item.max_supported_version)
            for item in request.features
        ],
        rack=request.rack,
        is_fenced=is_fenced,
    )
    return [*changes, *registration], BrokerRegistrationResponse(broker_epoch=broker_epoch)


def _may_be_alive(existing: Broker, request: BrokerRegistrationRequest, terms: Terms) -> bool:
    if _has_same_disk(existing, request):
        return False
    return terms.sessions.is_alive(existing.id, terms.now_ms)


def _has_same_disk(existing: Broker, request: BrokerRegistrationRequest) -> bool:
    return bool(set(existing.directories) & set(request.log_dirs))
