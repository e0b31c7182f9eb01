"""BrokerRegistration (62): a broker that starts says where it can be reached.

It names the broker epoch in which it stopped cleanly (from version 3 on). A broker that names another, or none, was
killed, and its logs may have lost what was not synced: its partitions get new leader epochs, in the same write, so that
what it appends from now on cannot be taken for what is gone.

The controller's own broker has applied every record already, so it is registered unfenced. Others start fenced.
"""

from typing import Any

from odradek.controller.brokers import Records, register_broker, renew_leaderships
from odradek.controller.controller import Terms
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import BrokerEndpoint, SupportedFeature
from odradek.wire.messages.broker_registration import BrokerRegistrationResponse


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, BrokerRegistrationResponse]:
    request: Any = part.request
    if request.cluster_id != image.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Broker {request.broker_id} belongs to cluster {request.cluster_id}, not to {image.cluster_id}.",
        )
    existing = image.brokers.get(request.broker_id)
    was_clean = existing is None or request.previous_broker_epoch == existing.epoch
    renewals = [] if was_clean else renew_leaderships(image, request.broker_id)
    broker_epoch = image.offset + 1 + len(renewals)
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
        is_fenced=request.broker_id != terms.node_id,
    )
    return [*renewals, *registration], BrokerRegistrationResponse(broker_epoch=broker_epoch)
