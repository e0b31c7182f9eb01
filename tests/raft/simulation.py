"""A quorum under chance: one seed, one run. Messages are lost, doubled, late and out of order; nodes crash and forget.

Everything that happens is an event on one heap, in virtual time. After every event the node that acted is checked
(`invariants`).

A run has three acts. In the first everything fails. Then the faults stop, and within ten seconds all nodes must follow
one leader, and soon have equal logs. In the last a single voter cannot reach the leader for a while: that must not
trouble anybody else.
"""

import heapq
from typing import NamedTuple

from tests.raft.cluster import Cluster, MemorySnapshots, key
from tests.raft.invariants import require

from odradek.errors import KafkaError
from odradek.raft.driver import Driver
from odradek.raft.outgoing import Settings
from odradek.raft.reconfiguration import AddVoter, RemoveVoter
from odradek.raft.voters import VoterNode

SETTINGS = Settings(fetch_max_wait_ms=250, retry_backoff_ms=50, request_timeout_ms=1500, fetch_max_bytes=2000)
FAULTS_MS = 12_000
LEADER_WITHIN_MS = 10_000
SETTLE_MS = 2_500  # longer than a request that was lost is waited for


class Chances(NamedTuple):
    """Of what happens to a message, and of what happens in a step of the world."""

    loss: float
    double: float
    slow: float


