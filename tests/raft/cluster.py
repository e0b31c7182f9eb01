"""Replicas of a quorum in memory: real cores and drivers, stores that lose what was not synced, and no clock.

`Cluster` delivers messages in the order they were sent, and lets time pass only when it is told to: transcripts are
written on it. It watches what must hold (`invariants.Invariants`). `tests/quorum` adds chance, faults and real logs.
"""

import pickle
import re
from bisect import bisect_right
from collections import deque
from random import Random
from typing import NamedTuple
from uuid import UUID

from odradek.errors import ErrorCode, KafkaError
from odradek.raft.core import Raft
from odradek.raft.driver import Driver
from odradek.raft.log_view import Batch, LogView
from odradek.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    VoteRequest,
    VoteResponse,
)
from odradek.raft.outgoing import Settings
from odradek.raft.roles import Follower, Leader
from odradek.raft.voters import ReplicaKey, VoterHistory, VoterSet
from odradek.records.walk import whole_batches
from odradek.storage.disk.sync import SyncTicket
from tests.raft.invariants import Invariants

CLUSTER_ID = "a-cluster"


def key(node_id, generation=0):
    return ReplicaKey(node_id, UUID(int=0xD000 + 0x100 * generation + node_id))


class Stored(NamedTuple):
    """A batch and what is in it."""

    batch: Batch
    values: tuple


class MemoryStore:
    """`Store` for a driver. A crash takes along what was not synced."""

    def __init__(self):
        self.election = None
        self.log = []
        self.synced = 0  # batches
        self.start = 0  # batches that the log has lost at its start; they stay here to be compared
        self.snapshots = {}
        self.snapshot_id = None
        self.part = b""
        self.installs = 0
        self.is_full = False
        self.batches_per_read = 8

    @property
    def entries(self):
        return self.log

    @property
    def end_offset(self):
        return self.log[-1].batch.end_offset if self.log else 0

    def is_durable_below(self, offset):
        return self.synced_offset >= offset

    @property
    def synced_offset(self):
        return self.log[self.synced - 1].batch.end_offset if self.synced else 0

    def view(self, static_voters):
        epochs = []
        for batch, _ in self.log[self.start :]:
            if not epochs or batch.epoch > epochs[-1][0]:
                epochs.append((batch.epoch, batch.base_offset))
        return LogView(
            self.voters(static_voters),
            start_offset=self.log[self.start - 1].batch.end_offset if self.start else 0,
            end_offset=self.end_offset,
            synced_offset=self.synced_offset,
            epochs=epochs,
            snapshot_id=self.snapshot_id,
        )

    def voters(self, static_voters):
        voters = VoterHistory(static_voters)
        for batch, _ in self.log:
            for offset, change in batch.changes:
                voters.add(offset, change)
        return voters

    def take_snapshot(self, batches):
        """Make a snapshot of so many batches, all committed; what the log loses by that is for `start` to say."""
        last = self.log[batches - 1].batch
        self.snapshot_id = OffsetAndEpoch(last.end_offset, last.epoch)
        self.snapshots[self.snapshot_id] = pickle.dumps(self.log[:batches])
        self.synced = max(self.synced, batches)  # a snapshot is synced when it is made
        return self.snapshot_id

    def slot(self, offset):
        """The position of the batch that holds an offset."""
        return bisect_right(self.log, offset, key=lambda item: item.batch.base_offset) - 1

    def load_election(self):
        return self.election

    def save_election(self, election):
        self.election = election

    def truncate_to(self, offset):
        while self.end_offset > offset:
            self.log.pop()
        assert self.end_offset == offset, "a batch is cut as a whole"
        self.synced = len(self.log)

    def append(self, append, now_ms):
        if self.is_full:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.")
        values = append.control or append.records
        base = self.end_offset
        changes = tuple(
            (base + delta, item)
            for delta, item in enumerate(append.control)
            if not hasattr(item, "granting_voters")
        )
        batch = Batch(base, base + len(values), append.epoch, changes)
        self.log.append(Stored(batch, values))
        return (batch,)

    def append_fetched(self, fetched, now_ms):
        if self.is_full:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.")
        fresh = pickle.loads(fetched.records)
        assert fresh[0].batch.base_offset == self.end_offset and fresh[-1].batch.epoch <= fetched.epoch
        self.log += fresh
        return tuple(item.batch for item in fresh)

    def read(self, offset, max_bytes):
        assert self.slot(offset) >= self.start, "the log does not begin so early"
        return pickle.dumps(self.log[self.slot(offset) :][: self.batches_per_read])

    def begin_sync(self):
        return SyncTicket((), len(self.log)) if self.synced < len(self.log) else None

    def complete_sync(self, ticket, error):
        self.synced = max(self.synced, min(ticket.offset, len(self.log)))

    def sync(self):
        self.synced = len(self.log)

    def crash(self):
        del self.log[self.synced :]


