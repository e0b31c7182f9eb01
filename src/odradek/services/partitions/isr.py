"""Keeps the ISR of the partitions that this broker leads: who joins, who leaves, and what the controller decides.

A replica joins when it has fetched everything that is committed and everything from before this epoch; it leaves when
it has not caught up with the end of the log for `replica.lag.time.max.ms`. The leader proposes (AlterPartition), the
controller decides, and the metadata brings the result to all brokers, including the leader. From the moment a proposal
is made until the metadata settles it, the leader counts on both the current ISR and the proposed one
(`replication.leader`).

A proposal without a response stays, and is sent again, because it may already be in force. One that is refused because
another epoch has begun stays too, until the metadata brings that epoch.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.errors import ErrorCode
from odradek.host.interface import Host
from odradek.host.log_lines import counted
from odradek.metadata.image import MetadataImage
from odradek.model import TopicPartition
from odradek.replication.leader import Leader
from odradek.replication.replicas import Replicas
from odradek.services.cluster.metadata import BrokerMetadata
from odradek.wording import count_of, some

if TYPE_CHECKING:
    from odradek.wire.messages.alter_partition import AlterPartitionRequest

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
# The outcome is unknown: the proposal may be in force, or may still come into force.
UNDECIDED = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_UPDATE_VERSION,  # ours arrived before, or the controller made a change: the metadata will tell
)


class _Proposal(NamedTuple):
    leader: Leader
    partition_epoch: int  # of the registration that it changes
    # The members with their broker epochs at the time: a broker that restarts before the controller decides must not
    # join because of what it fetched before.
    isr: tuple[tuple[int, int], ...]

    @property
    def is_settled(self) -> bool:
        """The metadata has moved on, with this proposal or without it."""
        return bool(self.leader.closed_with) or self.leader.partition_epoch != self.partition_epoch


class InSyncReplicas:
    def __init__(
        self, node_id: int, metadata: BrokerMetadata, replicas: Replicas, host: Host, max_lag_ms: int
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._replicas = replicas
        self._host = host
        self._max_lag_ms = max_lag_ms
        self._proposals: dict[Leader, _Proposal] = {}  # at most one for each leader
        self._unsent: dict[Leader, None] = {}
        self._news: dict[
            str, list[tuple[TopicPartition, list[int]]]
        ] = {}  # what the log does not say yet, by reason
        self._has_news = asyncio.Event()

    def fetched(self, leader: Leader) -> None:
        """A replica has fetched, so one may now be able to join."""
        if len(leader.maximal_isr) < len(leader.replicas) and self._may_propose(leader):
            joining = self._active(leader.joining_replicas())
            if joining:
                self._propose(leader, leader.isr | joining, f"{sorted(joining)} caught up")

    def _may_propose(self, leader: Leader) -> bool:
        """One change at a time."""
        proposal = self._proposals.get(leader)
        if proposal is not None and proposal.is_settled:
            del self._proposals[leader]
            proposal = None
        return proposal is None and not leader.closed_with

    def _active(self, replicas: dict[int, int]) -> frozenset[int]:
        """Return the replicas that the controller would accept: not fenced, with room on their disks, and registered
        with the broker epoch of their fetches.
        """
        brokers = self._metadata.image.brokers
        return frozenset(
            replica
            for replica, epoch in replicas.items()
            if (broker := brokers.get(replica)) is not None
            and broker.is_active
            and not broker.is_full
            and epoch in (-1, broker.epoch)
        )

    def _propose(self, leader: Leader, isr: frozenset[int], reason: str) -> None:
        self._news.setdefault(reason, []).append((leader.topic_partition, sorted(isr)))
        leader.propose_isr(isr)
        members = tuple((replica, self._epoch_of(leader, replica)) for replica in sorted(isr))
        self._proposals[leader] = _Proposal(leader, leader.partition_epoch, members)
        self._unsent[leader] = None
        self._has_news.set()

    def _tell_news(self) -> None:
        """One line for all partitions that change for one reason: a broker that stops leaves hundreds of ISRs."""
        for reason, changes in self._news.items():
            (name, isr), *others = changes
            if not others:
                log.info("%s: proposing the ISR %s, because %s", name, isr, reason)
                continue
            names = [str(one) for one, _ in changes]
            log.info(
                "proposing new ISRs of %s, because %s: %s",
                count_of(len(names), "partition"),
                reason,
                some(names),
            )
        self._news.clear()

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(self._send_proposals(), self._look_for_lag())

    async def _look_for_lag(self) -> None:
        while True:
            await asyncio.sleep(self._max_lag_ms / 2000)
            now_ms = self._host.steady_ms()
            for replica in list(self._replicas):
                leader = replica.leader
                if leader is None or not leader.progress or not self._may_propose(leader):
                    continue
                lagging = leader.lagging_replicas(now_ms, self._max_lag_ms)
                if lagging:
                    self._propose(leader, leader.isr - lagging, f"{sorted(lagging)} fell behind")

    async def _send_proposals(self) -> None:
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            self._tell_news()
            self._forget_settled()
            sent = [self._proposals[leader] for leader in self._unsent if leader in self._proposals]
            self._unsent.clear()
            if sent and not await self._send(sent):
                await asyncio.sleep(RETRY_SECONDS)
                self._has_news.set()

    def _forget_settled(self) -> None:
        for leader, proposal in list(self._proposals.items()):
            if proposal.is_settled:
                del self._proposals[leader]

    async def _send(self, proposals: list[_Proposal]) -> bool:
        """Returns False if some of them must be sent again."""
        try:
            request = self._request(proposals)
        except OSError as error:  # there is no descriptor left to import its messages with
            counted(log, logging.ERROR, "", "request", "cannot propose an ISR, trying again: %s", error)
            self._unsent.update((proposal.leader, None) for proposal in proposals)
            return False
        if request is None:
            return True
        response = await self._metadata.ask(request)
        codes = _codes(response)
        for proposal in proposals:
            self._take(proposal, codes(self._metadata.image, proposal.leader))
        self._forget_settled()
        return not self._unsent

    def _request(self, proposals: list[_Proposal]) -> "AlterPartitionRequest | None":
        from odradek.wire.messages.alter_partition import (  # only where there are replicas elsewhere
            AlterPartitionRequest,
            BrokerState,
            PartitionDataInRequest,
            TopicDataInRequest,
        )

        image = self._metadata.image
        broker = image.brokers.get(self._node_id)
        topics: dict[str, TopicDataInRequest] = {}
        for proposal in proposals:
            leader = proposal.leader
            topic = image.topics.get(leader.topic_partition.topic)
            if topic is None or proposal.is_settled:
                continue
            data = topics.setdefault(topic.name, TopicDataInRequest(topic.id))
            data.partitions.append(
                PartitionDataInRequest(
                    leader.topic_partition.partition,
                    leader.leader_epoch,
                    [BrokerState(replica, epoch) for replica, epoch in proposal.isr],
                    leader_recovery_state=0,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        if broker is None or not topics:
            return None
        return AlterPartitionRequest(self._node_id, broker.epoch, list(topics.values()))

    def _epoch_of(self, leader: Leader, replica: int) -> int:
        """Return the broker epoch of the replica's fetches, if there are any: a restarted one must not join by them."""
        progress = leader.progress.get(replica)
        if progress is not None and progress.broker_epoch >= 0:
            return progress.broker_epoch
        broker = self._metadata.image.brokers.get(replica)
        return -1 if broker is None else broker.epoch

    def _take(self, proposal: _Proposal, code: ErrorCode) -> None:
        if code is ErrorCode.NONE or proposal.is_settled:
            return  # the metadata brings the result
        leader = proposal.leader
        name = str(leader.topic_partition)
        counted(log, logging.INFO, name, code.name, "%s: the controller refused an ISR: %s", name, code.name)
        if code in UNDECIDED:
            self._unsent[leader] = None
        elif code is ErrorCode.INELIGIBLE_REPLICA:
            del self._proposals[leader]
            leader.withdraw_proposal()
        # Otherwise the metadata has moved on without us. An earlier copy of the proposal may have been in force before
        # that, and a replica that joined by it may still be in sync: the leader counts on it until the metadata
        # arrives.


def _codes(response: Any) -> Callable[[MetadataImage, Leader], ErrorCode]:
    """The controller's error code for each partition; for one that it does not name the outcome is unknown."""
    top = ErrorCode(response.error_code)
    codes = {
        (topic.topic_id, partition.partition_index): ErrorCode(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }

    def of(image: MetadataImage, leader: Leader) -> ErrorCode:
        topic = image.topics.get(leader.topic_partition.topic)
        if top or topic is None:
            return top or ErrorCode.UNKNOWN_SERVER_ERROR
        return codes.get((topic.id, leader.topic_partition.partition), ErrorCode.UNKNOWN_SERVER_ERROR)

    return of