class Simulation(Cluster):
    def __init__(self, seed, voters=3, observers=1, raft_type=Cluster.raft_type, driver_type=Driver):
        self.raft_type, self.driver_type = raft_type, driver_type
        self.heap = []
        self.order = 0
        self.lives = {}  # node id -> how often it was started: what was planned for an earlier life is void
        self.woken = {}  # node id -> when its next tick is planned
        self.syncing = set()
        self.is_faulty = True
        self.is_quiet = False
        self.proposed = self.crashes = self.voter_changes = self.snapshots = 0
        self.takes_snapshots = seed % 4 in (1, 2)
        super().__init__(voters, observers, seed, SETTINGS, kraft_version=seed % 2)
        self.chances = Chances(*(self.rng.choice((0, 0.02, 0.15)) for _ in range(3)))
        for node_id in self.nodes:
            self.plan_tick(node_id)

    def new_driver(self, node, raft):
        return self.driver_type(raft, node.store, self.send, MemorySnapshots(node.store, self.static))

    def start(self, node_id):
        self.lives[node_id] = self.lives.get(node_id, 0) + 1
        self.woken.pop(node_id, None)
        self.syncing.discard(node_id)
        super().start(node_id)
        self.plan_tick(node_id)

    # The heap

    def plan(self, delay_ms, action, *arguments):
        self.order += 1
        heapq.heappush(self.heap, (self.now + delay_ms, self.order, action, arguments))

    def plan_tick(self, node_id):
        node = self.nodes[node_id]
        when = node.raft.next_tick_ms if node.driver is not None else None
        if when is not None and when < self.woken.get(node_id, 1 << 60):
            self.woken[node_id] = when
            self.plan(max(when - self.now, 0), self.wake, node_id, self.lives[node_id], when)

    def wake(self, node_id, life, when):
        if self.is_alive(node_id, life) and self.woken.get(node_id) == when:
            del self.woken[node_id]
            self.tick(node_id)

    def is_alive(self, node_id, life):
        return self.nodes[node_id].driver is not None and self.lives[node_id] == life

    # Nodes

    def act(self, node_id, action):
        node = self.nodes[node_id]
        try:
            return action(node.driver)
        except KafkaError:
            return None  # a disk that is full, or a proposal to a follower
        finally:
            self.invariants.check(node)
            if node.driver.wants_sync and node_id not in self.syncing:
                self.syncing.add(node_id)
                ticket = node.driver.begin_sync()
                self.plan(self.rng.choice((1, 5, 40)), self.finish_sync, node_id, self.lives[node_id], ticket)
            self.plan_tick(node_id)

    def finish_sync(self, node_id, life, ticket):
        if self.is_alive(node_id, life):
            self.syncing.discard(node_id)
            if ticket is not None:
                self.act(node_id, lambda driver: driver.complete_sync(ticket, None, self.now))

    def crash(self, node_id):
        node = self.nodes[node_id]
        node.driver = None
        node.store.crash(self.rng)
        self.crashes += 1

    # Messages

    def send(self, message):
        self.invariants.sent(self.nodes[message.sender], message)
        chances = self.chances if self.is_faulty else Chances(0, 0, 0)
        if self.rng.random() < chances.loss:
            return
        for _ in range(2 if self.rng.random() < chances.double else 1):
            slow = self.rng.random() < chances.slow
            self.plan(self.rng.randrange(2000) if slow else self.rng.randint(1, 8), self.arrive, message)

    def arrive(self, message):
        if (message.sender, message.receiver) in self.cuts or self.nodes[message.receiver].driver is None:
            return
        self.act(message.receiver, lambda driver: driver.step(message, self.now))

    # The world

    def disturb(self):
        """Something goes wrong, or right again."""
        if not self.is_faulty:
            return
        kind, node_id = self.rng.random(), self.rng.choice([*self.nodes, *self.leaders() * 3])
        node = self.nodes[node_id]
        if node.driver is None:
            if kind < 0.5:
                self.start(node_id)
        elif kind < 0.2:
            self.crash(node_id)
        elif kind < 0.4:
            others = self.rng.sample(list(self.nodes), self.rng.randrange(len(self.nodes) // 2))
            self.cut(node_id, *others)
        elif kind < 0.5:
            self.cuts.add(tuple(self.rng.sample(list(self.nodes), 2)))  # one way
        elif kind < 0.7:
            self.heal()
        elif kind < 0.75:
            self.act(node_id, lambda driver: driver._perform(driver.raft.resign(self.now), self.now))
        elif kind < 0.85:
            self.change_voters()
        else:
            node.store.is_full = not node.store.is_full and kind < 0.88
        self.plan(self.rng.randrange(50, 900), self.disturb)

    def change_voters(self):
        for leader in self.leaders():
            raft, other = self.nodes[leader].raft, self.rng.choice(list(self.nodes))
            change = RemoveVoter(key(other)) if raft.voters.get(other) else AddVoter(VoterNode(key(other)))
            if len(raft.voters) > 3 or isinstance(change, AddVoter):
                done = self.act(leader, lambda driver, item=change: driver.propose_voters(item, self.now))
                self.voter_changes += done is not None

    def snapshot_something(self):
        """Any node may, at any time, of what it knows to be committed."""
        node_id = self.rng.choice(list(self.nodes))
        node = self.nodes[node_id]
        if node.driver is not None and node.raft.high_watermark > node.raft.log.start_offset:
            batches = node.store.slot(node.raft.high_watermark - 1) + 1
            self.take_snapshot(node_id, self.rng.randint(max(node.store.start, 1), batches))
            self.snapshots += 1
            if self.rng.random() < 0.3:  # older ones are deleted, even while they are being fetched
                node.store.snapshots = {node.store.snapshot_id: node.store.snapshots[node.store.snapshot_id]}
        self.plan(self.rng.randrange(300, 2500), self.snapshot_something)

    def propose_something(self):
        if self.is_quiet:
            return
        for leader in self.leaders():
            self.proposed += 1
            values = [f"{self.proposed}.{n}".encode() for n in range(self.rng.randint(1, 3))]
            self.act(leader, lambda driver, items=values: driver.propose(items, self.now))
        self.plan(self.rng.randrange(20, 400), self.propose_something)

    def stop_faults(self):
        self.is_faulty = False
        self.heal()
        for node_id, node in self.nodes.items():
            node.store.is_full = False
            if node.driver is None:
                self.start(node_id)

    def run_until(self, end_ms, stop=lambda: False):
        while self.heap and self.heap[0][0] <= end_ms and not stop():
            self.now, _, action, arguments = heapq.heappop(self.heap)
            action(*arguments)
        self.now = max(self.now, end_ms) if not stop() else self.now

    @property
    def installs(self):
        return sum(node.store.installs for node in self.nodes.values())

    def simulate(self):
        self.plan(100, self.propose_something)
        self.plan(300, self.disturb)
        if self.takes_snapshots:
            self.plan(2000, self.snapshot_something)
        self.run_until(FAULTS_MS)
        self.stop_faults()
        begin = self.now
        self.run_until(begin + LEADER_WITHIN_MS, self.is_settled)
        self.waited_ms = self.now - begin
        require(self.is_settled(), "no leader", LEADER_WITHIN_MS, "ms after the faults stopped")
        self.run_until(self.now + SETTLE_MS)
        self.run_until(
            self.now + LEADER_WITHIN_MS, self.is_settled
        )  # a leader that removes itself hands over
        self.run_until(self.now + 500)
        self.check_logs()
        self.cut_off_a_voter()
        return self

    def is_settled(self):
        """Everybody follows one leader, which has committed a record of its epoch."""
        leaders = self.leaders()
        if len(leaders) != 1:
            return False
        leader = self.nodes[leaders[0]].raft
        return leader.high_watermark > leader.role.epoch_start_offset and all(
            (node.raft.epoch, node.raft.leader_id) == (leader.epoch, leader.node.node_id)
            for node in self.nodes.values()
        )

    def check_logs(self):
        (leader,) = self.leaders()
        log = self.nodes[leader].store.log
        for node in self.nodes.values():
            length = min(len(log), len(node.store.log))
            require(node.store.log[:length] == log[:length], node.key, "has another log")
            require(length > len(log) - 8, node.key, "does not keep up")

    def cut_off_a_voter(self):
        """Nothing is appended meanwhile, so that it could win an election."""
        self.is_quiet = True
        self.run_until(self.now + self.settings.fetch_max_wait_ms)
        (leader,) = self.leaders()
        raft = self.nodes[leader].raft
        epoch = raft.epoch
        voters = [item.node_id for item in raft.voters.keys if item.node_id != leader]
        if len(voters) < 2:
            return
        voter = self.rng.choice(voters)
        self.cut(voter)
        kind = self.rng.random()
        if kind < 0.2:
            self.cuts = {(a, b) for a, b in self.cuts if a == voter}  # it hears, and is not heard
        elif kind < 0.7:
            self.cuts = {(voter, leader), (leader, voter)}  # it reaches everybody but the leader
        self.run_until(self.now + 2 * self.settings.fetch_timeout_ms)
        self.heal()
        self.run_until(self.now + self.settings.fetch_timeout_ms)
        undisturbed = self.leaders() == [leader] and raft.epoch == epoch
        require(undisturbed, "voter", voter, "was away, came back, and deposed leader", leader)
