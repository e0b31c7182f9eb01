"""Leaders elected after all in-sync replicas were killed: how long it waits, and who leads."""

from random import Random
from uuid import UUID

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.brokers import fence_broker, unfence_broker
from odradek.controller.controller import Controller
from odradek.controller.parts import Part
from odradek.controller.recovery import (
    LogEnd,
    elect_recovered,
    is_waiting,
    members_missing,
    members_to_ask,
)
from odradek.metadata.image import LOST_DIRECTORY, NO_LEADER
from odradek.metadata.records import PartitionRecord, TopicRecord, UnregisterBrokerRecord
from odradek.model import Caller
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionDataInRequest,
    TopicDataInRequest,
)
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, Listener
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.controller.controller_cluster import apply, cluster, directory_of

T = UUID(int=7)
NOBODY = 99  # the node id of a controller that is no broker


class World:
    """A partition on brokers 1 to 3, and what happens to them."""

    def __init__(self, min_isr=2, isr=(1, 2, 3), replicas=(1, 2, 3)):
        self.config = BrokerConfig({"min.insync.replicas": str(min_isr)})
        partition = PartitionRecord(
            0, T, list(replicas), list(isr), leader=isr[0], leader_epoch=0, partition_epoch=0
        )
        partition.directories = [directory_of(broker_id) for broker_id in replicas]
        self.image = apply(cluster(1, 2, 3), [TopicRecord("t", T), partition])
        self.incarnations = 100
        self.told = {}

    @property
    def partition(self):
        return self.image.topics["t"].partitions[0]

    @property
    def last_known(self):
        return self.partition.last_known_elr

    def take(self, records):
        self.image = apply(self.image, records)

    def decide(self, request):
        controller = Controller(NOBODY, self.config, Random(1))
        self.take(controller.decide(self.image, Part(request), request.MAX_VERSION, Caller())[0])

    def killed(self, *broker_ids, directory=None):
        """They were killed, and have registered again."""
        for broker_id in broker_ids:
            self.incarnations += 1
            self.decide(
                BrokerRegistrationRequest(
                    broker_id,
                    "cluster",
                    UUID(int=self.incarnations),
                    [Listener("PLAINTEXT", "localhost", 9093)],
                    log_dirs=[directory or directory_of(broker_id)],
                )
            )

    def back(self, *broker_ids):
        for broker_id in broker_ids:
            self.take(unfence_broker(self.image, self.config, broker_id))

    def tell(self, broker_id, last_epoch, end_offset, *, is_damaged=False, leader_epoch=None):
        if leader_epoch is None:
            leader_epoch = self.partition.leader_epoch
        epoch = self.image.brokers[broker_id].epoch
        self.told[broker_id] = LogEnd(epoch, leader_epoch, last_epoch, end_offset, is_damaged)

    def elect(self):
        self.take(elect_recovered(self.image, self.config, [((T, 0), self.told)]))
        return self.partition.leader

    def join(self, *isr):
        wanted = PartitionDataInRequest(
            0,
            self.partition.leader_epoch,
            [BrokerState(broker_id, self.image.brokers[broker_id].epoch) for broker_id in isr],
            partition_epoch=self.partition.partition_epoch,
        )
        leader = self.partition.leader
        epoch = self.image.brokers[leader].epoch
        self.decide(AlterPartitionRequest(leader, epoch, [TopicDataInRequest(T, [wanted])]))


def all_killed(**options):
    """Brokers 2 and 3 are the last known members: 1 left an ISR that was large enough without it."""
    world = World(**options)
    world.killed(1, 2, 3)
    world.back(1, 2, 3)
    assert is_waiting(world.partition)
    return world


# --- who is a last known member ---


def test_members_that_were_killed_are_kept_while_the_isr_is_too_small():
    world = World()
    world.killed(1)
    assert world.last_known == (), "two are in sync, and may commit without 1"
    world.killed(2)
    assert (world.partition.isr, world.last_known) == ((3,), (2,))
    world.killed(3)
    assert (world.partition.isr, world.partition.eligible_leader_replicas) == ((), ())
    assert (world.partition.leader, world.last_known) == (NO_LEADER, (2, 3))


