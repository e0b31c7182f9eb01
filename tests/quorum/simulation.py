"""A metadata quorum under chance: one seed, one run.

Everything that happens is an event on one heap, in virtual time. Messages are lost, doubled, late and out of order;
links are cut, one way or both; nodes stand still and go on with an old view of the clock; power is cut before any
write or sync, and the disk loses what was not synced, all of it or any part; or only the process is killed, and the
next one finds what a later power cut may still lose; syncs fail; disks are full, or wiped; a log is damaged while its
node is down, and must be refused, until an operator restores or wipes it; voters are added and removed, snapshots
taken, nodes stopped cleanly. After every event the node that acted is checked (`raft.invariants`).

A run has three acts. In the first everything fails. Then the faults stop: within ten seconds all nodes must follow one
leader, and soon have equal logs. In the last a single voter cannot reach the leader for a while: that must not trouble
anybody else.
"""

import heapq
from collections import Counter
from random import Random
from typing import NamedTuple

from odradek.errors import DamagedData, KafkaError
from odradek.raft.messages import REQUESTS
from odradek.raft.outgoing import Settings
from odradek.raft.ready import QuorumBroken
from odradek.raft.reconfiguration import AddVoter, RemoveVoter, UpdateVoter
from odradek.raft.roles import Leader
from odradek.raft.voters import Endpoint, VoterNode, VoterSet
from odradek.storage.config import LogConfig
from odradek.storage.disk.simulated import PowerCut
from odradek.storage.disk.sync import sync_tickets
from tests.quorum.machine import Machine, key
from tests.raft.cluster import describe
from tests.raft.invariants import Broken, Invariants, between, in_words, last_before, require

FAULTS_MS = 12_000
LEADER_WITHIN_MS = 10_000
SETTLE_MS = 2_500  # longer than a request that was lost is waited for
OBSERVERS = 2
PATIENCE_MS = 2_000  # a clean stop does not wait longer for its successor
KEYS = 6  # in the image


class Chances(NamedTuple):
    """The chances of what happens to a message."""

    loss: float
    double: float
    slow: float


NOTHING = Chances(0, 0, 0)


class Watch(Invariants):
    """The invariants, with R8: what the image is after every batch that is committed."""

    def __init__(self, simulation):
        super().__init__(simulation)
        self._simulation = simulation
        self.image = {}
        self.images = {0: {}}
        self.elections_after_crash = 0

    def commit(self, item):
        self.image = {**self.image, **dict(item.pairs)}
        self.images[item.batch.end_offset] = self.image

    def _check_new_leader(self, node):
        self.elections_after_crash += self._simulation.counts["crashes"] > 0
        super()._check_new_leader(node)

    def check_image(self, node):
        keeper = node.keeper
        same = keeper.image == self.images.get(keeper.applied)
        require(same, "R8:", node.key, "has another image at offset", keeper.applied)


class Written(NamedTuple):
    """A record that a client was promised nothing about yet."""

    epoch: int
    base_offset: int
    end_offset: int
    records: tuple


