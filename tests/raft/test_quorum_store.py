"""The quorum on disks: three drivers on real logs, on disks that forget what was not synced."""

from random import Random

import pytest

from odradek.errors import DamagedData, ErrorCode, KafkaError
from odradek.raft.control import LeaderChange
from odradek.raft.core import Raft
from odradek.raft.driver import Driver
from odradek.raft.election import ElectionState
from odradek.raft.messages import OffsetAndEpoch
from odradek.raft.ready import Append, AppendFetched
from odradek.raft.store import CHECKPOINT_BYTES, UNSYNCED_RUN_FILE, QuorumStore
from odradek.raft.synced_offset import SYNCED_OFFSET_FILE, SyncedOffset
from odradek.raft.voters import KRaftVersion, VoterSet
from odradek.records.record import decode_batch
from odradek.records.walk import whole_batches
from odradek.storage.config import LogConfig
from odradek.storage.disk.checkpoints import RECOVERY_POINTS
from odradek.storage.disk.simulated import PowerCut, SimulatedFiles
from odradek.storage.disk.sync import sync_tickets
from tests.raft.cluster import Cluster, key

DIRECTORY = "/data"
LOG = f"{DIRECTORY}/__cluster_metadata-0/00000000000000000000.log"


class Unwatched:
    """The logs are compared at the end: what must hold after every event is the simulation's to check."""

    def __init__(self, cluster):
        pass

    def started(self, node):
        pass

    def sent(self, node, message):
        pass

    def check(self, node):
        assert node.raft.log.end_offset == node.store.log.end_offset
        assert node.raft.log.synced_offset <= node.store.log.synced_offset


def new_disk():
    files = SimulatedFiles()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    return files


def open_store(files):
    return QuorumStore.open(files, DIRECTORY, LogConfig(), 0)


class DiskCluster(Cluster):
    invariants_type = Unwatched

    def __init__(self, *args, **options):
        self.disks = {}
        super().__init__(*args, **options)

    def start(self, node_id):
        files = self.disks.setdefault(node_id, new_disk())
        self.nodes[node_id].store = open_store(files)
        super().start(node_id)

    def crash(self, node_id):
        self.nodes[node_id].driver = None
        self.disks[node_id].crash(self.rng)
        self.network.clear()

    def new_driver(self, node, raft):
        return Driver(raft, node.store, self.send)

    def values(self, node_id):
        store = self.nodes[node_id].store
        return [
            record.value.decode()
            for header, data in store.read_from(store.log.log_start_offset)
            if not header.is_control
            for record in decode_batch(data, header)
        ]


def test_replicas_are_equal_byte_by_byte():
    cluster = DiskCluster(voters=3, observers=1, kraft_version=1)
    cluster.elect(1)
    cluster.run(1000)
    cluster.propose(1, "a", "b")
    cluster.propose(1, "c")
    cluster.deliver()
    assert [node.raft.high_watermark for node in cluster.nodes.values()] == [6] * 4
    contents = {cluster.disks[node_id].read(LOG) for node_id in cluster.nodes}
    assert len(contents) == 1 and cluster.values(4) == ["a", "b", "c"]


def test_voters_epoch_and_vote_are_there_after_a_restart():
    cluster = DiskCluster(voters=3, kraft_version=1)
    cluster.elect(1)
    for node_id in cluster.nodes:
        cluster.crash(node_id)
    for node_id in cluster.nodes:
        cluster.start(node_id)
        raft = cluster.nodes[node_id].raft
        assert (raft.epoch, raft.log.end_offset, raft.log.last_epoch) == (1, 3, 1)
        assert (raft.log.voters.kraft_version, raft.log.voters.last_offset) == (1, 2)
    assert [node.role for node in cluster.nodes.values()] == ["resigned", "follower", "follower"]
    assert cluster.nodes[2].store.load_election() == ElectionState(1, 1, 1, key(1).directory_id)
    cluster.run(10_000)
    assert len(cluster.leaders()) == 1


