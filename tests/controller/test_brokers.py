"""Brokers registered, fenced and unfenced; producer ids."""

from random import Random
from uuid import UUID

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.brokers import (
    allocate_producer_ids,
    bootstrap_records,
    fence_broker,
    register_broker,
    renew_leaderships,
    unfence_broker,
)
from odradek.controller.context import RequestContext
from odradek.controller.controller import Controller
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import NO_LEADER
from odradek.metadata.records import (
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    SupportedFeature,
    TopicRecord,
)
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from tests.controller.controller_cluster import apply, cluster

T = UUID(int=7)


def with_partitions(*isrs):
    """Brokers 1 to 3, and one partition per ISR whose first member leads."""
    partitions = [
        PartitionRecord(index, T, [1, 2, 3], isr, leader=isr[0], leader_epoch=0, partition_epoch=0)
        for index, isr in enumerate(isrs)
    ]
    return apply(cluster(1, 2, 3), [TopicRecord("t", T), *partitions])


def states(image):
    return [
        (item.leader, list(item.isr), item.leader_epoch) for item in image.topics["t"].partitions.values()
    ]


def test_a_fenced_broker_loses_leaderships_and_its_place_in_the_isr():
    image = with_partitions([1, 2], [2, 1], [2, 3], [1])
    image = apply(image, fence_broker(image, 1))
    assert states(image) == [(2, [2], 1), (2, [2], 0), (2, [2, 3], 0), (NO_LEADER, [1], 1)]
    assert image.brokers[1].is_fenced


def test_an_unfenced_broker_gets_back_what_waited_for_it():
    image = with_partitions([1], [1, 2])
    image = apply(image, fence_broker(image, 1))
    image = apply(image, unfence_broker(image, 1))
    assert states(image) == [(1, [1], 2), (2, [2], 1)]
    assert image.brokers[1].is_active


def test_leadership_does_not_go_to_a_broker_that_is_fenced_too():
    image = with_partitions([1, 2, 3])
    image = apply(image, fence_broker(image, 2))
    image = apply(image, fence_broker(image, 1))
    assert states(image) == [(3, [3], 1)]


def test_renewed_leaderships_have_a_new_epoch():
    image = with_partitions([1], [2])
    image = apply(image, renew_leaderships(image, 1))
    assert states(image) == [(1, [1], 1), (2, [2], 0)]


def register(image, incarnation, has_session):
    return register_broker(
        image,
        1,
        broker_epoch=9,
        incarnation_id=UUID(int=incarnation),
        endpoints=[],
        directories=[],
        has_session=has_session,
    )


def test_a_second_process_is_refused_while_the_first_lives():
    image = cluster(1)
    with pytest.raises(KafkaError) as refusal:
        register(image, 77, has_session=True)
    assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert register(image, 1, has_session=True)
    assert apply(image, register(image, 77, has_session=False)).brokers[1].epoch == 9


def registration(broker_id=1, previous_broker_epoch=-1, cluster_id="cluster"):
    return BrokerRegistrationRequest(
        broker_id,
        cluster_id,
        UUID(int=77),
        [Listener("PLAINTEXT", "localhost", 9093)],
        [Feature("metadata.version", 1, 25)],
        None,
        log_dirs=[UUID(int=5)],
        previous_broker_epoch=previous_broker_epoch,
    )


def decide(image, request, node_id=1):
    controller = Controller(node_id, BrokerConfig(), Random(1))
    return controller.decide(image, Part(request), RequestContext(request.MAX_VERSION))


def test_a_broker_that_stopped_cleanly_keeps_its_leader_epochs():
    image = with_partitions([1], [2])
    records, response = decide(image, registration(previous_broker_epoch=image.brokers[1].epoch))
    assert [type(record) for record in records] == [RegisterBrokerRecord]
    registered = apply(image, records)
    assert states(registered) == [(1, [1], 0), (2, [2], 0)]
    assert registered.brokers[1].epoch == response.broker_epoch == registered.offset
    assert records[0].features == [SupportedFeature("metadata.version", 1, 25)]
    assert not records[0].fenced


@pytest.mark.parametrize("previous_epoch", [-1, 99])
def test_a_broker_that_was_killed_leads_in_new_epochs(previous_epoch):
    image = with_partitions([1], [2], [1, 3])
    records, response = decide(image, registration(previous_broker_epoch=previous_epoch))
    registered = apply(image, records)
    assert states(registered) == [(1, [1], 1), (2, [2], 0), (1, [1, 3], 1)]
    assert registered.brokers[1].epoch == response.broker_epoch == registered.offset


def test_a_broker_that_is_not_the_controller_starts_fenced():
    records, _ = decide(cluster(1), registration(2), node_id=1)
    assert [record.fenced for record in records] == [True]


def test_a_broker_of_another_cluster_is_refused():
    with pytest.raises(KafkaError) as refusal:
        decide(cluster(1), registration(cluster_id="other"))
    assert refusal.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize("change", [fence_broker, unfence_broker])
def test_a_broker_that_is_not_there(change):
    with pytest.raises(KafkaError) as refusal:
        change(cluster(1), 2)
    assert refusal.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_producer_ids_are_given_out_in_blocks_that_never_meet():
    image = cluster(1, 2)
    records, first = allocate_producer_ids(image, 1, image.brokers[1].epoch)
    assert records == [ProducerIdsRecord(1, image.brokers[1].epoch, 1000)]
    image = apply(image, records)
    _, second = allocate_producer_ids(image, 2, image.brokers[2].epoch)
    assert (first, second) == (range(1000), range(1000, 2000))


def test_no_producer_ids_for_a_process_that_was_replaced():
    with pytest.raises(KafkaError) as refusal:
        allocate_producer_ids(cluster(1), 1, 99)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_no_producer_ids_when_all_are_given_out():
    image = apply(cluster(1), [ProducerIdsRecord(1, 0, 2**63 - 1000)])
    with pytest.raises(KafkaError):
        allocate_producer_ids(image, 1, image.brokers[1].epoch)


def test_a_new_cluster_says_which_metadata_version_it_writes():
    assert apply(cluster(), bootstrap_records()).features == {"metadata.version": 25}
