"""Proposals of leaders that come late: a controller has to refuse them, whoever sends them.

A request may be held up while the world goes on. Here it is made up again, later, as the leader would have sent it:

- to put an ISR in force that was in force before, upon the registration of then (its partition epoch is too old);
- to let a replica join by what an earlier process of its broker had fetched (its broker epoch is too old).
"""

from typing import NamedTuple

from odradek.errors import ErrorCode
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionDataInRequest,
    TopicDataInRequest,
)
from tests.cluster.clusters import CONTROLLER_PORT
from tests.cluster.replicated import NO_LEADER
from tests.cluster.replicated_log import ReplicatedLog
from tests.cluster.traffic import ClusterClient
from tests.simulation.connection import Violation

VERSION = 3


class Proposal(NamedTuple):
    leader: int
    leader_epoch: int
    partition_epoch: int  # of the registration that it is made to
    isr: dict[int, int]  # with broker epochs


class Echo(ClusterClient):
    async def act(self) -> None:
        await self.pause(0.2)
        for log in list(self.play.replicated.logs.values()):
            proposal = self._late(log)
            if proposal is not None:
                await self._send(log, proposal)
                return

    def _late(self, log: ReplicatedLog) -> Proposal | None:
        """Return what was proposed to this partition and must not be taken any more, if there is something."""
        now = log.registration
        if now.leader == NO_LEADER or log.topic_id not in self.play.replicated.image.topics_by_id:
            return None
        epochs = {broker.id: broker.epoch for broker in self.play.replicated.image.brokers.values()}
        joined = log.joins.get(now.leader_epoch)
        if joined is not None and not set(joined.isr) <= set(now.isr):
            isr = {broker_id: epochs[broker_id] for broker_id in joined.isr}
            return Proposal(now.leader, now.leader_epoch, joined.partition_epoch - 1, isr)
        for broker_id in now.replicas:
            before = log.outsiders.get((broker_id, now.partition_epoch))
            if before is not None and before < epochs[broker_id]:
                isr = {member: epochs[member] for member in now.isr} | {broker_id: before}
                return Proposal(now.leader, now.leader_epoch, now.partition_epoch, isr)
        return None

    async def _send(self, log: ReplicatedLog, proposal: Proposal) -> None:
        leaders = self.play.cluster.leaders()
        broker = self.play.replicated.image.brokers[proposal.leader]
        if not leaders:
            return
        data = PartitionDataInRequest(
            log.index,
            proposal.leader_epoch,
            [BrokerState(*member) for member in proposal.isr.items()],
            leader_recovery_state=0,
            partition_epoch=proposal.partition_epoch,
        )
        topics = [TopicDataInRequest(log.topic_id, [data])]
        request = AlterPartitionRequest(proposal.leader, broker.epoch, topics)
        machine = self.play.cluster.machines[leaders[-1]]
        connection = await self.play.world.connect(self.name, machine, CONTROLLER_PORT)
        try:
            response = await connection.ask(request, VERSION)
        finally:
            connection.close()
        self.play.count("late proposals")
        if response.error_code:
            return
        (partition,) = response.topics[0].partitions
        if partition.error_code == ErrorCode.NONE:
            raise Violation(
                f"P8: the controller took a late proposal: {proposal} [{log.name}, {log.registration}]"
            )
