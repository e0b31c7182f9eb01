"""The metadata log on a disk that forgets what was not synced."""

import random
from itertools import pairwise
from uuid import UUID

import pytest

from odradek.errors import DamagedData, ErrorCode, KafkaError
from odradek.metadata.log import ALONE, Membership, MetadataLog
from odradek.metadata.properties import MetaProperties
from odradek.metadata.records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from odradek.model import METADATA_TOPIC_ID
from odradek.raft.control import LeaderChange, read_control_records
from odradek.raft.election import ElectionState, QuorumStateCorrupt, encode_election_state
from odradek.raft.ready import Append
from odradek.raft.voters import Endpoint, ReplicaKey, VoterSet
from odradek.records.batch import read_header
from odradek.storage.config import LogConfig
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.disk.sync import sync_tickets

DIRECTORY = "/data"
PROPERTIES = MetaProperties("a-cluster", 1, UUID(int=1 << 64))
PARTITION = f"{DIRECTORY}/__cluster_metadata-0"
LOG = f"{PARTITION}/00000000000000000000.log"


class Crash(Exception):
    """The power fails."""


def new_disk():
    files = SimulatedFiles()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    return files


def open_log(files, now_ms=1000):
    return MetadataLog.open(files, DIRECTORY, PROPERTIES, LogConfig(), now_ms)


def feature(level):
    return FeatureLevelRecord("f", level)


def facts(image):
    return image.topics, image.configs, image.features, image.brokers


def test_what_is_committed_is_there_after_a_restart():
    files = new_disk()
    log = open_log(files)
    topic = [TopicRecord("t", METADATA_TOPIC_ID), PartitionRecord(0, METADATA_TOPIC_ID, [1], [1])]
    [delta] = log.commit([*topic, ConfigRecord(2, "t", "retention.ms", "1")], 2000)
    assert [item.name for item in delta.created_topics] == ["t"]
    assert delta.after is log.image
    log.close()
    reopened = open_log(files)
    assert facts(reopened.image) == facts(log.image)
    assert reopened.image.cluster_id == log.image.cluster_id
    reopened.commit([RemoveTopicRecord(METADATA_TOPIC_ID)], 3000)
    assert open_log(files).image.topics == {}


def test_a_start_knows_the_topics_that_its_log_has_seen_removed():
    files = new_disk()
    log = open_log(files)
    log.commit([TopicRecord("t", METADATA_TOPIC_ID), PartitionRecord(0, METADATA_TOPIC_ID, [1], [1])], 2000)
    assert log.take_removed_topic_ids() == frozenset()
    log.commit([RemoveTopicRecord(METADATA_TOPIC_ID)], 3000)
    assert log.take_removed_topic_ids() == frozenset(), "what comes later is in the deltas alone"
    log.close()
    assert open_log(files).take_removed_topic_ids() == {METADATA_TOPIC_ID}


def test_every_epoch_opens_with_a_leader_change():
    files = new_disk()
    open_log(files)
    log = open_log(files)
    assert (log.epoch, log.leader_id, log.end_offset, log.high_watermark) == (2, 1, 2, 2)
    data = files.read(f"{PARTITION}/00000000000000000000.log")
    first = read_header(data)
    for offset, batch in enumerate((data[: first.size], data[first.size :])):
        header = read_header(batch)
        assert header.is_control and (header.base_offset, header.leader_epoch) == (offset, offset + 1)
        change = LeaderChange(1, (ReplicaKey(1),), (ReplicaKey(1),))
        assert list(read_control_records(batch, header)) == [(offset, change)]


def test_only_what_is_synced_is_published():
    log = open_log(new_disk())
    log.append([feature(1)], 1000)
    log.append([feature(2)], 1000)
    assert (log.image.features, log.newest.features) == ({}, {"f": 2})
    ticket = log.begin_sync()
    log.append([feature(3)], 1000)
    deltas = log.complete_sync(ticket, None)
    assert [delta.after.features for delta in deltas] == [{"f": 1}, {"f": 2}]
    assert (log.image.features, log.newest.features) == ({"f": 2}, {"f": 3})
    assert log.image.offset == log.high_watermark - 1


def test_a_crash_between_append_and_sync_takes_the_append_along():
    files = new_disk()
    log = open_log(files)
    log.commit([feature(1)], 1000)
    log.append([feature(2)], 1000)
    files.crash()
    assert open_log(files).image.features == {"f": 1}


def test_what_a_killed_process_left_unsynced_is_synced_before_it_counts():
    files = new_disk()
    open_log(files).append([feature(1)], 1000)
    assert open_log(files).image.features == {"f": 1}
    files.crash()
    assert open_log(files).image.features == {"f": 1}


def test_a_failed_sync_commits_nothing_and_ends_the_appends():
    files = new_disk()
    log = open_log(files)
    log.commit([feature(1)], 1000)
    files.fail_syncs = 1
    with pytest.raises(KafkaError):
        log.commit([feature(2)], 1000)
    assert log.image.features == {"f": 1}
    with pytest.raises(KafkaError):
        log.commit([feature(3)], 1000)
    assert log.image.features == {"f": 1}


