"""Brokers registered, fenced and unfenced; producer ids."""

from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.brokers import (
    allocate_producer_ids,
    begin_controlled_shutdown,
    empty_isrs_of_inactive,
    fence_broker,
    unfence_broker,
)
from odradek.controller.controller import Controller
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import LOST_DIRECTORY, NO_LEADER
from odradek.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    SupportedFeature,
    TopicRecord,
)
from odradek.model import Caller
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionDataInRequest,
    TopicDataInRequest,
)
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from tests.controller.controller_cluster import apply, cluster, directory_of

T = UUID(int=7)
ANOTHER = UUID(int=5)  # directory, on a disk that is new or was wiped


def with_partitions(*isrs, replicas=None):
    """Brokers 1 to 3, and one partition per ISR whose first member leads."""
    replicas = replicas or [[1, 2, 3]] * len(isrs)
    partitions = [
        PartitionRecord(
            index,
            T,
            replicas[index],
            isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[directory_of(broker_id) for broker_id in replicas[index]],
        )
        for index, isr in enumerate(isrs)
    ]
    return apply(cluster(1, 2, 3), [TopicRecord("t", T), *partitions])


def states(image):
    return [
        (item.leader, list(item.isr), item.leader_epoch) for item in image.topics["t"].partitions.values()
    ]


def eligible(image):
    return [
        (list(item.eligible_leader_replicas), list(item.last_known_elr))
        for item in image.topics["t"].partitions.values()
    ]


def fence(image, broker_id, **settings):
    return apply(image, fence_broker(image, BrokerConfig(settings), broker_id))


def unfence(image, broker_id, **settings):
    return apply(image, unfence_broker(image, BrokerConfig(settings), broker_id))


MIN_2 = {"min.insync.replicas": "2"}


def test_a_fenced_broker_loses_leaderships_and_its_place_in_the_isr():
    image = fence(with_partitions([1, 2], [2, 1], [2, 3], [1]), 1)
    assert states(image) == [(2, [2], 1), (2, [2], 0), (2, [2, 3], 0), (NO_LEADER, [], 1)]
    assert eligible(image) == [([], []), ([], []), ([], []), ([1], [])]
    assert image.brokers[1].is_fenced


def test_an_unfenced_broker_gets_back_what_waited_for_it():
    image = unfence(fence(with_partitions([1], [1, 2]), 1), 1)
    assert states(image) == [(1, [1], 2), (2, [2], 1)]
    assert eligible(image) == [([], []), ([], [])]
    assert image.brokers[1].is_active


def test_who_leaves_an_isr_that_is_too_small_stays_an_eligible_leader():
    image = fence(fence(with_partitions([1, 2, 3]), 1, **MIN_2), 2, **MIN_2)
    assert (states(image), eligible(image)) == ([(3, [3], 2)], [([2], [])])
    image = fence(image, 3, **MIN_2)
    assert (states(image), eligible(image)) == ([(NO_LEADER, [], 3)], [([2, 3], [])])
    assert states(unfence(image, 1, **MIN_2)) == [(NO_LEADER, [], 3)], "1 left before the others"
    image = unfence(image, 2, **MIN_2)
    assert (states(image), eligible(image)) == ([(2, [2], 4)], [([3], [])])


def test_an_unclean_election_only_where_it_is_allowed():
    image = fence(fence(with_partitions([1, 2]), 1), 2)
    assert (states(image), eligible(image)) == ([(NO_LEADER, [], 2)], [([2], [])]), (
        "3 is alive and no candidate"
    )
    image = unfence(image, 1, **{"unclean.leader.election.enable": "true"})
    assert (states(image), eligible(image)) == ([(1, [1], 3)], [([], [])])
    assert image.topics["t"].partitions[0].leader_recovery_state == 1


def test_a_topic_may_allow_an_unclean_election_by_itself():
    image = apply(with_partitions([1]), [ConfigRecord(2, "t", "unclean.leader.election.enable", "true")])
    assert states(fence(image, 1)) == [(2, [2], 1)]


