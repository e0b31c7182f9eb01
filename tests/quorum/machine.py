"""A node of the simulated quorum: the product's core, driver and store on a disk whose power may be cut at any write.

A machine has many lives. Its disk goes with it from one to the next, and its clock, which never jumps but started at
another time than everybody else's. A wiped disk makes another replica of it.
"""

from bisect import bisect_left
from random import Random
from typing import NamedTuple
from uuid import UUID

from odradek.raft.core import Raft
from odradek.raft.driver import Driver
from odradek.raft.log_view import Batch
from odradek.raft.store import METADATA_PARTITION, QuorumStore, _describe
from odradek.raft.synced_offset import SYNCED_OFFSET_FILE
from odradek.raft.voters import ReplicaKey, VoterSet
from odradek.records.batch import read_header
from odradek.records.record import decode_batch
from odradek.records.walk import whole_batches
from odradek.storage.disk.simulated import PowerCut, SimulatedFiles
from tests.quorum.damage import Pledge, damage_log
from tests.quorum.snapshots import Keeper
from tests.raft.invariants import base_offset

DIRECTORY = "/data"
CLUSTER_ID = "a-cluster"


def key(node_id, generation=0):
    return ReplicaKey(node_id, UUID(int=0xD000 + 0x100 * generation + node_id))


class Entry(NamedTuple):
    """A batch of a log, with its bytes."""

    batch: Batch
    data: bytes

    @property
    def pairs(self):
        """The pairs that it sets in the image."""
        header = read_header(self.data)
        if header.is_control:
            return []
        return [tuple(record.value.split(b"=")) for record in decode_batch(self.data, header)]


class WatchedStore(QuorumStore):
    """Keeps in memory what it has written, so that nobody has to read the disk to see whether all is well.

    What is there at the start of a life is read from the disk."""

    on_proposed = staticmethod(lambda entry: None)
    checked_offset = -1
    pledge = None

    def read_everything(self):
        self.entries = [
            Entry(_describe(header, data), bytes(data))
            for header, data in self.read_from(self.log.log_start_offset)
        ]
        self.election = self.load_election()
        self.truncations = 0

    @property
    def end_offset(self):
        return self.log.end_offset

    @property
    def is_on_disk(self):
        """True if what it takes to be synced would survive a crash. Looked at where all of it is, whenever that has
        grown.
        """
        if not self.checked_offset < self.synced_offset == self.end_offset:
            return True
        self.checked_offset = self.synced_offset
        durable = self._files.durable(self.directory)
        for segment in self.log.segments:
            name = segment.log.path.rpartition("/")[2]
            if durable.get(name, b"")[: segment.size] != segment.log.read_at(0, segment.size):
                return False
        return True

    def is_durable_below(self, offset):
        """A start syncs all that it finds before it counts on it, though most of it was on the disk before."""
        return self.synced_offset >= offset or self._durable_end() >= offset

    def _durable_end(self):
        if self._files.is_off:  # what is on the disk is the next life's to know
            return 0
        logs = [data for name, data in self._files.durable(self.directory).items() if name.endswith(".log")]
        ends = [
            batch.header.next_offset
            for data in logs
            for batch in whole_batches(memoryview(data))
            if batch.has_valid_crc
        ]
        return max(ends, default=0)

    def save_election(self, election):
        super().save_election(election)
        self.election = election

    def sync(self):
        super().sync()
        self._pledge_synced()

    def complete_sync(self, ticket, error):
        super().complete_sync(ticket, error)
        self._pledge_synced()

    def _pledge_synced(self):
        if self._files.free_bytes is None:  # on a full disk it cannot be written down
            self.pledge.after_kill = self.synced_offset

    def checkpoint(self):
        super().checkpoint()
        self.pledge.after_kill = self.pledge.after_power_cut = self.synced_offset

    def truncate_to(self, offset):
        self.pledge.lower_to(offset)
        super().truncate_to(offset)
        self.truncations += 1
        self.checked_offset = -1
        del self.entries[bisect_left(self.entries, offset, key=base_offset) :]

    def start_at(self, offset):
        self.pledge.lower_to(0)
        super().start_at(offset)
        self.entries = []

    def append(self, append, now_ms):
        batches = super().append(append, now_ms)
        self._note(batches)
        self.on_proposed(self.entries[-1])
        return batches

    def append_fetched(self, fetched, now_ms):
        batches = super().append_fetched(fetched, now_ms)
        self._note(batches)
        return batches

    def _note(self, batches):
        for batch in batches:
            self.entries.append(Entry(batch, self.read(batch.base_offset, 1)))


