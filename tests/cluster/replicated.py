"""The records that the partitions of a cluster have committed, and a check that every replica keeps to it.

After every step of the event loop the replicas of the nodes that ran in it are looked at (`watch`). The truth about
roles and in-sync replicas is what the metadata log has committed (`chronicle`). The truth about records is made here:
when a leader raises the high watermark further than any leader before it, what lies below is read from its log, and is
history from then on.

- P2, P3 whoever is in sync has it on disk, the same bytes, at that moment; the leader counts on all who may be in sync,
         and its ISR is no smaller than the topic asks for
- P5     a leader that takes over has all of history
- P8     whoever joins the ISR has all of history, and all that came before the leader's epoch
- P9     one leader in an epoch; it appends nothing once its epoch is over
- P10    whoever is in sync never cuts what is committed, nor loses it in a crash
- P13    log start ≤ high watermark ≤ log end

Where a topic allows unclean elections, whoever is elected so decides what is committed: history begins anew with that,
all of the above holds from there on, and what leaders of earlier epochs say counts no more.

A replica counts with what is synced. A node without power counts with what its disk would still hold; one whose disk
was lost for good, or whose log was cut short (`damages`), and which has not said so yet, does not count.
"""

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

from odradek.host.simulated import EPOCH_MS
from odradek.metadata.image import LOST_DIRECTORY, MetadataImage, Partition, Topic
from odradek.replication.leader import Leader
from odradek.replication.replica import Replica
from odradek.storage.segments.damage import DamagedSegment
from tests.cluster.chronicle import Chronicle
from tests.cluster.clusters import Cluster, directory_id
from tests.cluster.committed import Committed, read_files, read_log, read_segments
from tests.cluster.damages import Damages
from tests.cluster.kept import Disk, Kept
from tests.cluster.replicated_log import ReplicatedLog
from tests.simulation.connection import Violation
from tests.simulation.machine import DATA_DIR

MIN_ISR, UNCLEAN_ELECTION = "min.insync.replicas", "unclean.leader.election.enable"
RECOVERING = 1  # the state of a leader that was elected uncleanly
NO_LEADER = -1


class Seen:
    """A replica as it was when it was last looked at."""

    __slots__ = ("end_offset", "high_watermark", "is_over", "isr", "partition_epoch", "role", "start_offset")

    def __init__(self) -> None:
        self.role: Any = None
        self.is_over = False  # it leads in an epoch in which it led in an earlier life
        self.isr: frozenset[int] = frozenset()  # of a leader
        self.partition_epoch = -1
        self.high_watermark = 0
        self.start_offset = 0
        self.end_offset = -1

    def take_isr(self, leader: Leader) -> None:
        self.isr, self.partition_epoch = leader.isr, leader.partition_epoch


class Witness(Protocol):
    """Is told of what happens to the logs; `looked` comes after all that happened in one step."""

    def leads(self, node_id: int, log: ReplicatedLog, leader: Leader) -> None: ...
    def appended(self, log: ReplicatedLog, leader: Leader, start: int) -> None: ...
    def cut(self, node_id: int, log: ReplicatedLog, replica: Replica) -> None: ...
    def committed(self, log: ReplicatedLog, added: list[Committed]) -> None: ...
    def changed(self, log: ReplicatedLog, leader: Leader) -> None: ...
    def looked(self) -> None: ...


