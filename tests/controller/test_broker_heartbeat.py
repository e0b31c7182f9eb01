"""BrokerHeartbeat: when a broker is unfenced, and when it is fenced."""

from random import Random
from uuid import UUID

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import Controller
from odradek.controller.parts import Part
from odradek.controller.requests import broker_heartbeat
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import NO_LEADER
from odradek.metadata.records import BrokerRegistrationChangeRecord, PartitionRecord, TopicRecord
from odradek.model import Caller
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tests.controller.controller_cluster import apply, cluster

T = UUID(int=7)


def beat(image, broker_id=2, epoch=None, offset=100, controller=None, **wants):
    """The image after it, the records, and the response."""
    epoch = image.brokers[broker_id].epoch if epoch is None else epoch
    request = BrokerHeartbeatRequest(broker_id, epoch, offset, **wants)
    controller = controller or new_controller()
    records, response = controller.decide(image, Part(request), 1, Caller())
    return (apply(image, records) if records else image), records, response


def new_controller():
    return Controller(1, BrokerConfig(), Random(1))


def with_partition(image):
    return apply(image, [TopicRecord("t", T), PartitionRecord(0, T, [2], [2], leader=2, leader_epoch=0)])


def leader(image):
    return image.topics["t"].partitions[0].leader


FENCED = cluster(1, 2, fenced=[2])
ACTIVE = cluster(1, 2)


def test_a_broker_is_unfenced_once_it_has_seen_its_own_registration():
    epoch = FENCED.brokers[2].epoch
    image, records, response = beat(FENCED, offset=epoch - 1)
    assert (records, response) == ([], BrokerHeartbeatResponse(is_caught_up=False, is_fenced=True))
    image, records, response = beat(image, offset=epoch)
    assert records == [BrokerRegistrationChangeRecord(2, epoch, -1)]
    assert response == BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
    assert image.brokers[2].is_active


def test_a_broker_that_wants_to_be_fenced_stays_so():
    _, records, response = beat(FENCED, want_fence=True)
    assert (records, response) == ([], BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True))


def test_a_heartbeat_that_changes_nothing_writes_nothing():
    _, records, response = beat(ACTIVE)
    assert (records, response) == ([], BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))


def test_a_broker_that_is_behind_is_not_fenced_for_it():
    _, records, response = beat(ACTIVE, offset=-1)
    assert (records, response) == ([], BrokerHeartbeatResponse(is_caught_up=False, is_fenced=False))


@pytest.mark.parametrize("wants", [{"want_fence": True}, {"want_fence": True, "want_shut_down": True}])
def test_the_partitions_of_a_broker_that_is_fenced_wait_for_it(wants):
    image, records, response = beat(with_partition(ACTIVE), **wants)
    assert records and image.brokers[2].is_fenced
    assert (response.is_fenced, response.should_shut_down) == (True, "want_shut_down" in wants)
    assert leader(image) == NO_LEADER
    image, _, response = beat(image)
    assert not response.is_fenced
    assert leader(image) == 2


def test_a_broker_that_shuts_down_goes_on_until_the_others_know():
    image = apply(
        cluster(1, 2, 3),
        [TopicRecord("t", T), PartitionRecord(0, T, [2, 3], [2, 3], leader=2, leader_epoch=0)],
    )
    controller = new_controller()
    stop = {"want_shut_down": True, "controller": controller}
    image, _, response = beat(image, 2, **stop)
    assert (leader(image), response.should_shut_down, response.is_fenced) == (3, False, False)
    assert image.brokers[2].in_controlled_shutdown
    _, records, response = beat(image, 2, **stop)
    assert (records, response.should_shut_down) == ([], False), "nothing was heard of broker 3 yet"
    beat(image, 3, offset=image.offset - 1, controller=controller)
    assert not beat(image, 2, **stop)[2].should_shut_down
    beat(image, 3, offset=image.offset, controller=controller)
    image, _, response = beat(image, 2, **stop)
    assert (response.should_shut_down, response.is_fenced, image.brokers[2].is_fenced) == (True, True, True)
    assert beat(image, 2)[1] == [], "it has to register before it serves again"


def test_a_controller_that_did_not_begin_the_shutdown_waits_for_all_that_is_written():
    image, _, _ = beat(cluster(1, 2, 3), 2, want_shut_down=True)
    controller = new_controller()
    beat(image, 3, offset=image.offset, controller=controller)
    assert beat(image, 2, controller=controller, want_shut_down=True)[2].should_shut_down


def test_a_fenced_broker_may_stop_at_once():
    _, records, response = beat(FENCED, want_shut_down=True)
    assert (records, response.should_shut_down) == ([], True)


@pytest.mark.parametrize(
    ("broker_id", "epoch", "code"),
    [
        (9, 0, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (2, 0, ErrorCode.STALE_BROKER_EPOCH),
        (2, 2, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_a_broker_speaks_for_its_own_registration_only(broker_id, epoch, code):
    assert ACTIVE.brokers[2].epoch == 1
    with pytest.raises(KafkaError) as refused:
        beat(ACTIVE, broker_id, epoch)
    assert refused.value.code is code


# Many partitions


def with_partitions(image, count=3, replicas=(2, 1)):
    partitions = [
        PartitionRecord(index, T, list(replicas), list(replicas), leader=replicas[0], leader_epoch=0)
        for index in range(count)
    ]
    return apply(image, [TopicRecord("t", T), *partitions])


def led_by(image, broker_id):
    return sum(item.leader == broker_id for item in image.topics["t"].partitions.values())


def test_a_broker_that_shuts_down_leaves_some_partitions_with_each_heartbeat(monkeypatch):
    monkeypatch.setattr(broker_heartbeat, "PARTITIONS_AT_ONCE", 2)
    controller, image = new_controller(), with_partitions(ACTIVE, 3)
    seen = []
    for _ in range(4):
        image, records, response = beat(image, want_shut_down=True, controller=controller)
        seen.append((len(records), led_by(image, 2), response.should_shut_down))
    assert seen == [(3, 1, False), (1, 0, False), (1, 0, True), (0, 0, True)]


def test_the_next_controller_goes_on_with_a_shutdown(monkeypatch):
    monkeypatch.setattr(broker_heartbeat, "PARTITIONS_AT_ONCE", 2)
    image, _, _ = beat(with_partitions(ACTIVE, 3), want_shut_down=True)
    assert led_by(image, 2) == 1
    controller = new_controller()
    image, records, response = beat(image, want_shut_down=True, controller=controller)
    assert (len(records), led_by(image, 2), response.should_shut_down) == (1, 0, False)
    image, _, response = beat(image, want_shut_down=True, controller=controller)
    assert response.should_shut_down and image.brokers[2].is_fenced


def test_a_broker_gets_some_of_its_partitions_with_the_write_that_unfences_it(monkeypatch):
    monkeypatch.setattr(broker_heartbeat, "PARTITIONS_AT_ONCE", 2)
    image = with_partitions(ACTIVE, 3, replicas=(2,))
    image, records, _ = beat(image, want_fence=True)
    assert len(records) == 3 and led_by(image, NO_LEADER) == 2, "what is left is for controller_duties"
    image, records, response = beat(image)
    assert not response.is_fenced and len(records) == 3 and led_by(image, 2) == 3