def test_leadership_does_not_go_to_a_broker_that_is_fenced_too():
    assert states(fence(fence(with_partitions([1, 2, 3]), 2), 1)) == [(3, [3], 1)]


def test_a_broker_is_fenced_some_partitions_at_a_time():
    image = with_partitions([1, 2], [2, 1], [1], [3])
    whole = fence(image, 1)
    image = apply(image, fence_broker(image, BrokerConfig(), 1, 1))
    assert states(image) == [(2, [2], 1), (2, [2, 1], 0), (1, [1], 0), (3, [3], 0)]
    while records := empty_isrs_of_inactive(image, BrokerConfig(), 1):
        assert len(records) == 1
        image = apply(image, records)
    assert (states(image), eligible(image)) == (states(whole), eligible(whole))


def test_a_broker_that_shuts_down_leads_nothing_and_is_elected_nowhere():
    image = with_partitions([1, 2], [2, 1], [1])
    image = apply(image, begin_controlled_shutdown(image, BrokerConfig(), 1))
    assert states(image) == [(2, [2], 1), (2, [2], 0), (NO_LEADER, [], 1)]
    broker = image.brokers[1]
    assert (broker.in_controlled_shutdown, broker.is_fenced) == (True, False)
    assert states(fence(image, 2))[0] == (NO_LEADER, [], 2)


def registration(broker_id=1, previous_broker_epoch=-1, cluster_id="cluster", directory=None):
    return BrokerRegistrationRequest(
        broker_id,
        cluster_id,
        UUID(int=77),
        [Listener("PLAINTEXT", "localhost", 9093)],
        [Feature("metadata.version", 1, 25)],
        None,
        log_dirs=[directory or directory_of(broker_id)],
        previous_broker_epoch=previous_broker_epoch,
    )


def decide(image, request, node_id=1, controller=None):
    controller = controller or Controller(node_id, BrokerConfig(), Random(1))
    return controller.decide(image, Part(request), request.MAX_VERSION, Caller())


def test_a_second_process_is_refused_while_the_first_lives():
    image, now_ms = cluster(1, 2), 1000
    controller = Controller(1, BrokerConfig(), Random(1), lambda: now_ms)
    controller.sessions.restart(image.brokers, now_ms)
    now_ms += 8999
    with pytest.raises(KafkaError) as refusal:
        decide(image, registration(2, directory=ANOTHER), controller=controller)
    assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    now_ms += 1
    assert decide(image, registration(2, directory=ANOTHER), controller=controller)[0]


def test_a_process_that_has_the_disk_of_the_first_takes_its_place_at_once():
    image = cluster(1, 2)
    controller = Controller(1, BrokerConfig(), Random(1))
    controller.sessions.restart(image.brokers, 0)
    assert decide(image, registration(2), controller=controller)[0]


def test_a_broker_that_stopped_cleanly_leads_in_new_epochs():
    image = with_partitions([1], [2], [2, 1])
    records, response = decide(image, registration(previous_broker_epoch=image.brokers[1].epoch))
    registered = apply(image, records)
    assert states(registered) == [(1, [1], 1), (2, [2], 0), (2, [2], 0)]
    assert registered.topics["t"].partitions[0].leader_recovery_state == 0
    assert registered.brokers[1].epoch == response.broker_epoch == registered.offset
    assert records[-1].features == [SupportedFeature("metadata.version", 1, 25)]
    assert not records[-1].fenced


@pytest.mark.parametrize("previous_epoch", [-1, 99])
def test_the_only_replica_leads_again_after_it_was_killed(previous_epoch):
    image = with_partitions([1], [2], [1, 3], replicas=[[1], [2], [1, 3]])
    records, response = decide(image, registration(previous_broker_epoch=previous_epoch))
    registered = apply(image, records)
    assert states(registered) == [(1, [1], 1), (2, [2], 0), (3, [3], 1)]
    assert registered.topics["t"].partitions[0].leader_recovery_state == 1
    assert registered.brokers[1].epoch == response.broker_epoch == registered.offset