def test_a_failed_sync_in_a_thread_commits_nothing():
    files = new_disk()
    log = open_log(files)
    log.append([feature(1)], 1000)
    ticket = log.begin_sync()
    files.fail_syncs = 1
    (error,) = sync_tickets(files, [ticket])
    assert log.complete_sync(ticket, error) == []
    assert log.image.features == {}


def test_a_full_disk_refuses_the_append_and_forgets_it():
    files = new_disk()
    log = open_log(files)
    files.free_bytes = 10
    with pytest.raises(KafkaError) as refusal:
        log.append([feature(1)], 1000)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.newest is log.image
    files.free_bytes = None
    log.commit([feature(2)], 1000)
    assert open_log(files).image.features == {"f": 2}


def test_a_transaction_counts_once_it_ends():
    files = new_disk()
    log = open_log(files)
    log.commit([BeginTransactionRecord("x"), feature(1)], 1000)
    log.commit([feature(2), EndTransactionRecord()], 1000)
    log.commit([BeginTransactionRecord("y"), feature(3)], 1000)
    reopened = open_log(files)
    assert reopened.image.features == {"f": 2}
    reopened.commit([feature(4)], 1000)
    assert open_log(files).image.features == {"f": 4}


def test_a_damaged_quorum_state_keeps_the_node_from_starting():
    files = new_disk()
    open_log(files)
    files.file(f"{PARTITION}/quorum-state").truncate(10)
    with pytest.raises(QuorumStateCorrupt, match=f"{PARTITION}/quorum-state cannot be trusted"):
        open_log(files)


def overwrite(files, path, data):
    files.create(path).write_at(0, data)


def batch_starts(data):
    starts, position = [], 0
    while position < len(data):
        starts.append(position)
        position += read_header(data[position:]).size
    return starts


def test_a_flipped_bit_in_any_batch_but_the_last_stops_the_start():
    files = new_disk()
    log = open_log(files)
    for level in (1, 2, 3):
        log.commit([feature(level)], 1000)
    data = files.read(LOG)
    starts = batch_starts(data)
    for start, end in pairwise(starts):
        for position in range(start, end):
            damaged = bytearray(data)
            damaged[position] ^= 16
            overwrite(files, LOG, damaged)
            with pytest.raises(DamagedData) as refusal:
                open_log(files)
            assert f"{LOG} is damaged at byte {start}" in str(refusal.value)
            assert "from a backup" in str(refusal.value)
            assert files.read(LOG) == damaged, "nothing is cut"
    overwrite(files, LOG, data)
    assert open_log(files).image.features == {"f": 3}


def test_a_torn_last_batch_is_cut():
    files = new_disk()
    log = open_log(files)
    log.commit([feature(1)], 1000)
    log.checkpoint()
    known = files.read(f"{PARTITION}/synced-offset")
    log.commit([feature(2)], 1000)
    data = files.read(LOG)
    *_, last = batch_starts(data)
    state = files.read(f"{PARTITION}/quorum-state")
    for torn in (data[: last + 30], data[:-1], data[: last + 61] + bytes(len(data) - last - 61), data[:last]):
        overwrite(files, LOG, torn)
        overwrite(files, f"{PARTITION}/quorum-state", state)
        overwrite(files, f"{PARTITION}/synced-offset", known)
        assert open_log(files).image.features == {"f": 1}


def check_cuts_are_refused(files):
    data = files.read(LOG)
    *_, last = batch_starts(data)
    for cut in (data[:last], data[:-1], data[: last + 61] + bytes(len(data) - last - 61)):
        overwrite(files, LOG, cut)
        with pytest.raises(DamagedData, match="synced"):
            open_log(files)
        assert files.read(LOG) == cut


def test_what_was_synced_is_not_taken_for_torn_after_a_kill_though_no_checkpoint_was_written():
    files = new_disk()
    log = open_log(files)
    log.commit([feature(1)], 1000)
    log.commit([feature(2)], 1000)
    assert not files.exists(f"{PARTITION}/recovery-point-offset-checkpoint")
    check_cuts_are_refused(files)


def test_what_was_synced_before_a_checkpoint_is_not_taken_for_torn():
    files = new_disk()
    log = open_log(files)
    log.commit([feature(1)], 1000)
    log.commit([feature(2)], 1000)
    log.checkpoint()
    check_cuts_are_refused(files)
    files.remove(LOG)
    with pytest.raises(DamagedData, match="synced"):
        open_log(files)


def test_a_clean_stop_leaves_a_recovery_point():
    files = new_disk()
    log = open_log(files)
    log.commit([feature(1)], 1000)
    log.close()
    path = f"{PARTITION}/recovery-point-offset-checkpoint"
    assert files.read(path) == b"0\n1\n__cluster_metadata 0 2\n"
    files.crash()
    log = open_log(files)
    syncs = files.syncs
    log.checkpoint()
    log.checkpoint()
    assert files.syncs == syncs + 2, "written once: the file and its name"