def test_an_eligible_leader_that_was_killed_is_a_last_known_member():
    world = World(isr=(1, 2))
    world.take(fence_broker(world.image, world.config, 1))
    world.take(fence_broker(world.image, world.config, 2))
    assert (world.partition.eligible_leader_replicas, world.last_known) == ((1, 2), ())
    world.killed(2)
    assert (world.partition.eligible_leader_replicas, world.last_known) == ((1,), (2,))


def test_a_replica_that_was_not_in_sync_is_no_last_known_member():
    world = World(isr=(1, 2))
    world.killed(3, 1, 2)
    assert world.last_known == (1, 2)


def test_last_known_members_are_kept_when_a_leader_is_elected_until_enough_are_in_sync():
    world = all_killed()
    world.tell(2, 0, 10)
    world.tell(3, 0, 10)
    assert world.elect() == 2
    assert (world.partition.isr, world.last_known) == ((2,), (3,))
    assert world.partition.leader_recovery_state == 1
    world.killed(2)
    assert (world.partition.leader, world.last_known) == (NO_LEADER, (3, 2)), "3 still has all, and is asked"
    world.back(2)
    world.tell(2, 0, 5)  # it lost its end meanwhile
    world.tell(3, 0, 10)
    assert world.elect() == 3
    world.join(3, 1)
    assert (world.partition.isr, world.last_known) == ((3, 1), ())


def test_a_last_known_member_that_is_in_sync_again_is_just_that():
    world = World(min_isr=3)
    world.killed(1, 2)
    assert (world.partition.isr, world.last_known) == ((3,), (1, 2))
    world.back(1)
    world.join(3, 1)
    assert (world.partition.isr, world.last_known) == ((3, 1), (2,))


def test_an_unclean_election_forgets_the_last_known_members():
    world = all_killed()
    world.decide(ElectLeadersRequest(1, [TopicPartitions("t", [0])]))
    assert (world.partition.leader, world.partition.isr, world.last_known) == (2, (2,), ())


def test_a_lower_minimum_forgets_the_last_known_members_if_there_is_a_leader():
    world = World()
    world.killed(1, 2)
    assert world.last_known == (2,)
    lower = AlterConfigsResource(2, "t", [AlterableConfig("min.insync.replicas", 0, "1")])
    world.decide(IncrementalAlterConfigsRequest([lower]))
    assert (world.partition.isr, world.last_known) == ((3,), ())


# --- how long it waits ---


def test_the_election_waits_for_as_many_logs_as_had_to_have_a_record():
    world = all_killed()
    world.tell(3, 0, 10)
    assert world.elect() == NO_LEADER
    world.tell(2, 0, 10)
    assert world.elect() == 2


def test_the_rest_need_not_come_back():
    world = World(min_isr=3)
    world.killed(1, 2, 3)
    assert world.last_known == (1, 2, 3)
    world.config = BrokerConfig({"min.insync.replicas": "2"})
    world.back(1, 3)
    world.tell(1, 0, 9)
    world.tell(3, 0, 10)
    assert world.elect() == 3


def test_nobody_waits_where_there_is_one_replica():
    world = World(isr=(1,), replicas=(1,))
    world.killed(1)
    assert not is_waiting(world.partition)
    world.back(1)
    assert world.partition.leader == 1


def test_a_broker_is_asked_once_it_is_active_and_only_while_its_response_counts():
    world = World()
    world.killed(1, 2, 3)
    assert members_to_ask(world.image, world.partition, world.told) == []
    assert members_missing(world.image, world.partition, world.told) == [2, 3]
    world.back(2)
    assert members_to_ask(world.image, world.partition, world.told) == [2]
    world.tell(2, 0, 10)
    assert members_to_ask(world.image, world.partition, world.told) == []
    world.killed(2)
    world.back(2)
    assert members_to_ask(world.image, world.partition, world.told) == [2], "another process"
    world.tell(2, 0, 10, leader_epoch=world.partition.leader_epoch - 1)
    assert members_to_ask(world.image, world.partition, world.told) == [2], "it may still follow a leader"


def test_what_an_earlier_process_told_does_not_count():
    world = all_killed()
    world.tell(2, 0, 10)
    world.tell(3, 0, 12)
    world.killed(3)
    world.back(3)
    assert world.elect() == NO_LEADER


def test_a_broker_that_is_gone_again_does_not_count():
    world = all_killed()
    world.tell(2, 0, 10)
    world.tell(3, 0, 12)
    world.take(fence_broker(world.image, world.config, 3))
    assert world.elect() == NO_LEADER, "it had more than 2"


