"""Tests of when snapshots are written, what is deleted then, and what a start makes of them, after any crash."""

import asyncio
import logging
import random

import pytest

from odradek.errors import DamagedData, KafkaError
from odradek.metadata.records import PartitionRecord, TopicRecord
from odradek.metadata.snapshot import digest, parse_name
from odradek.model import METADATA_TOPIC_ID
from odradek.raft.ready import Append
from odradek.raft.voters import Endpoint, KRaftVersion, VoterNode, VoterSet
from odradek.storage.disk.sync import sync_tickets
from tests.metadata.histories import History
from tests.metadata.worlds import (
    AT_ONCE,
    CUT_ALL,
    NO_LIMIT,
    PARTITION,
    Crash,
    CrashingFiles,
    World,
    facts,
    feature,
)

HOUR = 3600.0


def overwrite(files, path, data):
    files.create(path).write_at(0, data)


def restarted(world, **options):
    return World(world.files.twin(), **options)


def bases(world):
    return [int(name.partition(".")[0]) for name in world.names(".log")]


def snapshot_ends(world):
    return [parse_name(name).end_offset for name in world.names()]


def grow(world, history, commits):
    for _ in range(commits):
        world.commit(*history.next())


# --- when ---


def test_nothing_is_written_while_nothing_is_due():
    world = World(policy=NO_LIMIT)
    world.commit(feature(1))
    world.pass_time(1000 * HOUR)
    world.maintain()
    assert world.names() == [] and world.steps == 0


def test_so_many_bytes_since_the_last_one():
    world = World(policy=NO_LIMIT._replace(max_bytes=1000))
    ends = []
    for level in range(1, 41):
        world.commit(feature(level))
        before = world.log.size_from(world.log.snapshots.end_offset)
        world.maintain()
        ends = snapshot_ends(world)
        assert (ends[-1:] == [world.log.end_offset]) == (before >= 1000)
    assert len(ends) >= 3


def test_so_much_time_and_a_change():
    world = World(policy=NO_LIMIT._replace(max_interval_ms=int(HOUR * 1000)))
    world.commit(feature(1))
    world.pass_time(HOUR - 1)
    world.maintain()
    assert world.names() == []
    world.pass_time(1)
    world.maintain()
    assert len(world.names()) == 1
    world.pass_time(10 * HOUR)
    world.maintain()
    assert len(world.names()) == 1, "nothing has changed"
    world.commit(feature(2))
    world.maintain()
    assert len(world.names()) == 2


def test_what_was_in_the_log_before_a_start_counts():
    world = World(policy=NO_LIMIT)
    for level in range(20):
        world.commit(feature(level))
    world = restarted(world, policy=NO_LIMIT._replace(max_bytes=1000))
    world.maintain()
    assert snapshot_ends(world) == [world.log.end_offset]


def test_changes_go_on_while_a_snapshot_is_written():
    """It holds what was committed when it began."""
    world = World()
    partitions = [PartitionRecord(index, METADATA_TOPIC_ID, [1], [1]) for index in range(500)]
    world.commit(TopicRecord("t", METADATA_TOPIC_ID), *partitions)
    end_offset = world.log.end_offset

    async def change_meanwhile():
        level, task = 0, world.host.create_task(world.snapshotter.maintain())
        while not task.done():
            await asyncio.sleep(0.0001 if world.steps > 8 else 0)
            level += 1
            world.commit(feature(level))
        return level

    level = world.host.run(change_meanwhile())
    assert world.steps > 5 and level > 5
    assert snapshot_ends(world) == [end_offset]
    again = restarted(world)
    assert facts(again.image) == facts(world.image) and again.image.features == {"f": level}


@pytest.mark.parametrize("turns", range(1, 40, 3))
def test_a_node_that_stops_leaves_no_half_of_one(turns):
    world = World()
    partitions = [PartitionRecord(index, METADATA_TOPIC_ID, [1], [1]) for index in range(500)]
    world.commit(TopicRecord("t", METADATA_TOPIC_ID), *partitions)

    async def stop_meanwhile():
        task = world.host.create_task(world.snapshotter.maintain())
        for _ in range(turns):
            await asyncio.sleep(0 if world.steps < 10 else 0.0005)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert world.host.run(stop_meanwhile()) or len(world.names()) == 1
    assert world.names(".part") == []
    world.log.close()
    assert facts(restarted(world).image) == facts(world.image)