def told_about_damage(files, membership=ALONE, position=70):
    """Return what the operator reads after a bit of the first record has flipped."""
    data = bytearray(files.read(LOG))
    data[position] ^= 1
    overwrite(files, LOG, data)
    with pytest.raises(DamagedData) as refusal:
        MetadataLog.open(files, DIRECTORY, PROPERTIES, LogConfig(), 1000, membership)
    return str(refusal.value)


def lone_log(*records):
    files = new_disk()
    log = MetadataLog.open(files, DIRECTORY, PROPERTIES, LogConfig(), 1000, ALONE._replace(kraft_version=1))
    for record in records:
        log.commit([record], 1000)
    return files, log


def append_voters(log, voters):
    log._store.append(Append(1, control=(voters,)), 1000)
    log._store.sync()


def test_a_lone_node_with_a_damaged_log_is_told_that_it_can_start_with_no_topics():
    text = told_about_damage(lone_log(feature(1))[0])
    assert "move it away to start with no topics" in text and "vote" not in text


TWO_VOTERS = VoterSet.of(ReplicaKey(1, PROPERTIES.directory_id), ReplicaKey(2, UUID(int=2)))
ENDPOINT = Endpoint("CONTROLLER", "host", 9093)


@pytest.mark.parametrize("is_controller", [True, False])
def test_a_node_whose_configuration_names_a_quorum_is_told_to_join_again(is_controller):
    member = Membership(is_alone=False, endpoints=(ENDPOINT,) if is_controller else ())
    text = told_about_damage(lone_log(feature(1))[0], member)
    assert "with no topics" not in text and "CLUSTER.md" in text
    assert ("odradek quorum remove-controller 1 " in text) is is_controller


def test_a_node_that_has_grown_into_a_cluster_is_told_to_join_again_whatever_its_configuration_says():
    """Its log names the other voters, behind the damage."""
    files, log = lone_log(feature(1))
    append_voters(log, TWO_VOTERS)
    assert "with no topics" not in told_about_damage(files)


def test_a_node_that_knows_another_leader_is_told_to_join_again():
    files, _ = lone_log(feature(1))
    state = encode_election_state(ElectionState(5, leader_id=3))
    overwrite(files, f"{PARTITION}/quorum-state", state)
    assert "with no topics" not in told_about_damage(files)


def test_a_node_whose_other_voters_have_left_is_alone_again():
    files, log = lone_log(feature(1))
    append_voters(log, TWO_VOTERS)
    append_voters(log, TWO_VOTERS.without(2))
    assert "with no topics" in told_about_damage(files)


def test_a_damaged_epoch_file_stops_the_start():
    """It would make every batch look wrong."""
    files = new_disk()
    log = open_log(files)
    log.commit([feature(1)], 1000)
    data = files.read(LOG)
    overwrite(files, f"{PARTITION}/leader-epoch-checkpoint", b"0\n1\n3 0\n")
    with pytest.raises(DamagedData, match="wrong offset or leader epoch"):
        open_log(files)
    assert files.read(LOG) == data


@pytest.mark.parametrize("seed", range(60))
def test_crashes_at_random_syncs(seed):
    """Whatever was published stays; what was not is there as a whole or not at all; no epoch comes twice."""
    rng = random.Random(seed)
    files, written, published, epochs = new_disk(), 0, 0, []

    def maybe_crash():
        if rng.random() < 0.15:
            raise Crash

    for _ in range(12):
        files.on_sync = maybe_crash
        try:
            log = open_log(files)
            assert log.epoch not in epochs
            epochs.append(log.epoch)
            level = log.image.features.get("f", 0)
            assert published <= level <= written and log.image.features.get("g", 0) == level
            published = written = level
            for _ in range(rng.randrange(6)):
                written += 1
                log.append([feature(written), FeatureLevelRecord("g", written)], 1000)
                if rng.random() < 0.6 and (ticket := log.begin_sync()):
                    files.sync_many(ticket.files)
                    for delta in log.complete_sync(ticket, None):
                        published = delta.after.features["f"]
                if rng.random() < 0.2:
                    log.checkpoint()
        except Crash:
            pass
        files.on_sync = None
        files.crash(rng)
    assert epochs == sorted(epochs)


@pytest.mark.parametrize("opens", range(6))
def test_a_moment_without_descriptors_refuses_a_change_and_no_more(opens):
    """Nothing is left between the newest image and the committed one, and the next change is taken."""
    files = new_disk()
    log = open_log(files)
    log.commit([feature(1)], 2000)
    end_offset = log.end_offset
    files.run_out_of_descriptors(opens)
    try:
        log.commit([feature(2)], 2000)
    except KafkaError as error:
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.end_offset == end_offset
        assert log.newest is log.image
        assert log.image.features == {"f": 1}
    else:
        assert log.image.features == {"f": 2}
    files.free_descriptors()
    log.commit([feature(3)], 2000)
    assert log.image.features == log.newest.features == {"f": 3}
    files.crash()
    assert open_log(files).image.features == {"f": 3}