def test_a_lost_disk_counts_as_back_with_nothing():
    world = World()
    world.killed(1, 2)
    world.killed(3, directory=UUID(int=5))
    world.back(1, 2, 3)
    assert world.last_known == (2, 3)
    assert members_to_ask(world.image, world.partition, {}) == [2]
    world.tell(2, 0, 10)
    assert world.elect() == 2


def test_a_broker_that_was_unregistered_counts_as_back_with_nothing():
    world = World()
    world.killed(1, 2, 3)
    world.take([UnregisterBrokerRecord(3, world.image.brokers[3].epoch)])
    world.back(2)
    world.tell(2, 0, 10)
    assert world.elect() == 2


# --- who leads ---


@pytest.mark.parametrize(
    ("second", "third", "leader"),
    [
        ((0, 10), (0, 10), 2),  # the first in the list of replicas
        ((0, 9), (0, 10), 3),  # the longest
        ((1, 9), (0, 10), 2),  # a later epoch before a longer log
        ((-1, 0), (0, 1), 3),  # nothing at all
        ((-1, 0), (-1, 0), 2),  # no records anywhere
        ((-1, 12), (3, 10), 2),  # all of its records are deleted, and it has had more
        ((-1, 8), (3, 10), 3),
    ],
)
def test_the_log_that_has_the_most_leads(second, third, leader):
    world = all_killed()
    world.tell(2, *second)
    world.tell(3, *third)
    assert world.elect() == leader


def test_a_damaged_log_never_leads_and_is_named_as_lost():
    world = all_killed()
    world.tell(2, 0, 10)
    world.tell(3, 5, 20, is_damaged=True)
    assert world.elect() == 2
    assert world.partition.directory_of(3) == LOST_DIRECTORY
    assert world.partition.directory_of(2) == directory_of(2)


def test_where_all_logs_are_damaged_an_operator_decides_and_gets_the_other_replica():
    world = all_killed()
    world.tell(2, 0, 10, is_damaged=True)
    world.tell(3, 0, 10, is_damaged=True)
    assert world.elect() == NO_LEADER
    assert world.elect() == NO_LEADER
    assert members_missing(world.image, world.partition, world.told) == []
    world.decide(ElectLeadersRequest(1, [TopicPartitions("t", [0])]))
    assert world.partition.leader == 1, "which was not in sync, but is whole"


def test_an_operator_who_cannot_wait_gets_a_last_known_member_first():
    world = World(isr=(2, 3))
    world.killed(1, 2, 3)
    world.back(1, 3)
    world.decide(ElectLeadersRequest(1, [TopicPartitions("t", [0])]))
    assert world.partition.leader == 3


def test_nothing_is_written_where_nothing_is_known():
    world = all_killed()
    assert elect_recovered(world.image, world.config, [((T, 0), {}), ((UUID(int=8), 0), {})]) == []


# --- the argument, tried on many histories ---


@pytest.mark.parametrize("seed", range(300))
def test_nothing_committed_is_lost_while_fewer_logs_are_damaged_than_had_to_have_it(seed):
    """A log is a list of epochs, as leaders write them. Each member has all that is committed, and perhaps more of one
    of the leaders that came after; all but one of those that count are cut anywhere."""
    rng = Random(seed)
    min_isr = rng.randint(1, 3)
    world = World(min_isr=3)
    world.killed(1, 2, 3)
    world.config = BrokerConfig({"min.insync.replicas": str(min_isr)})
    committed = sorted(rng.choice((0, 0, 1, 2)) for _ in range(rng.randint(1, 5)))
    last = committed[-1]
    rest_of_epoch = [last] * rng.randint(0, 3)
    logs = {}
    for broker_id in (1, 2, 3):
        tail = rest_of_epoch[: rng.randint(0, 3)] + [last + broker_id] * rng.randint(0, 2)
        logs[broker_id] = committed + tail
    back = rng.sample((1, 2, 3), min_isr)
    for broker_id in rng.sample(back, min_isr - 1):
        logs[broker_id] = logs[broker_id][: rng.randint(0, len(logs[broker_id]))]
    world.back(*back)
    for broker_id in back:
        log = logs[broker_id]
        world.tell(broker_id, log[-1] if log else -1, len(log))
    leader = world.elect()
    assert leader in back
    assert logs[leader][: len(committed)] == committed