# --- what is kept ---


def test_the_log_is_cut_at_the_newest_snapshot_where_nothing_is_to_be_kept():
    world = World(policy=CUT_ALL)
    for level in (1, 2, 3):
        world.commit(feature(level))
        world.maintain()
        end = world.log.end_offset
        assert (snapshot_ends(world), bases(world), world.log.start_offset) == ([end], [end], end)
    assert world.names(".deleted")
    world.pass_time(world.log.file_delete_delay_ms / 1000)
    world.maintain()
    assert world.names(".deleted") == []
    assert restarted(world).image.features == {"f": 3}


def test_old_snapshots_and_their_log_are_kept_for_a_while():
    world = World(policy=AT_ONCE._replace(retention_ms=1_500_000))
    ends = []
    for level in range(1, 6):
        world.commit(feature(level))
        world.maintain()
        ends.append(world.log.end_offset)
        world.pass_time(1000)
    assert snapshot_ends(world) == ends[3:] == [world.log.start_offset, ends[-1]]
    assert bases(world) == ends[3:]
    world.pass_time(HOUR)
    world.maintain()
    assert snapshot_ends(world) == bases(world) == ends[-1:], "the newest always stays"


def test_old_snapshots_and_their_log_are_kept_up_to_a_size():
    world = World(policy=AT_ONCE._replace(retention_bytes=3000))
    for level in range(1, 30):
        world.commit(feature(level))
        world.maintain()
        assert world.log.size_bytes + world.log.snapshots.size_bytes <= 3000
        assert world.log.start_offset <= snapshot_ends(world)[0]
    assert len(world.names()) > 2
    again = restarted(world, policy=CUT_ALL)
    again.maintain()
    assert len(again.names()) == 1 and again.image.features == {"f": 29}


def test_a_long_history_of_few_things_is_a_short_start():
    """A start reads only what is alive."""
    world = World(policy=CUT_ALL._replace(max_bytes=5000))
    for level in range(500):
        world.commit(feature(level + 1))
        world.maintain()
    world.pass_time(world.log.file_delete_delay_ms / 1000)
    world.maintain()
    assert sum(entry.size for entry in world.files.list(PARTITION)) < 20_000
    assert restarted(world).image.features == {"f": 500}


def test_the_log_rolls_by_time():
    world = World(policy=NO_LIMIT, segment_ms=10_000)
    for level in range(1, 6):
        world.commit(feature(level))
        world.pass_time(6)
    assert len(bases(world)) == 3
    assert restarted(world).image.features == {"f": 5}


def test_the_log_rolls_by_size_and_starts_from_many_segments():
    world = World(policy=NO_LIMIT, segment_bytes=300)
    for level in range(1, 30):
        world.commit(feature(level))
    assert len(bases(world)) > 5
    assert restarted(world).image.features == {"f": 29}


# --- a start ---


def test_a_start_reads_only_what_lies_above_the_newest_snapshot():
    world = World(policy=AT_ONCE)
    for level in (1, 2):
        world.commit(feature(level))
        world.maintain()
    world.commit(feature(3))
    assert len(bases(world)) == 3
    for base in bases(world)[:2]:
        overwrite(world.files, f"{PARTITION}/{base:020d}.log", b"rubbish")
    again = restarted(world, policy=CUT_ALL)
    assert again.image.features == {"f": 3}
    again.maintain()
    assert bases(again) == snapshot_ends(again) == [again.log.end_offset], (
        "the damage is gone with what was old"
    )


def test_what_the_quorum_keeps_in_the_log_is_kept_in_snapshots():
    """Voters that are in the log (kraft.version 1) must not vanish with it."""
    world = World(policy=CUT_ALL)
    raft = world.log._quorum.raft
    voters = VoterSet([VoterNode(raft.node, (Endpoint("CONTROLLER", "somewhere", 9093),))])
    world.log._store.append(Append(raft.epoch, control=(KRaftVersion(1), voters)), 0)
    for _ in range(3):
        world = restarted(world, policy=CUT_ALL)
        known = world.log._quorum.raft.log.voters
        assert known.last == voters and known.kraft_version == 1
        world.maintain()
        assert world.log.start_offset == world.log.end_offset
        assert world.log._quorum.raft.log.snapshot_id == world.log.snapshots.ids[-1]


