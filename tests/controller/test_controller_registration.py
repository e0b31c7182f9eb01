"""ControllerRegistration: a controller says where it is."""

from dataclasses import replace
from random import Random
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import Controller
from odradek.controller.parts import Part
from odradek.errors import ErrorCode
from odradek.metadata.records import BrokerEndpoint, RegisterControllerRecord, SupportedFeature
from odradek.model import Caller
from odradek.wire.messages.controller_registration import ControllerRegistrationRequest, Feature, Listener
from tests.controller.controller_cluster import apply, cluster

REQUEST = ControllerRegistrationRequest(
    3,
    UUID(int=9),
    listeners=[Listener("CONTROLLER", "c", 9093, 0)],
    features=[Feature("metadata.version", 1, 25)],
)


def register(image, request):
    controller = Controller(1, BrokerConfig(), Random(1))
    records, response = controller.decide(image, Part(request), 0, Caller())
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    return records


def test_what_is_written():
    endpoint, feature = (
        BrokerEndpoint("CONTROLLER", "c", 9093, 0),
        SupportedFeature("metadata.version", 1, 25),
    )
    records = register(cluster(1), REQUEST)
    assert records == [RegisterControllerRecord(3, UUID(int=9), end_points=[endpoint], features=[feature])]
    registered = apply(cluster(1), records).controllers[3]
    assert (registered.endpoints, registered.features) == ((endpoint,), (feature,))


def test_a_repeated_registration_writes_nothing_and_a_new_one_does():
    image = apply(cluster(1), register(cluster(1), REQUEST))
    assert register(image, REQUEST) == []
    [record] = register(image, replace(REQUEST, incarnation_id=UUID(int=10)))
    assert record.incarnation_id == UUID(int=10)