def test_a_log_that_was_truncated_below_its_recovery_point_opens_again():
    cluster = DiskCluster(voters=3)
    cluster.elect(1)
    cluster.propose(1, "a")
    cluster.deliver()
    cluster.cut(1)
    cluster.propose(1, "lost")
    cluster.nodes[1].store.checkpoint()
    cluster.elect(2)
    cluster.heal()
    cluster.run(5000)
    assert cluster.values(1) == cluster.values(2) == ["a"]
    cluster.crash(1)
    cluster.start(1)
    cluster.run(2000)
    assert cluster.disks[1].read(LOG) == cluster.disks[2].read(LOG)


def leaders_log():
    """Batches of epochs 1, 1 and 2, and their bytes."""
    store = open_store(new_disk())
    store.append(Append(1, control=(LeaderChange(1, (), ()),)), 0)
    store.append(Append(1, (b"a", b"b")), 0)
    store.append(Append(2, control=(KRaftVersion(1), VoterSet.of(key(1)))), 0)
    return store


def damage(files, position):
    files.file(LOG).write_at(position, bytes(40))


def reopen(files):
    """After the process ended; nothing was lost."""
    return open_store(files.twin())


@pytest.mark.parametrize("is_leader", [True, False])
def test_of_batches_without_a_sync_between_them_a_crash_may_lose_the_first_alone(is_leader):
    files = new_disk()
    store = open_store(files)
    if is_leader:
        store.append(Append(1, (b"a",)), 0)
        store.append(Append(1, (b"b",)), 0)
    else:
        store.append_fetched(AppendFetched(2, leaders_log().read(0, 1 << 20)), 0)
    damage(files, 20)
    assert reopen(files).log.end_offset == 0


def test_what_a_failed_sync_left_in_memory_is_written_again_at_the_next_start():
    """It is read like anything else, but a sync alone would not bring it to disk."""
    files = new_disk()
    store = open_store(files)
    store.append(Append(1, (b"synced",)), 0)
    store.sync()
    store.checkpoint()
    store.append(Append(1, (b"perhaps lost",)), 0)
    files.fail_syncs = 1
    with pytest.raises(KafkaError):
        store.sync()
    files = files.cut_power()  # the process ends
    again = open_store(files)
    assert again.log.end_offset == 2
    again.sync()
    files.crash()
    assert open_store(files).log.end_offset == 2


def test_a_vote_that_a_killed_process_has_renamed_into_place_survives_from_the_next_start_on():
    files = new_disk()
    store = open_store(files)
    store.save_election(ElectionState(1, -1, 2, key(2).directory_id))
    renamed = ElectionState(2, -1, 3, key(3).directory_id)
    syncs = files.syncs

    def kill_before_the_name_is_synced():
        if files.syncs == syncs + 2:
            raise PowerCut

    files.on_sync = kill_before_the_name_is_synced
    with pytest.raises(PowerCut):
        store.save_election(renamed)
    files = files.cut_power()
    assert open_store(files).load_election() == renamed
    files.crash()
    assert open_store(files).load_election() == renamed


def test_a_recovery_point_that_may_have_been_written_goes_back_before_the_log_is_cut():
    files = new_disk()
    store = open_store(files)
    for value in (b"a", b"b"):
        store.append(Append(1, (value,)), 0)
        store.sync()
    syncs = files.syncs

    def fail_the_name():
        files.fail_syncs = int(files.syncs == syncs + 2)

    files.on_sync = fail_the_name
    with pytest.raises(OSError):
        store.checkpoint()
    files.on_sync = None
    files.is_shut_down = False  # as if nothing had been lost
    store.truncate_to(1)
    assert reopen(files).log.end_offset == 1


@pytest.mark.parametrize("appended", [0, 1])
def test_a_roll_that_hid_a_failed_sync_leaves_no_hole_after_a_crash(appended):
    """The sync of the roll comes after one that failed, so it succeeds, and brings nothing to disk."""
    files = new_disk()
    store = open_store(files)
    store.append(Append(1, (b"synced",)), 0)
    store.sync()
    store.append(Append(1, (b"lost",)), 0)
    ticket = store.begin_sync()
    files.fail_syncs = 1
    (error,) = sync_tickets(files, [ticket])
    store.log.roll(0)
    for _ in range(appended):
        store.append(Append(1, (b"behind the hole",)), 0)
        files.file(store.log.active.log.path).sync()
    assert error is not None and store.synced_offset == 1
    files.crash()
    again = open_store(files)
    assert (again.log.end_offset, len(again.log.segments)) == (1, 1)


