"""AlterPartition: which ISR a leader may propose, and what becomes of it."""

from random import Random
from uuid import UUID

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.brokers import begin_controlled_shutdown, fence_broker
from odradek.controller.controller import Controller
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.records import PartitionChangeRecord, PartitionRecord, TopicRecord
from odradek.model import Caller
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionDataInRequest,
    PartitionDataInResponse,
    TopicDataInRequest,
)
from tests.controller.controller_cluster import apply, cluster

T = UUID(int=7)
EPOCHS = {1: 0, 2: 1, 3: 2, 4: 3}


def world(isr=(1, 2), elr=None, recovery_state=0):
    """Brokers 1 to 4; partition 0 on 1 to 3, which 1 leads in leader epoch 5, partition epoch 8."""
    partition = PartitionRecord(
        0, T, [1, 2, 3], list(isr), leader=1, leader_epoch=5, partition_epoch=8,
        leader_recovery_state=recovery_state, eligible_leader_replicas=elr,
    )  # fmt: skip
    return apply(cluster(1, 2, 3, 4), [TopicRecord("t", T), partition])


def propose(image, isr, *, sender=1, topic=T, index=0, version=3, settings=None, epochs=EPOCHS, **fields):
    wanted = PartitionDataInRequest(index, **{"leader_epoch": 5, "partition_epoch": 8, **fields})
    if version >= 3:
        wanted.new_isr_with_epochs = [BrokerState(broker_id, epochs[broker_id]) for broker_id in isr]
    else:
        wanted.new_isr = list(isr)
    request = AlterPartitionRequest(sender, EPOCHS[sender], [TopicDataInRequest(topic, [wanted])])
    controller = Controller(1, BrokerConfig(settings or {}), Random(1))
    records, response = controller.decide(image, Part(request), version, Caller())
    assert response.topics[0].topic_id == topic
    return records, response.topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3])
def test_a_replica_that_caught_up_joins(version):
    records, response = propose(world(), [1, 2, 3], version=version)
    assert records == [PartitionChangeRecord(0, T, isr=[1, 2, 3])]
    assert response == PartitionDataInResponse(0, 0, 1, 5, [1, 2, 3], 0, 9)
    partition = apply(world(), records).topics["t"].partitions[0]
    assert (partition.leader_epoch, partition.partition_epoch) == (5, 9)


def test_one_that_falls_behind_a_small_isr_stays_eligible():
    records, response = propose(world(), [1], settings={"min.insync.replicas": "2"})
    assert records == [PartitionChangeRecord(0, T, isr=[1], eligible_leader_replicas=[2])]
    assert response.isr == [1]


def test_nobody_is_eligible_once_the_isr_is_large_enough():
    records, _ = propose(world([1], elr=[2]), [1, 3], settings={"min.insync.replicas": "2"})
    assert records == [PartitionChangeRecord(0, T, isr=[1, 3], eligible_leader_replicas=[])]


def test_what_is_in_force_already_is_not_written_again():
    assert propose(world(), [1, 2]) == ([], PartitionDataInResponse(0, 0, 1, 5, [1, 2], 0, 8))


def test_a_leader_that_was_elected_uncleanly_has_recovered():
    image = world([1], recovery_state=1)
    records, response = propose(image, [1, 2], leader_recovery_state=0)
    assert records == [PartitionChangeRecord(0, T, isr=[1, 2], leader_recovery_state=0)]
    assert response.leader_recovery_state == 0
    assert propose(image, [1], leader_recovery_state=1)[1].error_code == ErrorCode.NONE
    assert propose(image, [1, 2], leader_recovery_state=1)[1].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("proposal", "code"),
    [
        ({"topic": UUID(int=8)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 4, "partition_epoch": 7}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 7}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"sender": 2}, ErrorCode.INVALID_REQUEST),
        ({"isr": [1, 4]}, ErrorCode.INVALID_REQUEST),
        ({"isr": [1, 1]}, ErrorCode.INVALID_REQUEST),
        ({"isr": [2, 3]}, ErrorCode.INVALID_REQUEST),
        ({"isr": []}, ErrorCode.INVALID_REQUEST),
        ({"isr": [1], "leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 2}, ErrorCode.INVALID_REQUEST),
        ({"epochs": {**EPOCHS, 3: 77}}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_refused(proposal, code):
    records, response = propose(world(), **{"isr": [1, 2, 3], **proposal})
    assert (records, ErrorCode(response.error_code)) == ([], code)


@pytest.mark.parametrize("stop", [fence_broker, begin_controlled_shutdown])
def test_a_broker_that_is_not_active_does_not_join(stop):
    image = world()
    image = apply(image, stop(image, BrokerConfig(), 3))
    records, response = propose(image, [1, 2, 3])
    assert (records, response.error_code) == ([], ErrorCode.INELIGIBLE_REPLICA)


def test_an_earlier_incarnation_of_the_leader_is_refused():
    with pytest.raises(KafkaError) as refused:
        request = AlterPartitionRequest(1, 99, [])
        Controller(1, BrokerConfig(), Random(1)).decide(world(), Part(request), 3, Caller())
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