@pytest.mark.parametrize("policy", [AT_ONCE, CUT_ALL])
def test_a_log_that_is_empty_above_its_snapshot(policy):
    world = World(policy=policy)
    world.commit(feature(1))
    world.maintain()
    assert world.log.size_from(world.log.end_offset) == 0
    epoch = world.log.epoch
    for name in ("quorum-state", "leader-epoch-checkpoint"):
        world.files.remove(f"{PARTITION}/{name}")
    again = restarted(world)
    assert again.image.features == {"f": 1} and again.log.epoch == epoch + 1, "no epoch comes twice"
    assert restarted(again).image.features == {"f": 1}


def test_a_torn_last_batch_above_a_snapshot_is_cut_and_no_other():
    world = World(policy=CUT_ALL)
    world.commit(feature(1))
    world.maintain()
    world.commit(feature(2))
    first = world.log.size_from(world.log.start_offset)
    known = world.files.read(f"{PARTITION}/synced-offset")
    world.commit(feature(3))
    path = f"{PARTITION}/{bases(world)[-1]:020d}.log"
    data = world.files.read(path)
    torn = world.files.twin()
    overwrite(torn, path, data[:-1])
    overwrite(torn, f"{PARTITION}/synced-offset", known)
    assert World(torn).image.features == {"f": 2}
    damaged = world.files.twin()
    overwrite(damaged, path, bytes(first) + data[first:])
    with pytest.raises(DamagedData, match="damaged at byte 0"):
        World(damaged)
    world.log.checkpoint()
    overwrite(world.files, path, data[:-1])
    with pytest.raises(DamagedData, match="synced"):
        World(world.files)


def test_a_log_that_ends_before_its_snapshot_stops_the_start():
    """It was synced up to there, whatever the recovery point that a backup brought back says."""
    world = World(policy=AT_ONCE)
    world.commit(feature(1))
    world.maintain()
    path = f"{PARTITION}/{bases(world)[-1]:020d}"
    for suffix in (".log", ".index", ".timeindex"):
        world.files.remove(path + suffix)
    data = world.files.read(f"{PARTITION}/{0:020d}.log")
    overwrite(world.files, f"{PARTITION}/{0:020d}.log", data[:-1])
    with pytest.raises(DamagedData, match="synced"):
        restarted(world)
    world.files.remove(f"{PARTITION}/recovery-point-offset-checkpoint")
    world.files.remove(f"{PARTITION}/synced-offset")
    with pytest.raises(DamagedData, match="ends at offset 1, but a snapshot of it ends at offset 2"):
        restarted(world)


def test_what_a_crash_left_half_done_is_removed():
    world = World(policy=AT_ONCE)
    world.commit(feature(1))
    for name in (
        "00000000000000000009-0000000001.checkpoint.part",
        "00000000000000000001-0000000001.checkpoint.deleted",
    ):
        overwrite(world.files, f"{PARTITION}/{name}", b"half")
    again = restarted(world)
    assert again.names(".part") == again.names(".deleted") == []


# --- damage ---


def damage(data):
    return {
        "the wrong checksum": data[:-1] + bytes([data[-1] ^ 1]),
        "its end is missing": data[:-10],
        "no header": b"",
        "its name says": None,
        "does not say where it ends": None,
    }


def damaged_twin(world, kind, name):
    files, path = world.files.twin(), f"{PARTITION}/{name}"
    changed = damage(files.read(path))[kind]
    if changed is None:
        other = "-0000000002" if kind == "its name says" else "-x"
        path = f"{PARTITION}/{name.replace('-0000000001', other)}"
        files.rename(f"{PARTITION}/{name}", path)
    else:
        overwrite(files, path, changed)
    return files, path


@pytest.mark.parametrize("kind", damage(b"x"))
def test_a_damaged_snapshot_stops_the_start_where_the_log_below_it_is_gone(kind):
    world = World(policy=CUT_ALL)
    world.commit(feature(1))
    world.maintain()
    [name] = world.names()
    files, path = damaged_twin(world, kind, name)
    before = files.contents()
    with pytest.raises(DamagedData) as refusal:
        World(files)
    message = str(refusal.value)
    assert f"{path} is damaged: " in message and kind in message and "from a backup" in message
    assert "\n" not in message
    assert files.contents() == before, "nothing is removed"


