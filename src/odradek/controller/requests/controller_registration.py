"""ControllerRegistration (70): a controller that starts registers its endpoints and supported features.

A repeated registration, after a lost response, writes nothing.
"""

from typing import Any

from odradek.controller.brokers import Records
from odradek.controller.controller import Terms
from odradek.controller.parts import Part
from odradek.metadata.image import Controller, MetadataImage
from odradek.metadata.records import BrokerEndpoint, RegisterControllerRecord, SupportedFeature
from odradek.wire.messages.controller_registration import ControllerRegistrationResponse


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, ControllerRegistrationResponse]:
    request: Any = part.request
    endpoints = [
        BrokerEndpoint(item.name, item.host, item.port, item.security_protocol) for item in request.listeners
    ]
    features = [
        SupportedFeature(item.name, item.min_supported_version, item.max_supported_version)
        for item in request.features
    ]
    response = ControllerRegistrationResponse(error_message=None)
    registered = Controller(request.controller_id, request.incarnation_id, tuple(endpoints), tuple(features))
    if image.controllers.get(request.controller_id) == registered:
        return [], response
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=endpoints,
        features=features,
    )
    return [record], response