def test_a_segment_that_is_missing_behind_what_was_synced_stops_the_start():
    files = new_disk()
    store = open_store(files)
    for _ in range(3):
        store.append(Append(1, (b"a",)), 0)
        store.sync()
        store.log.roll(0)
    for suffix in ("log", "index", "timeindex"):
        files.remove(f"{store.directory}/{1:020d}.{suffix}")
    with pytest.raises(DamagedData, match="a file is missing"):
        reopen(files)


def test_a_last_batch_whose_torn_header_the_crc_does_not_cover_is_cut_off():
    files = new_disk()
    store = open_store(files)
    store.append(Append(1, (b"a",)), 0)
    store.sync()
    store.checkpoint()
    position = store.log.active.size
    store.append(Append(1, (b"torn",)), 0)
    files.file(LOG).write_at(position, bytes(8))
    assert reopen(files).log.end_offset == 1


def test_a_hole_in_what_was_synced_stops_the_start():
    files = new_disk()
    store = open_store(files)
    for value in (b"a", b"b"):
        store.append(Append(1, (value,)), 0)
        store.sync()
    damage(files, 20)
    with pytest.raises(DamagedData, match="an intact batch follows"):
        reopen(files)


def test_a_checkpoint_forgets_a_run_that_is_synced():
    files = new_disk()
    store = open_store(files)
    store.append_fetched(AppendFetched(2, leaders_log().read(0, 1 << 20)), 0)
    store.checkpoint()
    assert files.exists(f"{store.directory}/{UNSYNCED_RUN_FILE}"), "it is not synced yet"
    store.sync()
    store.checkpoint()
    assert not files.exists(f"{store.directory}/{UNSYNCED_RUN_FILE}")
    damage(files, 20)
    with pytest.raises(DamagedData):
        reopen(files)


class SteadyLeader:
    """A leader that always appends while its disk is busy: something is unsynced at every moment."""

    def __init__(self, files):
        self.files = files
        self.store = open_store(files)
        self.append()

    def append(self, value=b"a"):
        self.store.append(Append(1, (value,)), 0)

    def turn(self, value=b"a"):
        """A sync completes, but more was appended meanwhile."""
        ticket = self.store.begin_sync()
        self.append(value)
        (error,) = sync_tickets(self.files, [ticket])
        self.store.complete_sync(ticket, error)
        assert self.store.synced_offset < self.store.log.end_offset


@pytest.mark.parametrize("position", [20, 65])  # of the length, and of a record
def test_steady_traffic_does_not_let_damage_to_what_was_synced_pass_for_a_torn_run(position):
    files = new_disk()
    leader = SteadyLeader(files)
    batch_bytes = leader.store.log.active.size
    for _ in range(5):
        leader.turn()
    synced = leader.store.synced_offset
    assert files.exists(f"{leader.store.directory}/{UNSYNCED_RUN_FILE}"), "it still names where the run began"
    for offset in range(synced + 1):
        killed = files.twin()
        before = killed.read(LOG)
        killed.file(LOG).write_at(offset * batch_bytes + position, b"\xff")
        if offset == synced:
            assert open_store(killed).log.end_offset == synced, "nobody was told that this is synced"
        else:
            with pytest.raises(DamagedData):
                open_store(killed)
            assert len(killed.read(LOG)) == len(before), "nothing is cut"


@pytest.mark.parametrize("is_follower", [True, False])
def test_a_log_that_was_cut_below_what_was_synced_stops_the_start_after_a_kill(is_follower):
    files = new_disk()
    store = open_store(files)
    if is_follower:
        store.append_fetched(AppendFetched(2, leaders_log().read(0, 1 << 20)), 0)
        store.sync()
    else:
        for _ in range(3):
            store.append(Append(1, (b"a",)), 0)
            store.sync()
    files.file(LOG).truncate(store.log.active.size - 1)
    with pytest.raises(DamagedData, match="synced"):
        reopen(files)


