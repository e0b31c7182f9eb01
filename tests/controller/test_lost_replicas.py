"""AssignReplicasToDirs: a broker whose log is damaged leaves the ISR, and another one leads."""

from random import Random
from uuid import UUID

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import Controller
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import LOST_DIRECTORY, ResourceType
from odradek.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from odradek.model import Caller
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
)
from odradek.wire.messages.alter_partition import (
    PartitionDataInRequest as IsrOfPartition,
)
from odradek.wire.messages.alter_partition import (
    TopicDataInRequest as IsrsOfTopic,
)
from odradek.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryDataInRequest,
    PartitionDataInRequest,
    TopicDataInRequest,
)
from tests.controller.controller_cluster import apply, cluster, directory_of

T = UUID(int=7)
TOPIC = int(ResourceType.TOPIC)


def with_partition(isr, *, replicas=(1, 2, 3), fenced=()):
    partition = PartitionRecord(
        0,
        T,
        list(replicas),
        list(isr),
        leader=isr[0],
        leader_epoch=4,
        partition_epoch=9,
        directories=[directory_of(broker_id) for broker_id in replicas],
    )
    return apply(cluster(1, 2, 3, fenced=fenced), [TopicRecord("t", T), partition])


def ask(image, request):
    controller = Controller(1, BrokerConfig({}), Random(0))
    records, response = controller.decide(image, Part(request), request.MAX_VERSION, Caller())
    return (apply(image, records) if records else image), response


def lose(image, broker_id, *, directory=LOST_DIRECTORY, topic_id=T, index=0, epoch=None):
    topic = TopicDataInRequest(topic_id, [PartitionDataInRequest(index)])
    epoch = image.brokers[broker_id].epoch if epoch is None else epoch
    request = AssignReplicasToDirsRequest(broker_id, epoch, [DirectoryDataInRequest(directory, [topic])])
    image, response = ask(image, request)
    [partition] = response.directories[0].topics[0].partitions
    return image, ErrorCode(partition.error_code)


def partition_of(image):
    return image.topics["t"].partitions[0]


def test_a_leader_whose_log_is_damaged_is_replaced_in_a_new_epoch():
    image, code = lose(with_partition([1, 2, 3]), 1)
    after = partition_of(image)
    assert (code, after.leader, after.leader_epoch, after.isr) == (ErrorCode.NONE, 2, 5, (2, 3))
    assert after.directory_of(1) == LOST_DIRECTORY


def test_a_follower_leaves_the_isr_in_a_new_leader_epoch_that_its_old_fetches_do_not_count_in():
    image, code = lose(with_partition([1, 2, 3]), 3)
    after = partition_of(image)
    assert (code, after.leader, after.leader_epoch, after.isr) == (ErrorCode.NONE, 1, 5, (1, 2))


def test_a_damaged_log_is_kept_while_no_other_replica_can_lead():
    before = with_partition([1])
    image, code = lose(before, 1)
    assert (code, image) == (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, before)


def test_it_is_kept_rather_than_replaced_by_one_that_lacks_records():
    unclean = ConfigRecord(TOPIC, "t", "unclean.leader.election.enable", "true")
    before = apply(with_partition([1]), [unclean])
    assert lose(before, 1) == (before, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)


def test_it_is_not_eligible_either():
    image = with_partition([1, 2], fenced=(2,))  # 2 is in the ISR, but cannot lead now
    assert lose(image, 1)[1] is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_saying_it_again_changes_nothing():
    image, _ = lose(with_partition([1, 2, 3]), 1)
    assert lose(image, 1) == (image, ErrorCode.NONE)


def test_a_replica_that_is_in_sync_again_has_its_log_again():
    image, _ = lose(with_partition([1, 2, 3]), 3)
    members = [BrokerState(broker_id, -1) for broker_id in (1, 2, 3)]
    isr = IsrOfPartition(0, 5, members, leader_recovery_state=0, partition_epoch=10)
    image, _ = ask(image, AlterPartitionRequest(1, image.brokers[1].epoch, [IsrsOfTopic(T, [isr])]))
    assert (partition_of(image).isr, partition_of(image).directory_of(3)) == ((1, 2, 3), directory_of(3))


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"topic_id": UUID(int=8)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"directory": UUID(int=99)}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused(wrong, code):
    before = with_partition([1, 2, 3])
    assert lose(before, 1, **wrong) == (before, code)


def test_only_a_replica_can_be_lost():
    before = with_partition([1, 2], replicas=(1, 2))
    assert lose(before, 3) == (before, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_an_earlier_process_of_the_broker_is_refused():
    image = with_partition([1, 2, 3])
    with pytest.raises(KafkaError) as refused:
        lose(image, 1, epoch=image.brokers[1].epoch - 1)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