class Simulation:
    def __init__(self, seed, show=None):
        self.seed = seed
        self.show = show
        self.rng = rng = Random(seed)
        self.now = 0
        self.heap = []
        self.order = 0
        self.is_faulty = True
        self.is_quiet = False
        self.counts = Counter()
        self.proposed = 0
        voters = rng.choice((1, 3, 3, 3, 5, 5))
        self.settings = Settings(
            fetch_max_wait_ms=250,
            retry_backoff_ms=50,
            request_timeout_ms=1500,
            fetch_max_bytes=rng.choice((150, 400, 8000)),
        )
        self.log_config = LogConfig(
            segment_bytes=rng.choice((600, 1 << 20)), retention_ms=-1, delete=False, file_delete_delay_ms=500
        )
        self.chances = Chances(*(rng.choice((0, 0.02, 0.15)) for _ in range(3)))
        self.lateness_ms = rng.choice((0, 0, 300))  # of timers
        self.takes_snapshots = rng.random() < 0.6
        self.changes_voters = rng.random() < 0.6
        self.wipes = rng.random() < 0.4
        self.chance = Random(
            f"{seed} kills and syncs"
        )  # by itself: old seeds keep their course as far as they can
        self.kills = self.chance.random() < 0.4
        self.fails_syncs = self.chance.random() < 0.4
        self.ruin = Random(f"{seed} damage")
        self.damages = self.ruin.random() < 0.4
        initial = range(1, voters + 1)
        self.static = VoterSet.of(*(key(node_id) for node_id in initial))
        self.watch = Watch(self)
        self.cuts = set()  # pairs of sender and receiver
        self.aliases = {}  # (asker, correlation id) -> the bootstrap server that it asked
        self.written = {}  # node -> what it was given and has not committed
        self.acknowledged = {}  # base offset -> (end offset, records)
        self.dead = {}  # replicas whose disks were wiped, with what they had
        bootstrap = tuple(-1 - node_id for node_id in initial)
        self.nodes = {
            node_id: Machine(
                node_id,
                self.static if node_id in initial else VoterSet(()),
                bootstrap,
                rng.randrange(1_000_000),
            )
            for node_id in range(1, voters + OBSERVERS + 1)
        }
        for node in self.nodes.values():
            self.start(node)

    def note(self, *what):
        if self.show is not None:
            self.show(f"{self.now / 1000:8.3f}  {' '.join(map(str, what))}")

    def store_of(self, replica):
        node = self.nodes[replica.node_id]
        return node.store if node.key == replica else self.dead.get(replica)

    # --- the heap ---

    def plan(self, delay_ms, action, *arguments):
        self.order += 1
        heapq.heappush(self.heap, (self.now + delay_ms, self.order, action, arguments))

    def plan_for(self, node, delay_ms, action, *arguments):
        """Unless the node ends before."""
        self.plan(delay_ms, self.let, node, node.life, action, arguments)

    def let(self, node, life, action, arguments):
        if not node.is_on or node.life != life:
            return
        if node.is_paused:
            node.backlog.append((action, arguments))
        else:
            action(node, *arguments)

    def run_until(self, end_ms, stop=lambda: False):
        while self.heap and self.heap[0][0] <= end_ms and not stop():
            self.now, _, action, arguments = heapq.heappop(self.heap)
            action(*arguments)
        if not stop():
            self.now = max(self.now, end_ms)

    # --- nodes ---

    def clock(self, node):
        """The time as the node sees it."""
        return node.frozen_ms if node.frozen_ms is not None else self.now + node.clock_ms

    def start(self, node):
        try:
            node.start(self.send, self.rng, self.now + node.clock_ms, self.log_config, self.settings)
        except PowerCut:
            self.lose_power(node, "while it starts")
            return
        except DamagedData as error:
            require(node.damage is not None, node.key, "refuses a log that nobody damaged:", error)
            self.refused(node, error)
            return
        except (KafkaError, OSError) as error:  # the disk is full, or a sync failed
            self.note(node.node_id, "cannot start:", error)
            self.end(node, "ends")
            return
        require(node.damage is None, node.key, "starts on a damaged log:", node.damage and node.damage.what)
        node.store.on_proposed = lambda entry: self.watch.proposed(node, entry)
        self.note(node.node_id, "starts as", node.role, "of epoch", node.raft.epoch, "log", node.store.log)
        self.watch.check_image(node)
        self.watch.started(node)
        self.written[node.node_id] = []
        self.plan_work(node)

    def act(self, node, action):
        """Let a node do something, and see whether all still holds."""
        if not node.is_on:
            return None
        result = None
        try:
            result = action(node.driver, self.clock(node))
        except PowerCut:
            self.lose_power(node)
            return None
        except QuorumBroken as error:
            raise Broken(f"nobody lost anything that was committed, but: {error}") from error
        except (KafkaError, OSError) as error:
            self.note(node.node_id, "could not:", error)
            if node.driver.failed or node.store.failed:
                self.end(node, "fails")
                return None
        if node.files.is_shut_down and not node.is_dying:
            node.is_dying = True
            self.plan_for(node, self.chance.randrange(2000), self.end, "has a dead file system")
        self.look_at(node)
        self.plan_work(node)
        return result

    def look_at(self, node):
        if self.show is not None and node.told_role != (told := f"{node.role} of epoch {node.raft.epoch}"):
            node.told_role = told
            self.note(node.node_id, "is", told)
        self.watch.check(node)
        require(node.store.is_on_disk, node.key, "takes for synced what is not on its disk:", node.store.log)
        keeper, high_watermark = node.keeper, node.driver.high_watermark
        if keeper.applied < high_watermark:
            for item in between(node.store.entries, keeper.applied, high_watermark):
                keeper.apply(item)
            self.watch.check_image(node)
            self.acknowledge(node)

    def plan_work(self, node):
        """Do what the host of a node does: syncs in a thread, timers."""
        if node.driver.wants_sync and not node.is_syncing:
            try:
                ticket = node.driver.begin_sync()
            except PowerCut:
                self.lose_power(node)
                return
            node.is_syncing = True
            self.plan_for(node, self.rng.choice((0, 1, 20)), self.sync, ticket)
        due_ms = node.raft.next_tick_ms
        if due_ms is not None and (node.woken_ms is None or due_ms < node.woken_ms):
            node.woken_ms = due_ms
            late_ms = self.rng.randrange(self.lateness_ms) if self.lateness_ms and self.is_faulty else 0
            self.plan_for(node, max(due_ms - self.now - node.clock_ms, 0) + late_ms, self.wake, due_ms)

    def wake(self, node, due_ms):
        if node.woken_ms == due_ms:
            node.woken_ms = None
            self.act(node, lambda driver, now_ms: driver.tick(now_ms))

    def sync(self, node, ticket):
        """In a thread: what the node hears of it comes later."""
        try:
            if ticket is not None:
                (error,) = sync_tickets(node.files, [ticket])
            else:
                error = None
        except PowerCut:
            self.lose_power(node)
            return
        late_ms = self.rng.choice((0, 1, 20)) if error is None else self.chance.choice((0, 20, 1000))
        self.plan_for(node, late_ms, self.finish_sync, ticket, error)

    def finish_sync(self, node, ticket, error):
        node.is_syncing = False
        if ticket is None:
            self.act(node, lambda driver, now_ms: driver.sync(now_ms))
            return
        self.act(node, lambda driver, now_ms: driver.complete_sync(ticket, error, now_ms))
        if error is not None and node.is_on:
            self.end(node, f"stops: {error}")

    # --- messages ---

    def send(self, message):
        node = self.nodes[message.sender]
        self.watch.sent(node, message)
        receiver = message.receiver
        if receiver < -1:
            receiver = -1 - receiver
            self.aliases[message.sender, message.correlation_id] = message.receiver
            message = message._replace(receiver=receiver)
        chances = self.chances if self.is_faulty else NOTHING
        if self.rng.random() < chances.loss:
            return
        for _ in range(2 if self.rng.random() < chances.double else 1):
            slow = self.rng.random() < chances.slow
            self.plan(self.rng.randrange(2000) if slow else self.rng.randint(1, 8), self.arrive, message)

    def arrive(self, message):
        if (message.sender, message.receiver) in self.cuts:
            return
        node = self.nodes[message.receiver]
        if not isinstance(message.body, REQUESTS):
            alias = self.aliases.get((message.receiver, message.correlation_id))
            if alias is not None and -1 - alias == message.sender:
                message = message._replace(sender=alias)
        self.let(node, node.life, self.hear, (message,))

    def hear(self, node, message):
        if self.show is not None and (text := describe(message)):
            self.note(text)
        self.act(node, lambda driver, now_ms: driver.step(message, now_ms))

    # --- the lives of nodes ---

    def count_life(self, node):
        if node.is_on:
            self.counts["truncations"] += node.store.truncations
            self.counts["snapshots installed"] += node.keeper.installs

    def lose_power(self, node, when=""):
        if self.kills and not node.files.is_shut_down and self.chance.random() < 0.4:
            self.counts["kills"] += 1
            self.end(node, f"is killed {when}")
            return
        self.count_life(node)
        lost = node.lose_power(self.rng)
        self.counts["crashes"] += 1
        self.counts["crashes with a loss"] += lost > 0
        self.note(node.node_id, "loses power", when, "and", lost, "bytes")
        self.plan(self.rng.randrange(100, 2500), self.revive, node)

    def end(self, node, why):
        self.note(node.node_id, why)
        if node.files.is_shut_down:
            self.lose_power(node, "because its file system needs that")
            return
        self.count_life(node)
        node.end()
        self.plan(self.rng.randrange(100, 2500), self.revive, node)

    def revive(self, node):
        if not node.is_on:
            node.files.free_bytes = None
            if node.damage is not None:  # a power cut now could take back what it knows
                node.without_faults()
            self.start(node)

    def stop(self, node):
        """Cleanly: it hands over if it leads, and ends when it may, or when it is tired of waiting."""
        self.counts["clean stops"] += 1
        self.note(node.node_id, "stops")
        node.stops_at_ms = self.now + PATIENCE_MS
        self.act(node, lambda driver, now_ms: driver.stop(now_ms))
        self.plan_for(node, 10, self.stop_when_it_may)

    def stop_when_it_may(self, node):
        if node.is_syncing or (not node.raft.may_stop and self.now < node.stops_at_ms):
            self.plan_for(node, 10, self.stop_when_it_may)
            return
        try:
            node.store.close()
        except PowerCut:
            self.lose_power(node, "while it stops")
        except (KafkaError, OSError):
            self.end(node, "ends, with its disk full")
        else:
            self.end(node, "has stopped")

    def pause(self, node):
        """It stands still; then it goes on, perhaps with an old view of the clock."""
        self.counts["pauses"] += 1
        node.is_paused = True
        node.frozen_ms = self.clock(node)
        pause_ms = self.rng.choice((200, 1500, 4000))
        self.note(node.node_id, "stands still for", pause_ms, "ms")
        self.plan(pause_ms, self.resume, node, node.life)

    def resume(self, node, life):
        if not node.is_on or node.life != life or not node.is_paused:
            return
        self.note(node.node_id, "goes on")
        node.is_paused = False
        backlog, node.backlog = node.backlog, []
        old_view = self.rng.random() < 0.5
        for number, (action, arguments) in enumerate(backlog):
            if number or not old_view:
                node.frozen_ms = None
            self.let(node, life, action, arguments)
        node.frozen_ms = None

    def wipe(self, node):
        """Remove a voter if those that are left can still decide."""
        replica = node.key
        if any(self.live_voters(voters, {replica}) < voters.majority for voters in self.known_voter_sets()):
            return
        if node.is_on:
            self.end(node, "loses its disk")
        self.dead[replica] = node.store
        node.wipe()
        node.store = None
        self.counts["wiped disks"] += 1
        self.note(node.node_id, "gets a new disk, and is another replica")

    def known_voter_sets(self):
        """Yields those of everybody: what is on disk may count again."""
        yield self.static
        for node in self.nodes.values():
            if node.store is not None:
                yield self.watch._voters_of(node) if node.is_on else self.last_voters(node.store)

    def last_voters(self, store):
        for item in reversed(store.entries):
            for _, change in reversed(item.batch.changes):
                if isinstance(change, VoterSet):
                    return change
        return self.static

    def live_voters(self, voters, without=()):
        return sum(item not in self.dead and item not in without for item in voters.keys)

    # --- faults ---

    def disturb(self):
        """Something goes wrong, or right again."""
        if not self.is_faulty:
            return
        node = self.nodes[self.rng.choice([*self.nodes, *self.leaders() * 3])]
        self.rng.choices(FAULTS, WEIGHTS)[0](self, node)
        self.plan(self.rng.randrange(50, 700), self.disturb)

    def cut_power(self, node):
        if node.is_on:
            self.lose_power(node)

    def cut_power_of_all(self, node):
        for each in self.nodes.values():
            self.cut_power(each)

    def cut_power_later(self, node):
        if self.rng.random() < 0.5:
            node.cut_power_at(changes=self.rng.randint(1, 12))
        else:
            node.cut_power_at(syncs=self.rng.randint(1, 8))

    def cut_off(self, node):
        others = self.rng.sample(list(self.nodes), self.rng.randrange(len(self.nodes) // 2))
        self.cut(node.node_id, *others)

    def cut(self, *node_ids):
        """Nobody hears of these nodes, and they hear of nobody else."""
        self.note("network: cut off", *node_ids)
        others = [node_id for node_id in self.nodes if node_id not in node_ids]
        for one in node_ids:
            self.cuts |= {(one, other) for other in others} | {(other, one) for other in others}

    def cut_one_way(self, node):
        other = self.rng.choice([node_id for node_id in self.nodes if node_id != node.node_id])
        pair = (node.node_id, other) if self.rng.random() < 0.5 else (other, node.node_id)
        self.note("network: cut from", *pair)
        self.cuts.add(pair)

    def heal(self, node=None):
        self.note("network: healed")
        self.cuts.clear()

    def stop_or_resign(self, node):
        if not node.is_on or node.stops_at_ms is not None or node.is_paused:
            return
        if self.rng.random() < 0.5:
            self.stop(node)
        else:
            self.act(node, lambda driver, now_ms: driver._perform(driver.raft.resign(now_ms), now_ms))

    def maybe_pause(self, node):
        if node.is_on and not node.is_paused:
            self.pause(node)

    def fill_disk(self, node):
        if node.is_on and node.files.free_bytes is None:
            node.files.free_bytes = self.rng.choice((0, 100, 300))
            self.note(node.node_id, "has a full disk")
            self.plan_for(node, self.rng.randrange(200, 2000), self.empty_disk)

    def empty_disk(self, node):
        node.files.free_bytes = None

    def fail_a_sync(self):
        """The next one of some node, of a file or a directory."""
        if not self.is_faulty:
            return
        self.plan(self.chance.randrange(300, 4000), self.fail_a_sync)
        node = self.nodes[self.chance.choice([*self.nodes, *self.leaders() * 3])]
        node.files.fail_syncs = 1

    def damage_a_log(self):
        """Damage the log of a node that is down, or goes down for it."""
        if not self.is_faulty:
            return
        self.plan(self.ruin.randrange(300, 3000), self.damage_a_log)
        node = self.nodes[self.ruin.choice(list(self.nodes))]
        if node.is_on and node.stops_at_ms is None and not node.is_paused:
            if self.ruin.random() < 0.7:
                self.end(node, "is killed")
            else:
                self.lose_power(node)
        if not node.is_on and node.damage_log(self.ruin) is not None:
            self.counts["damaged logs"] += 1
            self.note(node.node_id, "has a damaged log:", node.damage.what)

    def refused(self, node, error):
        """It says why it does not start. Its operator has a backup, or gives it a new disk."""
        self.note(node.node_id, "cannot start:", error)
        self.counts["damaged logs refused"] += 1
        require(node.damage.is_untouched(node.files), node.key, "changes a log that it refuses")
        node.end()
        replica = node.key
        if self.watch.committed_end and self.ruin.random() < 0.5:
            self.wipe(node)
        if node.key == replica:
            node.damage.undo(node.files)
            node.damage = None
        self.plan(self.ruin.randrange(100, 2500), self.revive, node)

    def maybe_wipe(self, node):
        if self.wipes and self.watch.committed_end:
            self.wipe(node)

    # --- operators ---

    def change_voters(self):
        """Whoever leads is asked, and perhaps asked again at once."""
        if not self.is_faulty:
            return
        self.plan(self.rng.randrange(200, 2000), self.change_voters)
        for leader in self.leaders():
            for _ in range(self.rng.choice((1, 1, 2))):
                change = self.some_change(self.nodes[leader])
                if change is not None:
                    done = self.act(
                        self.nodes[leader],
                        lambda driver, now_ms, item=change: driver.propose_voters(item, now_ms),
                    )
                    self.counts["voter changes"] += done is not None
                    self.note(leader, "was asked for", type(change).__name__, change[0], "→", done)

    def some_change(self, leader):
        if not leader.is_on:
            return None
        voters = leader.raft.voters
        other = self.nodes[self.rng.choice(list(self.nodes))]
        voter = voters.get(other.node_id)
        if voter is None:
            return AddVoter(VoterNode(other.key))
        if self.rng.random() < 0.1:
            endpoint = Endpoint("CONTROLLER", "host", self.rng.randrange(1, 1 << 16))
            return UpdateVoter(voter._replace(endpoints=(endpoint,)))
        rest = voters.without(other.node_id)
        if len(rest) == 0 or (voter.key not in self.dead and self.live_voters(rest) < rest.majority):
            return None
        return RemoveVoter(voter.key)

    def keep_house(self):
        """Snapshots, checkpoints and deletions: any node, at any time, of what it knows to be committed."""
        node = self.rng.choice(list(self.nodes.values()))
        if node.is_on and not node.is_paused:
            if self.takes_snapshots and node.keeper.applied > (
                node.keeper.id.offset if node.keeper.id else 0
            ):
                self.act(node, lambda driver, now_ms: self.take_snapshot(node, driver, now_ms))
            elif self.rng.random() < 0.5:
                self.act(node, lambda driver, now_ms: node.store.checkpoint())
            if node.is_on:
                self.act(node, lambda driver, now_ms: node.store.deletions.run_next(now_ms))
        self.plan(self.rng.randrange(200, 1200), self.keep_house)

    def take_snapshot(self, node, driver, now_ms):
        keeper = node.keeper
        last = last_before(node.store.entries, keeper.applied)
        if last is None:
            return  # the log has only what came after the last snapshot, and nothing of that is applied
        if not keeper.take(driver, last.batch.epoch, now_ms):
            return
        self.counts["snapshots taken"] += 1
        self.note(node.node_id, "took a snapshot", keeper.id)
        if self.rng.random() < 0.7:
            keeper.forget_before(driver, self.rng.choice(keeper.ids), now_ms)

    # --- clients ---

    def propose_something(self):
        if self.is_quiet:
            return
        for node_id in self.leaders():
            self.propose(self.nodes[node_id])
        self.plan(self.rng.randrange(20, 300), self.propose_something)

    def propose(self, node):
        """A proposal to a node that stands still waits with everything else."""
        if node.is_paused:
            return
        self.proposed += 1
        records = tuple(
            b"k%d=%d.%d" % (self.rng.randrange(KEYS), self.proposed, n) for n in range(self.rng.randint(1, 3))
        )
        last = self.act(node, lambda driver, now_ms: driver.propose(records, now_ms))
        if last is not None and node.is_on:
            written = Written(node.raft.epoch, last + 1 - len(records), last + 1, records)
            self.written[node.node_id].append(written)
            self.acknowledge(node)

    def acknowledge(self, node):
        """Clients are told of what is committed as long as the node leads in the epoch in which it wrote that."""
        if not isinstance(node.raft.role, Leader):
            self.written[node.node_id] = []
            return
        waiting = []
        for item in self.written[node.node_id]:
            if item.epoch == node.raft.epoch and item.end_offset <= node.driver.high_watermark:
                self.acknowledged[item.base_offset] = item
            elif item.epoch == node.raft.epoch:
                waiting.append(item)
        self.written[node.node_id] = waiting

    def leaders(self):
        return [
            node_id
            for node_id, node in self.nodes.items()
            if node.is_on and isinstance(node.raft.role, Leader)
        ]

    def totals(self):
        """Return what happened. Truncations and installed snapshots are counted by each life of a node."""
        for node in self.nodes.values():
            self.count_life(node)
        return Counter(
            {
                **self.counts,
                "failed syncs": sum(node.failed_syncs for node in self.nodes.values()),
                "elections": self.watch.elections,
                "elections after a crash": self.watch.elections_after_crash,
                "committed records": self.watch.committed_end,
                "acknowledged": len(self.acknowledged),
            }
        )

    # --- the three acts ---

    def run(self):
        self.plan(100, self.propose_something)
        self.plan(300, self.disturb)
        self.plan(1500, self.keep_house)
        if self.fails_syncs:
            self.plan(1000, self.fail_a_sync)
        if self.damages:
            self.plan(1000, self.damage_a_log)
        if self.changes_voters:
            self.plan(1500, self.change_voters)
        self.run_until(FAULTS_MS)
        self.stop_faults()
        begin = self.now
        self.run_until(begin + LEADER_WITHIN_MS, self.is_settled)
        self.waited_ms = self.now - begin
        require(self.is_settled(), "no leader", LEADER_WITHIN_MS, "ms after the faults stopped")
        self.note("all follow one leader, after", self.waited_ms, "ms")
        self.run_until(self.now + SETTLE_MS)
        # A leader that removes itself hands over.
        self.run_until(self.now + LEADER_WITHIN_MS, self.is_settled)
        self.run_until(self.now + 500)
        if self.difference():  # a node that has much to fetch, or that has to find the leader first
            self.run_until(self.now + LEADER_WITHIN_MS, lambda: not self.difference())
        difference = self.difference()
        require(not difference, difference)
        self.check_acknowledged()
        self.cut_off_a_voter()
        return self

    def stop_faults(self):
        self.note("the faults stop")
        self.is_faulty = False
        self.heal()
        for node in self.nodes.values():
            node.files.free_bytes = None
            node.files.fail_syncs = 0
            node.changes_left = node.syncs_left = 0
            if node.files.is_shut_down:
                self.cut_power(node)
            if node.is_paused:
                self.resume(node, node.life)
            self.revive(node)

    def is_settled(self):
        """Everybody follows one leader, which has committed a record of its epoch."""
        leaders = self.leaders()
        if len(leaders) != 1 or not all(node.is_on for node in self.nodes.values()):
            return False
        leader = self.nodes[leaders[0]].raft
        return leader.high_watermark > leader.role.epoch_start_offset and all(
            (node.raft.epoch, node.raft.leader_id) == (leader.epoch, leader.node.node_id)
            for node in self.nodes.values()
        )

    def difference(self):
        """Return what is wrong with the logs, if anything."""
        leaders = self.leaders()
        if len(leaders) != 1:
            return f"there is no one leader, but {leaders}"
        leader = self.nodes[leaders[0]].store
        for node in self.nodes.values():
            store = node.store
            first = max(store.log.log_start_offset, leader.log.log_start_offset)
            end = min(store.end_offset, leader.end_offset)
            if between(store.entries, first, end) != between(leader.entries, first, end):
                return f"{in_words(node.key)} has another log"
            if len(between(leader.entries, end, leader.end_offset)) >= 12:
                return f"{in_words(node.key)} does not keep up"
        return None

    def check_acknowledged(self):
        """R4, as clients see it: what they were told of is there, in its place."""
        for base, written in self.acknowledged.items():
            found = between(self.watch.committed, base, base + 1)
            pairs = [pair for item in found for pair in item.pairs]
            wanted = [tuple(record.split(b"=")) for record in written.records]
            require(pairs == wanted, "R4:", written, "was acknowledged, but there is", found)

    def cut_off_a_voter(self):
        """Nothing is appended meanwhile, so that it could win an election."""
        self.is_quiet = True
        self.run_until(self.now + 2 * self.settings.fetch_max_wait_ms)
        (leader,) = self.leaders()
        raft = self.nodes[leader].raft
        epoch = raft.epoch
        voters = [
            item.node_id for item in raft.voters.keys if item.node_id != leader and item not in self.dead
        ]
        if self.live_voters(raft.voters) - 1 < raft.voters.majority or not voters:
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


FAULTS = {
    Simulation.cut_power: 6,
    Simulation.cut_power_of_all: 2,
    Simulation.cut_power_later: 14,
    Simulation.cut_off: 14,
    Simulation.cut_one_way: 10,
    Simulation.heal: 22,
    Simulation.stop_or_resign: 8,
    Simulation.maybe_pause: 8,
    Simulation.fill_disk: 5,
    Simulation.maybe_wipe: 4,
}
FAULTS, WEIGHTS = tuple(FAULTS), tuple(FAULTS.values())
