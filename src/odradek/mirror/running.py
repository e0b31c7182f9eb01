"""A process of a mirror: a member of the group, the partitions that it was assigned, and its progress.

The leader of the group also keeps the target's topics in step and carries groups over. Every process is alike, and any
may be killed: the group gives its partitions to the others.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from odradek.admin.failures import AdminError
from odradek.client.cluster import MissingTopic
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import TimedOut
from odradek.errors import KafkaError
from odradek.mirror.clients import access_to, cluster_of
from odradek.mirror.file import MirrorSettings
from odradek.mirror.groups import Sides, carried_groups, carry_over
from odradek.mirror.membership import REBALANCE_S, Assignment, Member
from odradek.mirror.position import UnreadablePosition
from odradek.mirror.positions import Positions
from odradek.mirror.upkeep import Upkeep
from odradek.mirror.work import Share, Work
from odradek.model import TopicPartition

UPKEEP_S = 5.0
PROGRESS_S, FIRST_PROGRESS_S = 5.0, 1.0
TICK_S = 0.2
PATIENCE_S = 30.0  # with the transactions that are open at the end

EXPECTED = (AdminError, KafkaError, ConnectionLost, TimedOut, MissingTopic, UnreadablePosition)

Event = dict[str, Any]

log = logging.getLogger("odradek.mirror")


class MirrorRun:
    """`tell` gets what happens, as JSON: progress, problems, and the end."""

    def __init__(
        self,
        settings: MirrorSettings,
        tell: Callable[[Event], None],
        *,
        once: bool = False,
        accepts_loss: bool = False,
        upkeep_s: float = UPKEEP_S,
    ) -> None:
        self._upkeep_s = upkeep_s
        self._settings, self._tell, self._once, self._accepts_loss = settings, tell, once, accepts_loss
        source, target = settings.source, settings.target
        self._upkeep = Upkeep(settings, access_to(source), access_to(target))
        self._upkeep_lock = threading.Lock()
        self.positions = Positions(cluster_of(target))
        # Connections of their own, without the lock: to read positions may take until a dead process's transaction is
        # aborted, and its heir gets its partitions only if the leader can tell which there are.
        self._sides = Sides(access_to(source), access_to(target), settings.direction, self.positions)
        self.share = Share(self._make)
        self._member = Member(
            cluster_of(settings.target, waits_s=REBALANCE_S),
            f"odradek-mirror.{settings.source.name}",
            self._wanted,
            self._take,
        )
        self._known: Sequence[TopicPartition] = ()
        self._is_leader = False
        self._stopping = threading.Event()
        self._problems: dict[str, list[str]] = {}  # by what they are about
        self._bug: Exception | None = None

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> bool:
        """Until `stop`, or with `once` until everything is copied. True if all went well."""
        self._wanted()  # raises what is wrong with the file or the clusters, before anything begins
        self.positions.prepare()
        member = threading.Thread(target=self._guarded, args=(self._member.run,), name="member", daemon=True)
        upkeep = threading.Thread(target=self._guarded, args=(self._look_after,), name="upkeep", daemon=True)
        member.start()
        upkeep.start()
        try:
            self._watch()
        finally:
            self._stopping.set()
            self.share.stop(PATIENCE_S)
            self._member.stop()
            member.join(PATIENCE_S)
        if self._bug is not None:
            raise self._bug
        if self._member.failure is not None:
            self._tell_problems("group", [self._member.failure_told])
        went_well = self._went_well()
        self._tell({**self.facts(), "event": "end", "ok": went_well})
        return went_well

    def _guarded(self, work: Callable[[], None]) -> None:
        """A thread that dies must not leave a process that does half of its work."""
        try:
            work()
        except Exception as error:
            self._bug = error
            self._stopping.set()

    def _watch(self) -> None:
        next_s = time.monotonic() + FIRST_PROGRESS_S
        while not self._stopping.wait(TICK_S) and self._member.failure is None:
            now_s = time.monotonic()
            self.share.tick(now_s)
            if self._once and self.share.has_ended:
                return
            if now_s >= next_s:
                self._tell({"event": "progress", **self.facts()})
                next_s = now_s + PROGRESS_S

    def _went_well(self) -> bool:
        states = {one.state for one in self.share.progress().values()}
        if self._once:
            return (
                self._member.failure is None and not any(self._problems.values()) and states <= {"finished"}
            )
        return self._member.failure is None and "stopped" not in states

    def _make(self, partition: TopicPartition) -> Work:
        return Work(
            self._settings, self.positions, partition, once=self._once, accepts_loss=self._accepts_loss
        )

    # By the member's thread

    def _take(self, assignment: Assignment) -> None:
        self._is_leader = assignment.is_leader
        self.share.take(assignment.partitions)
        names = [str(one) for one in assignment.partitions]
        self._tell({"event": "assigned", "partitions": names, "leads": assignment.is_leader})

    def _wanted(self) -> Sequence[TopicPartition]:
        with self._upkeep_lock:
            self._known = self._upkeep.keep_in_step()
        self._tell_problems("topics", self._upkeep.problems)
        return self._known

    # By the thread that looks after topics and groups

    def _look_after(self) -> None:
        while not self._stopping.wait(self._upkeep_s):
            if not self._is_leader:
                continue
            try:
                before = self._known
                if self._wanted() != before:
                    self._member.rebalance()
                self._carry_groups_over()
                self._tell_problems("clusters", [])
            except EXPECTED as error:
                self._tell_problems("clusters", [str(error)])

    def _carry_groups_over(self) -> None:
        groups = carried_groups(self._settings.groups, self._sides.source)
        problems = carry_over(self._sides, groups)
        self._tell_problems("groups", [f"group {group}: {why}" for group, why in problems.items()])

    def _tell_problems(self, about: str, problems: Sequence[str]) -> None:
        """Each once, until it is gone."""
        for one in problems:
            if one not in self._problems.get(about, []):
                self._tell({"event": "problem", "text": one})
        self._problems[about] = list(problems)

    # What people see

    def facts(self) -> Event:
        totals, progress = self.share.totals(), self.share.progress()
        lags = [one.lag for one in progress.values()]
        now_ms = int(time.time() * 1000)
        behind = [one.behind_ms(now_ms) for one in progress.values()]
        return {
            "source": self._settings.source.name,
            "target": self._settings.target.name,
            "partitions": len(progress),
            "records": totals.records,
            "bytes": totals.bytes,
            "transactions": totals.transactions,
            "lag": None if None in lags else sum(lag or 0 for lag in lags),
            "behind_ms": None if None in behind else max((one or 0 for one in behind), default=0),
            "not_copying": {
                str(partition): f"{one.state}: {one.reason}" if one.reason else one.state
                for partition, one in progress.items()
                if one.state not in ("copying", "finished", "starting", "left")
            },
        }