@pytest.mark.parametrize("kind", damage(b"x"))
def test_a_damaged_snapshot_is_passed_over_where_the_log_is_whole(kind, caplog):
    world = World(policy=AT_ONCE)
    world.commit(feature(1))
    world.maintain()
    world.commit(feature(2))
    [name] = world.names()
    files, path = damaged_twin(world, kind, name)
    again = World(files, policy=CUT_ALL)
    assert again.image.features == {"f": 2}
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert path in warning.getMessage() and "nothing is missing" in warning.getMessage()
    assert again.names() == [] and again.names(".damaged") == [path.rpartition("/")[2] + ".damaged"]
    caplog.clear()
    again.maintain()
    assert again.log.start_offset == snapshot_ends(again)[0], "the next one makes up for it"
    assert restarted(again).image.features == {"f": 2}
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_older_snapshot_takes_the_place_of_a_damaged_one():
    world = World(policy=AT_ONCE)
    world.commit(feature(1))
    world.maintain()
    world.commit(feature(2))
    world.maintain()
    world.commit(feature(3))
    _, second = world.names()
    middle = bases(world)[1]
    files, _ = damaged_twin(world, "its end is missing", second)
    files.remove(f"{PARTITION}/{0:020d}.log")
    assert World(files).image.features == {"f": 3}
    files, path = damaged_twin(world, "its end is missing", second)
    overwrite(files, f"{PARTITION}/{middle:020d}.log", b"rubbish")
    before = files.contents()
    with pytest.raises(DamagedData) as refusal:
        World(files)
    assert f"{path} is damaged" in str(refusal.value) and "a file is missing or damaged" in str(refusal.value)
    changed = {name for name, data in before.items() if files.contents().get(name) != data}
    assert not changed, "nothing is removed"


def test_a_log_that_begins_late_needs_its_snapshot():
    world = World(policy=CUT_ALL)
    world.commit(feature(1))
    world.maintain()
    [name] = world.names()
    for gone in ("remove", "rename"):
        files = world.files.twin()
        if gone == "remove":
            files.remove(f"{PARTITION}/{name}")
        else:
            files.rename(f"{PARTITION}/{name}", f"{PARTITION}/old.checkpoint")
        with pytest.raises(
            DamagedData, match="begins at offset 2, and there is no snapshot of what came before"
        ):
            World(files)
    files = world.files.twin()
    for log in world.names(".log"):
        files.remove(f"{PARTITION}/{log}")
    with pytest.raises(DamagedData, match="no segment of the log"):
        World(files)


def test_the_log_is_never_cut_where_no_snapshot_is():
    world = World(policy=NO_LIMIT)
    world.commit(feature(1))
    with pytest.raises(AssertionError):
        world.log.delete_before(1, 0)


# --- crashes ---


def crashing_world(seed, policy=CUT_ALL):
    """Snapshots were taken before, and there is something new."""
    history = History(random.Random(seed))
    world = World(CrashingFiles(), policy, seed)
    for _ in range(2):
        grow(world, history, 3)
        world.maintain()
        world.pass_time(100)
    grow(world, history, 3)
    return world


def changes_of(seed):
    world = crashing_world(seed)
    before = world.files.changes
    world.maintain()
    return world.files.changes - before


@pytest.mark.plants_traceback
@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_any_change_of_snapshotting_loses_nothing(seed):
    count = changes_of(seed)
    assert count > 15
    for crash_at in range(count + 1):
        for rng in (None, random.Random(crash_at), random.Random(-crash_at)):
            world = crashing_world(seed)
            world.files.changes_left = crash_at
            try:
                world.maintain()
                assert crash_at == count
            except Crash:
                pass
            world.files.changes_left = None
            world.files.crash(rng)
            again = World(world.files, CUT_ALL)
            assert facts(again.image) == facts(world.image), (crash_at, rng)
            assert again.names(".part") == []
            again.commit(feature(77))
            again.maintain()
            assert facts(restarted(again).image) == facts(again.image)


