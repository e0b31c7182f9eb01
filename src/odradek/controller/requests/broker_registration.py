"""BrokerRegistration (62): a broker that starts registers its endpoints.

From version 3 on, it names the broker epoch in which it stopped cleanly. A broker that names another epoch, or none,
was killed, and its logs may have lost what was not synced (see `controller.elections`). In either case everything it
led gets a new leader epoch, in the same write, so that what it appends now cannot be mistaken for what it appended
before.

It names its data directory. If a replica's log was in another one, the disk was lost or wiped, and the replica is
empty: it leaves the ISR and the ELR and, unlike one that was killed, cannot lead as the last known leader. (Kafka
elects no replica whose directory its broker has not registered.)

While a process with this id still has a session, another is refused, unless it has the same data directory: a process
locks its directory, so the earlier one must be gone. A process that repeats its registration, because the response was
lost, is already registered.

The active controller's own broker has applied every record, so it is registered unfenced. Others start fenced.
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