def test_a_broker_that_was_killed_is_no_eligible_leader():
    image = with_partitions([1], [2, 1])
    image = fence(fence(image, 1, **MIN_2), 2, **MIN_2)
    assert eligible(image) == [([1], []), ([1, 2], [])]
    clean, _ = decide(image, registration(previous_broker_epoch=image.brokers[1].epoch), node_id=3)
    assert eligible(apply(image, clean)) == eligible(image)
    killed, _ = decide(image, registration(), node_id=3)
    image = apply(image, killed)
    assert eligible(image) == [([], [1]), ([2], [1])]
    image = unfence(image, 1, **MIN_2)
    assert states(image) == [(NO_LEADER, [], 1), (NO_LEADER, [], 1)], "1 has not told where its log ends"


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_broker_that_has_lost_its_disk_leads_nothing(was_clean):
    image = with_partitions([1], [1, 2], [2, 1])
    image = fence(fence(image, 1, **MIN_2), 2, **MIN_2)
    assert eligible(image) == [([1], []), ([1, 2], []), ([1, 2], [])]
    epoch = image.brokers[1].epoch if was_clean else -1
    image = apply(image, decide(image, registration(1, epoch, directory=ANOTHER), node_id=3)[0])
    assert eligible(image) == [([], [1]), ([2], [1]), ([2], [1])]
    image = unfence(image, 1, **MIN_2)
    assert states(image) == [(NO_LEADER, [], 1), (NO_LEADER, [], 2), (NO_LEADER, [], 1)]
    assert states(unfence(image, 2, **MIN_2))[1:] == [(2, [2], 3), (2, [2], 2)], "who has its disk leads"


def test_a_lost_log_is_elected_uncleanly_only_if_there_is_no_other():
    image = with_partitions([1], [1])
    image = fence(fence(fence(image, 1), 2), 3)
    image = apply(image, decide(image, registration(1, directory=ANOTHER), node_id=9)[0])
    unclean = {"unclean.leader.election.enable": "true"}
    partition = unfence(image, 1, **unclean).topics["t"].partitions[0]
    assert (partition.leader, partition.directories[0]) == (1, ANOTHER), "it has a log again"
    image = unfence(image, 1)
    assert states(image)[0] == (NO_LEADER, [], 1)
    assert states(unfence(image, 3, **unclean))[0] == (3, [3], 2), "1 comes before 3, but is empty"


def test_a_log_that_was_lost_may_be_lost_again():
    image = with_partitions([2, 1])
    image = apply(image, decide(image, registration(1, directory=ANOTHER), node_id=2)[0])
    image = unfence(image, 1)
    partition = image.topics["t"].partitions[0]
    assert (partition.isr, partition.directories[0]) == ((2,), LOST_DIRECTORY)
    wanted = PartitionDataInRequest(0, 0, [BrokerState(2, -1), BrokerState(1, -1)], partition_epoch=1)
    joined = AlterPartitionRequest(2, image.brokers[2].epoch, [TopicDataInRequest(T, [wanted])])
    image = apply(image, decide(image, joined)[0])
    partition = image.topics["t"].partitions[0]
    assert (partition.isr, partition.directories[0]) == ((2, 1), ANOTHER)
    again = replace(registration(1, directory=UUID(int=6)), incarnation_id=UUID(int=78))
    image = apply(image, decide(image, again, node_id=2)[0])
    assert image.topics["t"].partitions[0].directories[0] == LOST_DIRECTORY


def test_all_replicas_are_killed_at_once_and_come_back():
    image = with_partitions([1, 2, 3])
    for broker_id in (1, 2, 3):
        image = apply(image, decide(image, registration(broker_id), node_id=9)[0])
    assert (states(image), eligible(image)) == ([(NO_LEADER, [], 3)], [([], [3])])
    image = unfence(unfence(unfence(image, 1), 2), 3)
    assert states(image) == [(NO_LEADER, [], 3)], "nobody has told where its log ends"


def test_a_registration_that_is_repeated_is_the_same():
    image = cluster(1, 2)
    records, response = decide(image, registration(2))
    image = apply(image, records)
    assert decide(image, registration(2)) == ([], response)


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
        change(cluster(1), BrokerConfig(), 2)
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