class MemorySnapshots:
    """`Snapshots` for a driver."""

    def __init__(self, store, static_voters):
        self.store = store
        self.static_voters = static_voters

    def read(self, snapshot_id, position, max_bytes):
        data = self.store.snapshots.get(snapshot_id)
        if data is None:
            raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND, "It is gone.")
        return len(data), data[position : position + max_bytes]

    def write(self, part):
        if self.store.is_full:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.")
        self.store.part = self.store.part[: part.position] + part.data
        assert len(self.store.part) == part.position + len(part.data)

    def install(self, snapshot_id):
        store = self.store
        store.snapshots[snapshot_id], store.snapshot_id = store.part, snapshot_id
        store.log = pickle.loads(store.part)
        store.start = store.synced = len(store.log)
        store.installs += 1
        assert store.end_offset == snapshot_id.offset
        return store.voters(self.static_voters)


class Node:
    """A replica, over its lives. `driver` is None while it is down."""

    def __init__(self, replica, store):
        self.key = replica
        self.store = store
        self.driver = None

    @property
    def raft(self):
        return self.driver.raft

    @property
    def role(self):
        return type(self.raft.role).__name__.lower()

    @property
    def values(self):
        """The values that were proposed, control records left out, as (epoch, value)."""
        return [
            (item.batch.epoch, value.decode())
            for item in self.store.log
            for value in item.values
            if isinstance(value, bytes)
        ]


class Cluster:
    invariants_type = Invariants

    def __init__(self, voters=3, observers=0, seed=0, settings=None, kraft_version=0):
        self.rng = Random(seed)
        self.now = 0
        self.settings = settings or Settings()
        self.kraft_version = kraft_version
        self.static = VoterSet.of(*(key(node_id) for node_id in range(1, voters + 1)))
        self.invariants = self.invariants_type(self)
        self.network = deque()
        self.cuts = set()  # pairs of sender and receiver
        self.unsynced = set()  # nodes whose syncs take long
        self.transcript = []
        self.nodes = {n: Node(key(n), MemoryStore()) for n in range(1, voters + observers + 1)}
        for node_id in self.nodes:
            self.start(node_id)

    def store_of(self, replica):
        return next((node.store for node in self.nodes.values() if node.key == replica), None)

    def start(self, node_id):
        node = self.nodes[node_id]
        node.store.sync()
        raft = Raft(
            node.key,
            CLUSTER_ID,
            node.store.view(self.static),
            node.store.load_election(),
            rng=Random(self.rng.random()),
            now_ms=self.now,
            settings=self.settings,
            kraft_version=self.kraft_version,
        )
        node.driver = self.new_driver(node, raft)
        self.invariants.started(node)

    def new_driver(self, node, raft):
        return Driver(raft, node.store, self.send, MemorySnapshots(node.store, self.static))

    def crash(self, node_id):
        """The process dies, and takes along what was not synced; so do its messages that are under way."""
        node = self.nodes[node_id]
        node.driver = None
        node.store.crash()
        self.network = deque(item for item in self.network if node_id not in (item.sender, item.receiver))

    def add_node(self, node_id, generation=0):
        self.nodes[node_id] = Node(key(node_id, generation), MemoryStore())
        self.start(node_id)

    # Messages

    def send(self, message):
        self.invariants.sent(self.nodes[message.sender], message)
        self.network.append(message)

    def act(self, node_id, action):
        """Let a node do something, then sync, and look whether all still holds."""
        node = self.nodes[node_id]
        before = (node.role, node.raft.epoch)
        try:
            result = action(node.driver)
        finally:
            if (node.role, node.raft.epoch) != before:
                self.transcript.append(f"{node_id} is {node.role} in epoch {node.raft.epoch}")
            self.invariants.check(node)
        if node.driver.wants_sync and node_id not in self.unsynced:
            self.act(node_id, lambda driver: driver.sync(self.now))
        return result

    def deliver(self, until=lambda: False):
        """Everything that is sent arrives, until nobody has anything more to say."""
        while self.network and not until():
            message = self.network.popleft()
            if (message.sender, message.receiver) in self.cuts or self.nodes[message.receiver].driver is None:
                continue
            text = describe(message)
            if text:
                self.transcript.append(text)
            self.act(message.receiver, lambda driver, item=message: driver.step(item, self.now))

    def cut(self, *node_ids):
        """Nobody hears of these nodes, and they hear of nobody else."""
        others = [n for n in self.nodes if n not in node_ids]
        self.cuts |= {(a, b) for a in node_ids for b in others} | {(b, a) for a in node_ids for b in others}

    def heal(self):
        self.cuts.clear()

    # Time

    def tick(self, node_id):
        self.act(node_id, lambda driver: driver.tick(self.now))

    def lose_patience(self, node_id):
        """The node's timer runs out, before anybody else's does."""
        self.now = max(self.now, self.nodes[node_id].raft.role.deadline_ms)
        self.tick(node_id)

    def elect(self, node_id):
        """Nobody hears of a leader any more when this node asks for votes."""
        for node in self.nodes.values():
            role = node.raft.role if node.driver else None
            if isinstance(role, Follower):
                role.has_fetched = False
            elif isinstance(role, Leader):
                role.begin_deadline_ms = self.now + 100_000
        for _ in range(3):
            if self.nodes[node_id].role != "leader":
                self.lose_patience(node_id)
                self.deliver()
        assert self.nodes[node_id].role == "leader"

    def run(self, milliseconds):
        """Let time pass for everybody."""
        end = self.now + milliseconds
        while True:
            self.deliver()
            due = [
                (node.raft.next_tick_ms, node_id)
                for node_id, node in self.nodes.items()
                if node.driver is not None and node.raft.next_tick_ms is not None
            ]
            when, node_id = min(due, default=(end, 0))
            if when >= end:
                self.now = end
                return
            self.now = max(self.now, when)
            self.tick(node_id)

    # Records

    def take_snapshot(self, node_id, start=None):
        """Snapshot all that is committed; the log loses so many batches at its start, or all of the snapshot."""
        store, raft = self.nodes[node_id].store, self.nodes[node_id].raft
        batches = store.slot(raft.high_watermark - 1) + 1
        snapshot_id = store.take_snapshot(batches)
        store.start = batches if start is None else start
        offset = store.log[store.start - 1].batch.end_offset
        self.act(node_id, lambda driver: driver.log_start_moved(offset, snapshot_id, self.now))
        return snapshot_id

    def propose(self, node_id, *values):
        return self.act(
            node_id, lambda driver: driver.propose([value.encode() for value in values], self.now)
        )

    def leaders(self):
        return [n for n, node in self.nodes.items() if node.driver and isinstance(node.raft.role, Leader)]

    def play(self, about=None, fetches=True):
        """Return what happened since this was asked last; to one node alone; without the fetches."""
        self.deliver()
        lines, self.transcript = self.transcript, []
        if not fetches:
            lines = [line for line in lines if not FETCHES.search(line)]
        if about is not None:
            lines = [line for line in lines if str(about) in line.split(":")[0].split(" ")[:3]]
        return "\n".join(lines)