def test_damage_after_a_power_cut_is_known_by_the_last_checkpoint_however_steady_the_traffic_is():
    files = new_disk()
    leader = SteadyLeader(files)
    for _ in range(3):
        leader.turn()
    leader.store.checkpoint()
    leader.turn()
    files.crash()
    damage(files, len(files.read(LOG)) // 3)
    with pytest.raises(DamagedData):
        open_store(files)


def test_a_recovery_point_that_could_not_be_written_is_written_by_the_next_checkpoint():
    files = new_disk()
    store = open_store(files)
    store.append(Append(1, (b"a",)), 0)
    store.sync()
    files.fail_syncs = 1
    with pytest.raises(OSError):
        store.checkpoint()
    store.checkpoint()
    assert files.read(f"{store.directory}/{RECOVERY_POINTS}").endswith(b" 1\n")


def test_many_bytes_move_the_recovery_point_without_a_checkpoint_by_the_clock():
    files = new_disk()
    leader = SteadyLeader(files)
    path = f"{leader.store.directory}/{RECOVERY_POINTS}"
    leader.turn()
    assert not files.exists(path)
    for _ in range(3):
        leader.turn(bytes(CHECKPOINT_BYTES // 2))
    assert files.read(path).endswith(b" 3\n")
    leader.turn()
    assert files.read(path).endswith(b" 3\n"), "the count begins again"


def test_the_sync_of_one_record_costs_no_other():
    files = new_disk()
    store = open_store(files)
    store.append(Append(1, (b"a",)), 0)
    store.sync()
    syncs = files.syncs
    for _ in range(20):
        store.append(Append(1, (b"a",)), 0)
        store.sync()
    assert files.syncs == syncs + 20


@pytest.mark.parametrize("content", [b"", b"0000000000", b"00000000000000000003 00000000\n", b"\xff" * 30])
def test_a_synced_offset_that_a_power_cut_has_torn_says_nothing(content):
    files = new_disk()
    store = open_store(files)
    for _ in range(3):
        store.append(Append(1, (b"a",)), 0)
        store.sync()
    files.create(f"{store.directory}/{SYNCED_OFFSET_FILE}").write_at(0, content)
    files.file(LOG).truncate(store.log.active.size - 1)
    again = reopen(files)
    assert again.log.end_offset == 2


def test_a_synced_offset_that_cannot_be_written_does_no_harm():
    files = new_disk()
    store = open_store(files)
    store.append(Append(1, (b"a",)), 0)
    files.free_bytes = 0
    store.sync()
    assert store.synced_offset == 1
    files.free_bytes = None
    store.append(Append(1, (b"a",)), 0)
    store.sync()
    assert SyncedOffset(files, store.directory).offset == 2


def test_a_truncation_takes_the_synced_offset_back_for_good():
    """An attempt that failed has left more on disk than is read."""
    files = new_disk()
    store = open_store(files)
    for _ in range(3):
        store.append(Append(1, (b"a",)), 0)
        store.sync()
    files.file(f"{store.directory}/{SYNCED_OFFSET_FILE}").sync()
    files.fail_syncs = 1
    with pytest.raises(OSError):
        store.truncate_to(1)
    files = files.cut_power()  # the process ends
    open_store(files).truncate_to(1)
    files.crash()
    assert open_store(files).log.end_offset == 1


def test_a_deletion_that_a_crash_has_undone_in_part_leaves_no_hole():
    files = new_disk()
    store = open_store(files)
    for _ in range(3):
        store.append(Append(1, (b"a",)), 0)
        store.log.roll(0)
    store.sync()
    for suffix in ("log", "index", "timeindex"):
        files.remove(f"{store.directory}/{1:020d}.{suffix}")
    opened = QuorumStore.open(files.twin(), DIRECTORY, LogConfig(), 0, needed_from=2)
    assert (opened.log.log_start_offset, opened.log.end_offset) == (2, 3)
    with pytest.raises(DamagedData):
        QuorumStore.open(files.twin(), DIRECTORY, LogConfig(), 0, needed_from=1)


@pytest.mark.parametrize("is_scattered", [True, False])
def test_wherever_a_crash_interrupts_a_snapshot_that_replaces_the_log_it_can_be_done_again(is_scattered):
    for steps in range(1, 40):
        files = new_disk()
        store = open_store(files)
        for _ in range(3):
            store.append(Append(1, (b"a",)), 0)
            store.sync()
            store.log.roll(0)
        store.checkpoint()
        cut_power_after(files, steps)
        is_done = False
        try:
            store.start_at(10)
            is_done = True
        except PowerCut:
            pass
        files = files.cut_power()
        files.crash(Random(steps), is_scattered)
        opened = QuorumStore.open(files, DIRECTORY, LogConfig(), 0, needed_from=10)
        opened.catch_up_with(OffsetAndEpoch(10, 1))
        assert (opened.log.log_start_offset, opened.log.end_offset) == (10, 10)
        if is_done:
            return
    pytest.fail("there are more steps than were tried")


def test_a_longer_log_of_an_older_epoch_gives_way_to_a_snapshot_at_a_start():
    """The crash came after the snapshot got its name, and before the log was emptied."""
    store = leaders_log()  # 0 to 3 of epoch 1, 3 to 5 of epoch 2
    for snapshot_id in (OffsetAndEpoch(3, 1), OffsetAndEpoch(4, 2), OffsetAndEpoch(5, 2)):
        store.catch_up_with(snapshot_id)
        assert (store.log.log_start_offset, store.log.end_offset) == (0, 5), "it is a snapshot of this log"
    for _ in range(2):
        store.catch_up_with(OffsetAndEpoch(4, 3))
        assert (store.log.log_start_offset, store.log.end_offset) == (4, 4)
    store.append(Append(3, (b"a",)), 0)
    store.catch_up_with(OffsetAndEpoch(4, 3))
    assert store.log.end_offset == 5


def cut_power_after(files, steps):
    """Before the next change or sync after so many."""
    left = iter(range(steps))

    def step(path=""):
        if next(left, None) is None:
            raise PowerCut

    files.on_change, files.on_sync = step, step


def test_what_a_start_finds_is_synced_before_a_follower_fetches():
    files = new_disk()
    open_store(files).append(Append(1, (b"a",)), 0)
    store = reopen(files)
    voters = VoterSet.of(key(1), key(2), key(3))
    raft = Raft(key(1), "a-cluster", store.view(voters), None, rng=Random(0), now_ms=0)
    driver = Driver(raft, store, lambda message: None)
    assert driver.wants_sync
    driver.sync(0)
    assert not driver.wants_sync and raft.log.is_synced


def test_fetched_batches_are_appended_as_they_are():
    leader, follower = leaders_log(), open_store(new_disk())
    batches = follower.append_fetched(AppendFetched(2, leader.read(0, 1 << 20)), 0)
    assert [(item.base_offset, item.end_offset, item.epoch) for item in batches] == [
        (0, 1, 1),
        (1, 3, 1),
        (3, 5, 2),
    ]
    assert batches[2].changes == ((3, KRaftVersion(1)), (4, VoterSet.of(key(1))))
    assert follower.view(VoterSet.of(key(9))).voters.last == VoterSet.of(key(1))
    assert follower.log.leader_epochs.entries == [(1, 0), (2, 3)]


def test_batches_that_do_not_continue_the_log_are_refused():
    leader, follower = leaders_log(), open_store(new_disk())
    for offset in (1, 3):  # they would leave a gap
        with pytest.raises(KafkaError) as refusal:
            follower.append_fetched(AppendFetched(2, leader.read(offset, 1 << 20)), 0)
        assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
    batches = follower.append_fetched(AppendFetched(1, leader.read(0, 1 << 20)), 0)
    assert [item.end_offset for item in batches] == [1, 3], "nothing above the leader's epoch"
    with pytest.raises(KafkaError):
        follower.append_fetched(AppendFetched(1, leader.read(0, 1 << 20)), 0)
    assert follower.log.end_offset == 3


def test_a_batch_with_a_flipped_bit_is_refused_and_those_before_it_are_appended():
    leader, follower = leaders_log(), open_store(new_disk())
    data = bytearray(leader.read(0, 1 << 20))
    *sound, damaged = [header for header, _ in whole_batches(memoryview(bytes(data)))]
    data[-1] ^= 1
    follower.append_fetched(AppendFetched(2, bytes(data)), 0)
    assert follower.log.end_offset == damaged.base_offset
    with pytest.raises(KafkaError):
        follower.append_fetched(AppendFetched(2, bytes(data[sum(header.size for header in sound) :])), 0)
    assert follower.log.end_offset == damaged.base_offset
