"""Formatting: a directory is a node's once meta.properties is there, and names the first voters from then on."""

import logging
import random

import pytest

from odradek.config.broker import BrokerConfig
from odradek.errors import DamagedData
from odradek.metadata.formatting import (
    NotFormatted,
    format_directory,
    load_or_format,
    new_properties,
)
from odradek.metadata.loading import find_base
from odradek.metadata.properties import WrongDirectory, read_properties
from odradek.metadata.records import FeatureLevelRecord
from odradek.metadata.snapshot_files import FORMATTED
from odradek.raft.core import Raft
from odradek.raft.driver import Driver
from odradek.raft.voters import Endpoint, KRaftVersion, ReplicaKey, VoterNode, VoterSet
from odradek.storage.config import LogConfig
from odradek.storage.disk.simulated import SimulatedFiles
from tests.metadata.worlds import DIRECTORY, PARTITION, Crash, CrashingFiles, World
from tests.raft.cluster import key

SERVERS = "controller.quorum.bootstrap.servers"
CHECKPOINT = f"{PARTITION}/{FORMATTED.file_name}"


def voter(node_id):
    return VoterNode(key(node_id), (Endpoint("CONTROLLER", f"c{node_id}", 9093),))


VOTERS = VoterSet(map(voter, (1, 2, 3)))
PROPERTIES = new_properties(1, random.Random(1), "cluster", key(1).directory_id)


def formatted(voters=VOTERS, files=None):
    files = files or SimulatedFiles()
    format_directory(files, DIRECTORY, PROPERTIES, voters)
    return files


NOBODY = VoterSet(())


def open_quorum(files, static=NOBODY):
    base = find_base(files, DIRECTORY, "cluster")
    store = base.open_store(files, DIRECTORY, LogConfig(), 0)
    view = store.view(static, base.snapshot_id, base.quorum_changes)
    raft = Raft(key(1), "cluster", view, store.load_election(), rng=random.Random(1), now_ms=0)
    return Driver(raft, store, lambda message: None), store


# Reading what was written


def test_the_voters_are_known_before_the_log_has_a_record():
    files = formatted()
    base = find_base(files, DIRECTORY, "cluster")
    assert (base.snapshot_id, base.end_offset) == (None, 0)
    assert base.quorum_changes == (KRaftVersion(1), VOTERS)
    driver, _ = open_quorum(files)
    history = driver.raft.log.voters
    assert (driver.raft.voters, history.kraft_version, history.are_in_log) == (VOTERS, 1, False)
    assert driver.raft.is_voter


def test_a_power_cut_after_the_format_loses_nothing():
    files = formatted()
    files.crash(random.Random(1))
    assert read_properties(files, DIRECTORY) == PROPERTIES
    assert find_base(files, DIRECTORY, "cluster").quorum_changes == (KRaftVersion(1), VOTERS)
    files.crash(random.Random(2))
    open_quorum(files)


def test_the_first_leader_writes_the_voters_into_the_log():
    """Nodes that were formatted without them learn of them from there."""
    alone = VoterSet([voter(1)])
    files = formatted(alone)
    for _ in range(2):
        driver, store = open_quorum(files)
        driver.tick(0)
        driver.sync(0)
        history = driver.raft.log.voters
        assert driver.raft.is_leader
        assert (history.last, history.kraft_version, history.last_offset) == (alone, 1, 2)
        store.close()
    files.remove(CHECKPOINT)
    assert open_quorum(files)[0].raft.voters == alone


def test_truncation_to_nothing_leaves_what_was_formatted():
    driver, _ = open_quorum(formatted(VoterSet([voter(1)])))
    driver.tick(0)
    driver.raft.log.truncate_to(0)
    assert (driver.raft.voters, driver.raft.log.voters.kraft_version) == (VoterSet([voter(1)]), 1)


def test_snapshots_of_the_log_come_and_go_beside_it():
    files = formatted(VoterSet([voter(1)]))
    world = World(files)
    assert world.log.snapshots.ids == []
    for _ in range(2):
        world.commit(FeatureLevelRecord("f", 1))
        world.maintain()
    assert len(world.log.snapshots.ids) == 2
    assert files.exists(CHECKPOINT)
    changes = find_base(files, DIRECTORY, "cluster").quorum_changes
    assert changes == (KRaftVersion(1), VoterSet([voter(1)]))


def test_damage_to_it_stops_the_start():
    files = formatted()
    data = bytearray(files.read(CHECKPOINT))
    data[-1] ^= 1
    files.create(CHECKPOINT).write_at(0, data)
    with pytest.raises(DamagedData, match="the first voters of the quorum"):
        find_base(files, DIRECTORY, "cluster")


# Crashes


def test_a_crash_half_way_leaves_a_directory_that_can_be_formatted_again():
    files = CrashingFiles()
    formatted(files=files)
    for changes in range(files.changes):
        for then in (VoterSet([voter(1)]), None):
            files = CrashingFiles()
            files.changes_left = changes
            with pytest.raises(Crash):
                formatted(files=files)
            files.changes_left = None
            files.crash(random.Random(changes))
            if read_properties(files, DIRECTORY) is None:
                formatted(then, files)
                expected = (KRaftVersion(1), then) if then else ()
            else:
                expected = (KRaftVersion(1), VOTERS)
            assert find_base(files, DIRECTORY, "cluster").quorum_changes == expected
            assert read_properties(files, DIRECTORY) == PROPERTIES


# What a node does with a directory that is not formatted


def load(files, **settings):
    config = BrokerConfig({name.replace("_", "."): text for name, text in settings.items()})
    return load_or_format(files, DIRECTORY, config, "me", random.Random(1))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"listeners": "PLAINTEXT://:1,CONTROLLER://:9093", "controller_quorum_bootstrap_servers": "me:9093"},
    ],
)
def test_a_node_that_is_alone_formats_itself_and_says_so(settings, caplog):
    files = SimulatedFiles()
    with caplog.at_level(logging.INFO):
        properties = load(files, **settings)
    assert [
        f"only controller of a new cluster, {properties.cluster_id}" in line for line in caplog.messages
    ] == [True]
    assert not files.exists(CHECKPOINT)
    assert load(files, **settings) == properties
    assert load(files, controller_quorum_bootstrap_servers="other:1") == properties, (
        "existing ones start as they are"
    )


@pytest.mark.parametrize("roles", ["broker", "controller", "broker,controller"])
def test_a_configuration_that_names_a_quorum_is_no_cluster_of_its_own(roles):
    files = SimulatedFiles()
    with pytest.raises(NotFormatted) as refusal:
        load(files, process_roles=roles, controller_quorum_bootstrap_servers="me:9093,other:9093")
    for words in (f"{DIRECTORY} is not formatted", "me:9093,other:9093", "odradek format --config FILE"):
        assert words in str(refusal.value)
    assert not files.exists(f"{DIRECTORY}/meta.properties")


def test_anothers_directory_is_refused():
    files = formatted(None)
    with pytest.raises(WrongDirectory, match=r"node\.id=1, but this node is configured with node\.id=2"):
        load(files, node_id="2")


def test_a_log_without_its_properties_gets_no_new_identity():
    files = SimulatedFiles()
    properties = load(files)
    open_quorum(files, VoterSet.of(ReplicaKey(1, properties.directory_id)))
    files.remove(f"{DIRECTORY}/meta.properties")
    with pytest.raises(WrongDirectory, match="has a metadata log"):
        load(files)