@pytest.mark.plants_traceback
@pytest.mark.parametrize("seed", range(40))
def test_lives_full_of_crashes(seed):
    """Commits, snapshots and starts, cut short anywhere: what was committed is there, and a commit is whole or not."""
    rng = random.Random(seed)
    files, history = CrashingFiles(), History(rng)
    lawful, crashes = None, 0  # what the next start may find
    for _ in range(10):
        files.changes_left = rng.choice([rng.randrange(40), rng.randrange(250)])
        try:
            policy = CUT_ALL._replace(retention_bytes=rng.choice([0, 2000, -1]))
            world = World(files, policy, rng.randrange(99))
            assert lawful is None or facts(world.image) in lawful
            history.image = world.image
            for _ in range(rng.randrange(8)):
                records = history.next()
                lawful = [facts(world.image), facts(history.image)]
                world.commit(*records)
                lawful = [facts(world.image)]
                if rng.random() < 0.5:
                    world.maintain()
        except Crash:
            crashes += 1
        files.changes_left = None
        files.crash(rng)
    assert crashes and (lawful is None or facts(World(files).image) in lawful)


# --- failures ---


def test_a_full_disk_is_said_once_and_tried_again(caplog):
    world = World(policy=CUT_ALL)
    world.commit(feature(1))
    world.files.free_bytes = 100
    segments = len(bases(world))
    for _ in range(5):
        world.maintain()
        world.pass_time(5)
    world.pass_time(60)
    world.maintain()
    [error] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "no space is left" in error and "Nothing is lost" in error
    assert world.names() == world.names(".part") == [] and len(bases(world)) <= segments + 1
    world.files.free_bytes = None
    caplog.clear()
    world.pass_time(200)
    with caplog.at_level(logging.INFO):
        world.maintain()
    assert any("attempt 3" in record.getMessage() for record in caplog.records)
    assert len(world.names()) == 1
    world.commit(feature(2))
    world.maintain()
    assert restarted(world).image.features == {"f": 2}


@pytest.mark.parametrize("opens", range(12))
def test_a_moment_without_descriptors_does_no_harm(opens, caplog):
    world = World(policy=CUT_ALL)
    world.commit(feature(1))
    world.files.run_out_of_descriptors(opens)
    world.maintain()
    world.files.free_descriptors()
    assert not world.log.failed
    world.commit(feature(2))
    world.pass_time(60)
    world.maintain()
    assert snapshot_ends(world) == [world.log.end_offset]
    assert restarted(world).image.features == {"f": 2}
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) <= 1


@pytest.mark.parametrize("nth", range(9))
def test_a_sync_that_fails_costs_the_snapshot_or_stops_the_node(nth):
    world = World(policy=CUT_ALL)
    world.commit(feature(1))
    syncs = world.files.syncs

    def fail():
        if world.files.syncs == syncs + nth + 1:
            world.files.fail_syncs = 1

    world.files.on_sync = fail
    try:
        world.maintain()
    except KafkaError:
        assert world.log.failed
    else:
        assert not world.log.failed
    world.files.on_sync = None
    if not world.log.failed and not world.files.is_shut_down:
        world.commit(feature(2))
        world.pass_time(60)
        world.maintain()
    world.files.crash()
    assert World(world.files).image.features == world.image.features


def test_a_snapshot_waits_for_a_sync_of_what_it_would_hold():
    """A leader commits what a majority has, which need not include itself: its own sync may be under way, and fail."""
    world = World(policy=AT_ONCE)
    world.commit(feature(1))
    world.log.append([feature(2)], world.host.now_ms())
    ticket = world.log.begin_sync()
    world.log._store.log.mark_unsynced([], 0)
    world.maintain()
    assert snapshot_ends(world) == []
    world.log.complete_sync(ticket, *sync_tickets(world.files, [ticket]))
    world.maintain()
    assert snapshot_ends(world) == [world.log.end_offset]


def test_images_are_equal_at_equal_offsets_with_and_without_snapshots():
    """Two nodes with the same log: one reads it whole, the other has a snapshot at another place after each commit."""
    rng = random.Random(5)
    history, world = History(rng), World(policy=CUT_ALL)
    whole = World(policy=NO_LIMIT)
    for _ in range(30):
        records = history.next()
        world.commit(*records)
        whole.commit(*records)
        if rng.random() < 0.3:
            world.maintain()
            whole.pass_time(world.loop.time() - whole.loop.time())
    assert digest(world.image) == digest(whole.image)
    first, second = restarted(world), restarted(whole)
    assert first.image == second.image and digest(first.image) == digest(second.image)