class Machine:
    def __init__(self, node_id, static_voters, bootstrap, clock_ms):
        self.node_id = node_id
        self.bootstrap = bootstrap
        self.clock_ms = clock_ms  # ahead of the simulation's
        self.generation = -1
        self.life = 0  # what was planned for an earlier one is void
        self.failed_syncs = 0
        self.driver = None
        self.store = None
        self.keeper = None
        self._reset_faults()
        self._new_disk(static_voters)

    def _new_disk(self, static_voters):
        self.generation += 1
        self.key = key(self.node_id, self.generation)
        self.static = static_voters
        self.damage = None
        self.pledge = Pledge()
        self.files = SimulatedFiles()
        self.files.make_directory(DIRECTORY)
        self.files.sync_directory("/")

    def wipe(self):
        """A new disk, formatted by somebody who does not say who votes."""
        assert self.driver is None
        self._new_disk(VoterSet(()))

    def _reset_faults(self):
        self.is_syncing = False
        self.woken_ms = None
        self.is_paused = False
        self.frozen_ms = None  # an old view of the clock
        self.backlog = []
        self.stops_at_ms = None
        self.changes_left = self.syncs_left = 0
        self.told_role = ""
        self.is_dying = False  # its file system has shut down

    @property
    def is_on(self):
        return self.driver is not None

    @property
    def raft(self):
        return self.driver.raft

    @property
    def role(self):
        return type(self.raft.role).__name__.lower()

    # --- lives ---

    def start(self, send, rng, now_ms, log_config, settings):
        """May raise PowerCut."""
        self.life += 1
        armed = self.changes_left, self.syncs_left
        self._reset_faults()
        self.changes_left, self.syncs_left = armed
        self.files.on_change, self.files.on_sync = self._before_change, self._before_sync
        keeper = Keeper(self.files, DIRECTORY, self.static)
        store = WatchedStore.open(self.files, DIRECTORY, log_config, now_ms, keeper.applied)
        keeper.store, store.pledge = store, self.pledge
        store.entries = []
        if keeper.id is not None:
            store.catch_up_with(keeper.id)
        if rng.random() < 0.5:
            store.sync()  # otherwise the driver asks for it
        store.read_everything()
        raft = Raft(
            self.key,
            CLUSTER_ID,
            store.view(self.static, keeper.id, keeper.changes),
            store.load_election(),
            rng=Random(rng.random()),
            now_ms=now_ms,
            settings=settings,
            kraft_version=1,
            bootstrap=self.bootstrap,
        )
        self.store, self.keeper = store, keeper
        self.driver = Driver(raft, store, send, keeper)

    def end(self):
        """The process ends; what is written stays."""
        self.driver = None
        self._reset_faults()
        self.files = self.files.cut_power()

    def lose_power(self, rng):
        """All that is not synced is lost, or any part of it."""
        self.end()
        self.pledge.after_kill = self.pledge.after_power_cut
        how, noted = rng.random(), self._noted_bytes()
        lost = self.files.crash(None if how < 0.3 else rng, is_scattered=how > 0.6)
        return max(0, lost - noted)

    def _noted_bytes(self):
        """Return how much of synced-offset is not synced: most crashes lose that, and it says nothing about them."""
        path = f"{DIRECTORY}/{METADATA_PARTITION}/{SYNCED_OFFSET_FILE}"
        return self.files.data(path).unsynced_bytes if self.files.exists(path) else 0

    def damage_log(self, rng):
        """While it is off. It has to notice at its next start."""
        if self.damage is None and not self.files.is_shut_down:
            needed_from = Keeper(self.files, DIRECTORY, self.static).applied
            self.without_faults()
            self.damage = damage_log(self.files, DIRECTORY, needed_from, self.pledge.after_kill, rng)
        return self.damage

    def without_faults(self):
        """Its disk does what it is told."""
        self.changes_left = self.syncs_left = self.files.fail_syncs = 0
        self.files.free_bytes = None

    def cut_power_at(self, changes=0, syncs=0):
        self.changes_left, self.syncs_left = changes, syncs

    def _before_change(self, path):
        if self.changes_left:
            self.changes_left -= 1
            if not self.changes_left:
                self._cut_power_here()

    def _before_sync(self):
        self.failed_syncs += self.files.fail_syncs > 0
        if self.syncs_left:
            self.syncs_left -= 1
            if not self.syncs_left:
                self._cut_power_here()

    def _cut_power_here(self):
        self.files = self.files.cut_power()  # whoever still uses the disk that was cannot change this one
        raise PowerCut
