"""Members of groups of both kinds, wherever the coordinator of their group is.

C1 of a group of KIP-848, besides what `simulation.group_history` checks: nobody is given a partition that another
member still holds. A member holds what its last response gave it. Nothing is certain about one that the coordinator has
not heard for a while, or that lost a response: it may have been put out of the group.
"""

from typing import Any

from odradek.errors import ErrorCode
from odradek.model import OFFSETS_TOPIC
from tests.cluster.traffic import ClusterPlay
from tests.simulation.connection import Connection, Disconnected, Violation
from tests.simulation.group_history import Session
from tests.simulation.members import ClassicMember, ConsumerMember, Member
from tests.simulation.play import REBALANCE_MS, SESSION_MS

SETTINGS = {
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "10",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "50",
}
COORDINATOR_FRESH_SECONDS = 0.3


class Seeker(Member):
    """Looks for its coordinator."""

    play: ClusterPlay

    def __init__(self, play: ClusterPlay, name: str, pause_seconds: float) -> None:
        super().__init__(play, name)
        self._pause_seconds = pause_seconds
        self._coordinator: int | None = None
        self._found = -1.0

    async def _act(self) -> None:
        await self.pause(self._pause_seconds)
        await super()._act()

    async def connection(self) -> Connection:
        now = self.play.world.now()
        if self._coordinator is None or now > self._found + COORDINATOR_FRESH_SECONDS:
            self._coordinator, self._found = None, now
            self._coordinator = await self.router.coordinator_of(self.group.name)
            if self._coordinator is None:
                await self.pause(0.1)
                raise Disconnected("no coordinator")
        try:
            return await self.router.connection_to(self._coordinator)
        except Disconnected:
            self._coordinator = None
            raise

    def check_unknown(self, session: Any, code: int) -> None:
        """A coordinator that was deposed without knowing may have heard the member, and the new one not."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID and self.session is session:
            self.session = None


class ClassicSeeker(Seeker, ClassicMember):
    pass


class ConsumerSeeker(Seeker, ConsumerMember):
    """`others` are the members of its group, this one too."""

    def __init__(
        self, play: ClusterPlay, name: str, pause_seconds: float, others: "list[ConsumerSeeker]"
    ) -> None:
        super().__init__(play, name, pause_seconds)
        self._others = others
        others.append(self)
        self._epoch: int | None = None  # of the true coordinator that heard it last
        self._heard = -1.0  # when what it said then was sent

    async def _beat(self, session: Session, request: Any) -> None:
        sent, before = self.play.world.now(), self._true_epoch()
        await super()._beat(session, request)
        is_taken = self.session is session and session.last_heard >= sent
        if not is_taken or before is None or before != self._true_epoch():
            return
        self._epoch, self._heard = before, sent
        self.play.count("heartbeats of consumers")
        if self.play.world.now() < sent + SESSION_MS / 2000:
            for other in self._others:
                if other is not self and other.certainly_is_member(before):
                    self._check_shares_nothing(other)

    def _true_epoch(self) -> int | None:
        """The leader epoch of the partition that the coordinator leads, if it still does."""
        for log in self.play.replicated.logs.values():
            if log.name == f"{OFFSETS_TOPIC}-0" and log.registration.leader == self._coordinator:
                return log.registration.leader_epoch
        return None

    def certainly_is_member(self, epoch: int) -> bool:
        """True if it is in the group as this coordinator knows it."""
        session, now = self.session, self.play.world.now()
        return (
            session is not None
            and not session.may_have_left
            and self._epoch == epoch
            and now < self._heard + SESSION_MS / 1000
            and session.last_lost + REBALANCE_MS / 1000 < now
        )

    def _check_shares_nothing(self, other: "ConsumerSeeker") -> None:
        for topic_id, indexes in self._owned.items():
            shared = set(indexes) & set(other._owned.get(topic_id, ()))
            if shared:
                raise Violation(
                    f"C1: group {self.group.name}: {self.name} was given partitions {sorted(shared)} of {topic_id}, "
                    f"which {other.name} still holds"
                )