class ReplicatedLogs:
    def __init__(
        self, cluster: Cluster, chronicle: Chronicle, min_isr: int, has_upkeep: bool = False
    ) -> None:
        """`min_isr` is what topics have that say nothing else. With `has_upkeep` logs are compacted and limited."""
        self._cluster = cluster
        self.chronicle = chronicle
        self._min_isr = min_isr
        self._has_upkeep = has_upkeep
        self.image = MetadataImage("")  # the newest that is committed
        self.logs: dict[tuple[UUID, int], ReplicatedLog] = {}
        self.damages = Damages(self)
        self._seen: dict[int, dict[Replica, Seen]] = {}  # by node
        self._lives: dict[int, int] = {}
        self._early: dict[int, None] = {}  # nodes with a replica of which no committed image tells yet
        self.witness: Witness | None = None
        self.counts = dict.fromkeys(
            (
                "elections of leaders",
                "truncations of replicas",
                "joins",
                "shrinks",
                "commits of logs",
                "starts of logs that moved",
                "unclean elections",
                "batches that were compacted",
            ),
            0,
        )

    def fail(self, log: ReplicatedLog, text: str) -> None:
        raise Violation(f"{text} [{log.name}, {log.registration._replace(directories=())}]")

    # --- after every step ---

    def look(self, node_ids: Sequence[int]) -> None:
        if self.chronicle.newest is not self.image:
            self._take_image(self.chronicle.newest)
        if self._early:
            node_ids = sorted({*node_ids, *self._early})
            self._early.clear()
        for node_id in node_ids:
            machine = self._cluster.machines[node_id]
            node = machine.node
            if node is None:
                continue
            if self._lives.get(node_id) != machine.starts:
                self._lives[node_id] = machine.starts
                self._seen[node_id] = {}
            seen = self._seen[node_id]
            for replica in node.replicas:
                known = seen.get(replica)
                role = replica.leader or replica.follower
                if known is None:
                    if role is not None:
                        known = seen[replica] = Seen()
                        self._changed(node_id, replica, role, known)
                elif (
                    known.end_offset != replica.log.end_offset
                    or role is not known.role
                    or role.high_watermark != known.high_watermark
                    or replica.log.log_start_offset != known.start_offset
                ):
                    self._changed(node_id, replica, role, known)
                elif replica.leader is not None:
                    known.take_isr(replica.leader)
            if len(seen) > len(node.replicas):
                self._removed(node_id, seen, set(node.replicas))
        if self.witness is not None:
            self.witness.looked()

    def _changed(self, node_id: int, replica: Replica, role: Any, known: Seen) -> None:
        log = self.logs.get((replica.topic_id, replica.topic_partition.partition))
        if log is None:
            self._early[node_id] = None
            return
        end_offset, high_watermark = replica.log.end_offset, role.high_watermark
        former = known.role
        if isinstance(former, Leader) and former is not role and former.high_watermark > log.high_watermark:
            # It committed this, acknowledged it, and heard of a new leader, all in one step.
            self._advance(node_id, log, former, former.high_watermark, known)
        if end_offset < known.end_offset:
            self._truncated(node_id, log, known.end_offset, end_offset)
            if self.witness is not None:
                self.witness.cut(node_id, log, replica)
        if known.end_offset < 0 and end_offset < log.high_watermark:
            self._started_short(node_id, log, end_offset)
        if not replica.log.log_start_offset <= high_watermark <= end_offset:
            self.fail(
                log,
                f"P13: broker {node_id} has {replica.log.log_start_offset}, {high_watermark}, {end_offset}",
            )
        leader = replica.leader
        if leader is not None:
            if leader is not known.role:
                known.take_isr(leader)
                known.is_over = not self._begins_to_lead(node_id, log, leader)
                if self.witness is not None:
                    self.witness.leads(node_id, log, leader)
            elif known.is_over and end_offset > known.end_offset:
                self.fail(
                    log, f"P9: broker {node_id} goes on in epoch {leader.leader_epoch}, after a restart"
                )
            if self.witness is not None and 0 <= known.end_offset < end_offset:
                self.witness.appended(log, leader, known.end_offset)
            if high_watermark > log.high_watermark:
                self._advance(node_id, log, leader, high_watermark, known)
            known.take_isr(leader)
            if self.witness is not None:
                self.witness.changed(log, leader)
        self._starts_at(node_id, log, replica, known)
        known.role, known.end_offset, known.high_watermark = role, end_offset, high_watermark

    def _removed(self, node_id: int, seen: dict[Replica, Seen], present: set[Replica]) -> None:
        """Their partitions have moved to other brokers, or their topics are deleted: then what they had just committed
        was acknowledged, and cannot be read any more."""
        for replica in [replica for replica in seen if replica not in present]:
            known = seen.pop(replica)
            role = known.role
            log = self.logs.get((replica.topic_id, replica.topic_partition.partition))
            if log is None or not isinstance(role, Leader) or role.high_watermark <= log.high_watermark:
                continue
            if log.topic_id in self.image.topics_by_id:
                self._advance(node_id, log, role, role.high_watermark, known)
            else:
                log.high_watermark = role.high_watermark

    # --- metadata ---

    def _take_image(self, image: MetadataImage) -> None:
        before, self.image = self.image, image
        if image.topics is before.topics:
            return
        for passed in self.chronicle.images_since(before.offset):
            for topic in passed.topics.values():
                for index, registration in topic.partitions.items():
                    if (topic.id, index) in self.logs:
                        self._passed(topic, self.logs[topic.id, index], registration)
        for topic in image.topics.values():
            if before.topics.get(topic.name) is not topic:
                for index, registration in topic.partitions.items():
                    self._take_registration(topic, index, registration)

    def _passed(self, topic: Topic, log: ReplicatedLog, registration: Partition) -> None:
        log.isrs[registration.partition_epoch] = registration.isr
        is_unclean = registration.leader_recovery_state == RECOVERING
        if is_unclean and registration.leader_epoch > log.unclean_epoch and self._may_be_unclean(topic):
            self.counts["unclean elections"] += 1
            log.elected_uncleanly(registration.leader_epoch)

    def _may_be_unclean(self, topic: Topic) -> bool:
        return self.image.topic_overrides(topic.name).get(UNCLEAN_ELECTION) == "true"

    def _take_registration(self, topic: Topic, index: int, registration: Partition) -> None:
        log = self.logs.get((topic.id, index))
        if log is None:
            name = f"{topic.name}-{index}"
            kept = Kept(self.image.topic_overrides(topic.name) if self._has_upkeep else {})
            self.logs[topic.id, index] = ReplicatedLog(name, topic.id, index, registration, kept)
            return
        before, log.registration = log.registration, registration
        if (
            registration.partition_epoch < before.partition_epoch
            or registration.leader_epoch < before.leader_epoch
        ):
            self.fail(log, f"P9: the registration went back from {before}")
        self.counts["elections of leaders"] += registration.leader_epoch > before.leader_epoch
        self.counts["shrinks"] += len(registration.isr) < len(before.isr)
        for broker_id in registration.isr:
            if broker_id not in before.isr:
                self.counts["joins"] += 1
                if registration.leader_epoch == before.leader_epoch:
                    log.joins[registration.leader_epoch] = registration
                self._joined(log, broker_id)
        for broker_id in registration.replicas:
            if broker_id not in registration.isr and broker_id in self.image.brokers:
                place = broker_id, registration.partition_epoch
                log.outsiders.setdefault(place, self.image.brokers[broker_id].epoch)

    def _joined(self, log: ReplicatedLog, broker_id: int) -> None:
        if self.damages.is_excused(log, broker_id):
            return  # by a proposal that came late, or as an eligible leader: it leaves again when it registers
        self.damages.joined(log, broker_id)
        self._check_has(log, broker_id, 0, log.high_watermark, "P8: it joined the ISR")
        start = log.epoch_starts.get(log.registration.leader_epoch, 0)
        end = self._end_offset(log, broker_id)
        if end is not None and end < start:
            self.fail(
                log,
                f"P8: broker {broker_id} joined the ISR with {end} offsets, before epoch "
                f"{log.registration.leader_epoch}, which began at {start}",
            )

    # --- roles ---

    def _begins_to_lead(self, node_id: int, log: ReplicatedLog, leader: Leader) -> bool:
        """False if it did so before. A broker that starts takes up the role that the metadata still gives it, but
        registers before it serves anybody, and so has another epoch by then."""
        known = log.leaders.setdefault(leader.leader_epoch, node_id)
        if known != node_id:
            self.fail(log, f"P9: brokers {known} and {node_id} both lead in epoch {leader.leader_epoch}")
        if leader.leader_epoch in log.epoch_starts:
            return False
        if log.is_open and leader.leader_epoch >= log.unclean_epoch:
            log.begin_anew(leader)
        log.epoch_starts[leader.leader_epoch] = leader.epoch_start_offset
        if leader.leader_epoch == log.registration.leader_epoch:
            self._check_has(log, node_id, 0, log.high_watermark, "P5: it was elected leader")
        return True

    def _truncated(self, node_id: int, log: ReplicatedLog, before: int, after: int) -> None:
        self.counts["truncations of replicas"] += 1
        self._cluster.world.note(f"node{node_id}", f"cut {log.name} from {before} to {after}")
        if after < log.high_watermark and node_id in log.registration.isr and not log.is_open:
            self.fail(
                log,
                f"P10: broker {node_id}, in sync, cut its log from {before} to {after}, though all below "
                f"{log.high_watermark} is committed",
            )

    def _starts_at(self, node_id: int, log: ReplicatedLog, replica: Replica, known: Seen) -> None:
        start = known.start_offset = replica.log.log_start_offset
        wrong = log.kept.check_deleted(self.disk_of(node_id), start)
        if start > log.kept.start_offset:
            now_ms = EPOCH_MS + int(self._cluster.world.now() * 1000)
            self.counts["starts of logs that moved"] += 1
            wrong = wrong or log.kept.starts(
                start, replica.log.size_bytes, log.high_watermark, log.since(log.kept.start_offset), now_ms
            )
        if wrong:
            self.fail(log, f"broker {node_id}: {wrong}")

    def disk_of(self, node_id: int) -> Disk:
        return node_id, self._cluster.generations[node_id]

    def _started_short(self, node_id: int, log: ReplicatedLog, end_offset: int) -> None:
        is_deleted = log.topic_id not in self.image.topics_by_id  # and its last registration may not be known
        if is_deleted or log.is_open or self.has_lost_disk(node_id) or self.damages.is_excused(log, node_id):
            return
        if node_id in log.registration.isr:
            self.fail(log, f"P10: broker {node_id} started with {end_offset} of {log.high_watermark} offsets")

    def _advance(self, node_id: int, log: ReplicatedLog, leader: Leader, offset: int, known: Seen) -> None:
        """This leader says that all below `offset` is committed. In one step it may have gone through several ISRs."""
        if leader.leader_epoch < log.unclean_epoch:
            return
        self.counts["commits of logs"] += 1
        registration, start = log.registration, log.high_watermark
        least = min(self.min_isr(log), len(registration.replicas))
        passed = range(known.partition_epoch + 1, leader.partition_epoch)
        isrs = [known.isr, *(log.isrs.get(epoch, ()) for epoch in passed), leader.isr]
        if offset > log.reached_before and max(map(len, isrs)) < least:
            self.fail(
                log, f"P3: broker {node_id} committed {offset} with an ISR of {set(leader.isr)}, of {least}"
            )
        if registration.leader == node_id and registration.leader_epoch == leader.leader_epoch:
            missing = set(registration.isr) - leader.maximal_isr - known.isr
            if missing:
                self.fail(log, f"P3: broker {node_id} committed {offset} without {missing}, in sync")
        start_offset = leader.log.log_start_offset
        is_deleted = start_offset > start  # retention, or a client, was as quick
        items = (read_segments if is_deleted else read_log)(leader.log, start)
        added = [item for item in items if item.next_offset <= offset]
        start = max(start, start_offset)
        has_all = added and added[0].base_offset <= start and added[-1].next_offset == offset
        if start < offset and not has_all:
            self.fail(log, f"P6: broker {node_id} committed {start} to {offset}, and has {added}")
        log.history += added
        log.high_watermark = offset
        log.kept.committed(added)
        if self.witness is not None:
            self.witness.committed(log, added)
        for broker_id in registration.isr:
            if not self.damages.is_excused(log, broker_id):
                self._check_has(log, broker_id, start, offset, f"P2: broker {node_id} committed that")

    def min_isr(self, log: ReplicatedLog) -> int:
        topic = self.image.topics_by_id.get(log.topic_id)
        overrides = self.image.topic_overrides(topic.name) if topic is not None else {}
        return int(overrides.get(MIN_ISR) or self._min_isr)

    def may_be_unclean(self, log: ReplicatedLog) -> bool:
        topic = self.image.topics_by_id.get(log.topic_id)
        return topic is not None and self._may_be_unclean(topic)

    # --- what a broker has ---

    def has_lost_disk(self, broker_id: int) -> bool:
        """And is registered with the one before."""
        broker = self.image.brokers.get(broker_id)
        now = directory_id(broker_id, self._cluster.generations[broker_id])
        return broker is None or now not in broker.directories

    def replica(self, log: ReplicatedLog, broker_id: int) -> Replica | None:
        node = self._cluster.machines[broker_id].node
        if node is None:
            return None
        topic = self.image.topics_by_id.get(log.topic_id)
        replica = node.replicas.present(topic.name, log.index) if topic is not None else None
        return replica if replica is not None and replica.topic_id == log.topic_id else None

    def _end_offset(self, log: ReplicatedLog, broker_id: int) -> int | None:
        """The log end offset of a broker that is on."""
        replica = self.replica(log, broker_id)
        return None if replica is None or self.has_lost_disk(broker_id) else replica.log.end_offset

    def _check_has(self, log: ReplicatedLog, broker_id: int, start: int, end: int, why: str) -> None:
        """All that is committed between these offsets is on its disk."""
        if (
            log.is_open
            or start >= end
            or self.has_lost_disk(broker_id)
            or log.topic_id not in self.image.topics_by_id
        ):
            return
        replica = self.replica(log, broker_id)
        if replica is not None:
            synced = replica.log.synced_offset
            if synced < end:
                self.fail(log, f"{why}: broker {broker_id} has {synced} of {end} offsets on disk")
            start = max(
                start, replica.log.log_start_offset
            )  # which is checked when it is looked at, maybe after this
            try:
                found = {item.base_offset: item for item in read_log(replica.log, start)}
            except DamagedSegment as damage:
                self.fail(log, f"{why}: broker {broker_id} has a damaged log: {damage}")
        else:
            files = self._cluster.machines[broker_id].files.durable(f"{DATA_DIR}/{log.name}")
            found = {item.base_offset: item for item in read_files(files)}
        wrong = log.kept.compare([item for item in log.since(start) if item.next_offset <= end], found)
        if wrong:
            self.fail(log, f"{why}: broker {broker_id} {wrong}")

    # --- the end ---

    def all_in_sync(self) -> bool:
        return not self.damages and all(
            set(log.registration.isr) == set(log.registration.replicas)
            for log in self.logs.values()
            if log.topic_id in self.image.topics_by_id
        )

    def without_candidates(self) -> list[ReplicatedLog]:
        """Partitions that only an operator can have led again: the only ones that were in sync were killed, and the
        last of them has lost its disk. Their records are not lost: somebody has them all (P1)."""
        found = [
            log
            for log in self.logs.values()
            if log.topic_id in self.image.topics_by_id
            and log.registration.leader == NO_LEADER
            and not log.registration.isr
            and not log.registration.eligible_leader_replicas
            and all(
                log.registration.directory_of(last) == LOST_DIRECTORY
                for last in log.registration.last_known_elr
            )
        ]
        for log in found:
            if not any(self._has_all(log, broker_id) for broker_id in log.registration.replicas):
                self.fail(log, "P1: no disk has all that is committed")
        return found

    def _has_all(self, log: ReplicatedLog, broker_id: int) -> bool:
        files = self._cluster.machines[broker_id].files.durable(f"{DATA_DIR}/{log.name}")
        return not log.kept.compare(log.history, {item.base_offset: item for item in read_files(files)})

    def is_whole(self) -> bool:
        """Every partition is led, everybody is in sync, and all replicas know what is committed."""
        for log in self.logs.values():
            registration = log.registration
            if log.topic_id not in self.image.topics_by_id:
                continue
            if registration.leader == NO_LEADER or set(registration.isr) != set(registration.replicas):
                return False
            if registration.adding_replicas or registration.removing_replicas:
                return False
            replicas = [self.replica(log, broker_id) for broker_id in registration.replicas]
            if any(
                replica is None
                or replica.high_watermark != replica.log.end_offset
                or replica.log.end_offset != log.high_watermark
                for replica in replicas
            ):
                return False
        return True

    def missing(self) -> list[str]:
        """Why it is not whole, for people."""
        return [
            f"{log.name}: {log.registration._replace(directories=())}, committed {log.high_watermark}, "
            + str(
                {
                    broker_id: replica
                    and (replica.high_watermark, replica.log.synced_offset, replica.log.end_offset)
                    for broker_id in log.registration.replicas
                    for replica in [self.replica(log, broker_id)]
                }
            )
            for log in self.logs.values()
            if log.topic_id in self.image.topics_by_id
        ]

    def disk_contents(self, broker_id: int) -> dict[str, bytes]:
        """The files of a broker that is off, as far as they have to be whole."""
        return self._cluster.machines[broker_id].files.contents()

    def check_disks(self) -> None:
        """P4: all replicas are byte-equal but for what upkeep has taken, on nodes that are stopped."""
        for log in self.logs.values():
            if log.topic_id not in self.image.topics_by_id:
                continue
            for broker_id in log.registration.replicas:
                prefix = f"{DATA_DIR}/{log.name}/"
                files = {
                    path.removeprefix(prefix): data
                    for path, data in self.disk_contents(broker_id).items()
                    if path.startswith(prefix)
                }
                found = {item.base_offset: item for item in read_files(files)}
                wrong = log.kept.compare(log.history, found)
                if log.kept.is_compacted:
                    self.counts["batches that were compacted"] += len(set(log.history) - set(found.values()))
                own = found.keys() - {item.base_offset for item in log.history}
                if wrong or any(found[offset].next_offset > log.kept.start_offset for offset in own):
                    self.fail(log, f"P4: broker {broker_id} {wrong or 'has records that are not committed'}")
