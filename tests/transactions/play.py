"""The state that all clients of a run with transactions share, and their checks of the responses to reads."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from odradek.coordinators.routing import partition_of
from odradek.errors import ErrorCode
from odradek.host.simulated import EPOCH_MS
from odradek.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.records.batch import BatchHeader, read_header
from odradek.records.record import decode_batch
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.cluster.clusters import Cluster
from tests.cluster.replicated import ReplicatedLogs
from tests.cluster.replicated_log import ReplicatedLog
from tests.cluster.traffic import ClusterPlay
from tests.simulation.batches import whole_batches
from tests.simulation.connection import Violation
from tests.simulation.log_history import PartitionHistory
from tests.simulation.world import World
from tests.transactions.fold import ABORT, CONTROL_KEY
from tests.transactions.ledger import Attempt, Ledger, Place, Spot
from tests.transactions.witness import TransactionWitness

CONSUMED = ("apple", 0)  # what the groups commit offsets of
GROUP_AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class Leading(NamedTuple):
    """The leader of a partition, and its epoch, by what is committed."""

    broker_id: int
    epoch: int


class Owner(NamedTuple):
    """A member of a group, and the generation or member epoch in which it was given the partition."""

    member_id: str
    generation: int


class TransactionPlay(ClusterPlay):
    def __init__(self, world: World, cluster: Cluster, replicated: ReplicatedLogs) -> None:
        super().__init__(world, cluster, replicated)
        self.ledger = Ledger()
        self.witness = TransactionWitness(replicated, self.ledger, lambda: EPOCH_MS + int(world.now() * 1000))
        self.owners: dict[str, Owner] = {}  # of what each group consumes, as members were told

    def log_of(self, partition: PartitionHistory) -> ReplicatedLog:
        return self.replicated.logs[partition.topic.id, partition.index]

    def names(self) -> dict[Spot, Place]:
        """The names of the partitions that are there."""
        return {
            (topic.id, index): (topic.name, index)
            for topic in self.replicated.image.topics.values()
            for index in topic.partitions
        }

    def partitions(self) -> list[PartitionHistory]:
        return [partition for topic in self.topics() for partition in topic.partitions]

    # --- Produce ---

    def check_stored(
        self, partition: PartitionHistory, attempt: Attempt, sequence: int, base_offset: int
    ) -> None:
        """T1, P9: where it was acknowledged this batch is, committed."""
        item = self.witness.fold(self.log_of(partition)).items.get(base_offset)
        found = None
        if item is not None:
            header = read_header(item.data)
            found = header.producer_id, header.producer_epoch, header.base_sequence
        if found != (attempt.producer_id, attempt.epoch, sequence):
            raise Violation(
                f"T1: sequence {sequence} of {attempt} was acknowledged at {base_offset} of {partition.name}, "
                f"where {found} is committed"
            )

    # --- Fetch ---

    def check_fetched(
        self, partition: PartitionHistory, offset: int, found: Any, is_committed_only: bool
    ) -> int:
        """Check that what a consumer makes of a response is what it should see. Where it goes on."""
        fold = self.witness.fold(self.log_of(partition))
        name = partition.name
        if found.last_stable_offset > fold.last_stable_offset:
            raise Violation(
                f"T5: {name} shows a last stable offset of {found.last_stable_offset}, and a transaction is open at "
                f"{fold.last_stable_offset}"
            )
        limit = found.last_stable_offset if is_committed_only else found.high_watermark
        for header, batch, is_visible in self.visible_batches(name, found):
            item = fold.items.get(header.base_offset)
            if item is None or item.data != batch:
                raise Violation(
                    f"P5: {name} shows {header} at {header.base_offset}, where {item} is committed"
                )
            if not header.base_offset <= offset < header.next_offset or header.next_offset > limit:
                raise Violation(f"P6: {name} shows {header} for offset {offset}, below {limit}")
            offset = header.next_offset
            if is_committed_only and not header.is_control:
                self._check_visible(name, header, is_visible, fold.fates[header.base_offset], found)
        return offset

    def visible_batches(self, name: str, found: Any) -> Iterator[tuple[BatchHeader, memoryview, bool]]:
        """The batches of a response, and whether a consumer that goes by its list of aborted transactions sees them."""
        hidden = self._aborted_in(name, found)
        aborting: set[int] = set()
        for header, batch in whole_batches(memoryview(found.records or b"")):
            while hidden and hidden[0].first_offset <= header.last_offset:
                aborting.add(hidden.pop(0).producer_id)
            if header.is_control and header.record_count and _is_abort(batch):
                aborting.discard(header.producer_id)
            yield header, batch, not (header.is_transactional and header.producer_id in aborting)

    def committed_records(self, partition: PartitionHistory) -> dict[int, tuple[bytes | None, bytes | None]]:
        """Keys and values by offset, as the log said before it was compacted."""
        fold = self.witness.fold(self.log_of(partition))
        return {
            record.offset: (record.key, record.value)
            for offset, fate in fold.fates.items()
            if fate
            for record in decode_batch(fold.items[offset].data, read_header(fold.items[offset].data))
        }

    def _aborted_in(self, name: str, found: Any) -> list[Any]:
        hidden = list(found.aborted_transactions or ())
        if hidden != sorted(hidden, key=lambda each: each.first_offset):
            raise Violation(f"T5: {name}: the aborted transactions are out of order: {hidden}")
        return hidden

    def _check_visible(self, name: str, header: Any, is_visible: bool, fate: bool | None, found: Any) -> None:
        if is_visible is not fate:
            what = {True: "committed", False: "aborted", None: "open"}[fate]
            raise Violation(
                f"T5: {name}: a read_committed consumer {'sees' if is_visible else 'does not see'} the records of "
                f"producer {header.producer_id} at {header.base_offset}, which are {what}; told of as aborted: "
                f"{found.aborted_transactions}"
            )
        self.count("batches seen as committed" if is_visible else "batches hidden as aborted")

    # --- coordinators of transactions ---

    def coordinator_log(self, transactional_id: str) -> ReplicatedLog | None:
        topic = self.replicated.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        return self.replicated.logs[topic.id, partition_of(transactional_id, len(topic.partitions))]

    def check_coordinator(self, log: ReplicatedLog) -> None:
        """T10: its leader knows what is committed; nothing is under way."""
        node = self.cluster.machines[log.registration.leader].node
        assert node is not None
        shard = node.services.coordination.transactions._shard(log.index)  # type: ignore[attr-defined]
        known = shard.runner.coordinator.transactions
        for transactional_id, wanted in self.witness.states.items():
            if self.coordinator_log(transactional_id) is not log:
                continue
            found = known.get(transactional_id)
            if found is None and self.witness.may_expire(wanted):
                continue
            for field in ("producer_id", "producer_epoch", "state", "partitions", "timeout_ms"):
                if getattr(found, field, None) != getattr(wanted, field):
                    raise Violation(f"T10: the coordinator of {transactional_id} has {found}, not {wanted}")

    # --- committed offsets ---

    def offsets_log(self, group: str) -> ReplicatedLog | None:
        topic = self.replicated.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        return self.replicated.logs[topic.id, partition_of(group, len(topic.partitions))]

    def leading(self, group: str) -> Leading | None:
        log = self.offsets_log(group)
        return None if log is None else Leading(log.registration.leader, log.registration.leader_epoch)

    def position(self, group: str) -> int:
        """Up to which the group has consumed, by what is committed."""
        attempt = self.witness.positions.get(group)
        return 0 if attempt is None or attempt.end is None else attempt.end

    def pending(self, group: str) -> list[Attempt]:
        """Return those of the group's transactions whose offsets are committed in the log, and not decided."""
        log = self.offsets_log(group)
        if log is None:
            return []
        found = []
        for batches in self.witness.fold(log).open_transactions().values():
            for data in batches:
                found += [attempt for attempt, _ in self.witness.attempts_in(log, data)]
        return [attempt for attempt in found if attempt.group == group]

    def check_position(self, group: str, before: "Before", result: Any) -> int | None:
        """Check what a coordinator says about a group. None if that is not sure, or not stable."""
        is_sure = before.leading is not None and before.leading == self.leading(group)
        if result.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            if not before.is_stable:
                raise Violation(f"T9: {group}: UNSTABLE_OFFSET_COMMIT, and nobody required a stable offset")
            return None
        if result.error_code:
            raise Violation(f"OffsetFetch was answered with {ErrorCode(result.error_code).name}")
        offset = max(result.committed_offset, 0)
        if result.committed_offset >= 0:
            attempt, _ = self.ledger.find(result.metadata or "")
            if not self.witness.has_decided(attempt, True) or attempt.end != offset:
                raise Violation(f"T9: {group} has the offset {offset} of {attempt}, which is not committed")
        if not is_sure or before.leading is None or before.leading.broker_id != before.broker_id:
            return None
        if not before.position <= offset <= max(self.position(group), offset):
            raise Violation(
                f"C3: {group} has the offset {offset}, and {before.position} was committed before"
            )
        if before.is_stable and before.pending and before.pending == self.pending(group):
            raise Violation(f"T9: {group} has a stable offset, {offset}, though others are pending: {before}")
        self.count("offsets read")
        return offset

    def before(self, group: str, broker_id: int, is_stable: bool) -> "Before":
        return Before(broker_id, is_stable, self.leading(group), self.position(group), self.pending(group))


class Before(NamedTuple):
    """The facts known of a group when a request for its offsets was sent."""

    broker_id: int
    is_stable: bool
    leading: Leading | None
    position: int
    pending: list[Attempt]


def _is_abort(batch: memoryview) -> bool:
    (record,) = decode_batch(batch, read_header(batch))
    return bool(CONTROL_KEY.unpack_from(record.key or b"")[1] == ABORT)


def offsets_request(group: str, is_stable: bool) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name=CONSUMED[0], partition_indexes=[CONSUMED[1]])]
    return OffsetFetchRequest([OffsetFetchRequestGroup(group, topics=topics)], require_stable=is_stable)