FETCHES = re.compile("fetch from|records, committed|: committed|NOT_LEADER|UNKNOWN_LEADER|: FENCED")


def describe(message):
    """One line; nothing for what only repeats what was said."""
    body, way = message.body, f"{message.sender} → {message.receiver}:"
    if isinstance(body, VoteRequest):
        kind = "pre-vote" if body.is_pre_vote else "vote"
        return f"{way} {kind} in epoch {body.epoch}, my log ends at {body.last_epoch}/{body.end_offset}"
    if isinstance(body, VoteResponse):
        if body.error is not ErrorCode.NONE:
            return f"{way} {body.error.name}, epoch {body.epoch}"
        return f"{way} {'yes' if body.is_granted else 'no'}, epoch {body.epoch}"
    if isinstance(body, BeginQuorumEpochRequest):
        return f"{way} I lead epoch {body.epoch}"
    if isinstance(body, EndQuorumEpochRequest):
        return f"{way} epoch {body.epoch} ends, next {[item.node_id for item in body.preferred_successors]}"
    if isinstance(body, FetchRequest):
        return f"{way} fetch from {body.last_fetched_epoch}/{body.fetch_offset}"
    if isinstance(body, FetchResponse):
        if body.error is not ErrorCode.NONE:
            return f"{way} {body.error.name}, epoch {body.epoch}"
        if body.diverging is not None:
            return f"{way} we diverge after {body.diverging.epoch}/{body.diverging.offset}"
        if body.records:
            return f"{way} {count_records(body.records)} records, committed {body.high_watermark}"
        if body.snapshot_id is not None:
            return f"{way} fetch snapshot {body.snapshot_id.epoch}/{body.snapshot_id.offset}"
        return f"{way} committed {body.high_watermark}"
    if isinstance(body, FetchSnapshotRequest):
        return f"{way} snapshot {body.snapshot_id.epoch}/{body.snapshot_id.offset} from byte {body.position}"
    if isinstance(body, FetchSnapshotResponse):
        if body.error is not ErrorCode.NONE:
            return f"{way} {body.error.name}, epoch {body.epoch}"
        return f"{way} {len(body.data)} of {body.size} bytes"
    return ""


def count_records(data):
    if data.startswith(b"\x80"):
        return sum(len(item.values) for item in pickle.loads(data))
    return sum(header.record_count for header, _ in whole_batches(memoryview(data)))
