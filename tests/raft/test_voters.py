"""Tests of who votes: voter sets in the log, effective when appended, changed one voter at a time (KIP-853)."""

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.raft.reconfiguration import AddVoter, RemoveVoter, UpdateVoter
from odradek.raft.voters import Endpoint, KRaftVersion, ReplicaKey, VoterHistory, VoterNode, VoterSet
from tests.raft.cluster import Cluster, key


def ids(raft):
    return [item.node_id for item in raft.voters.keys]


def change(cluster, leader, what):
    return cluster.act(leader, lambda driver: driver.propose_voters(what, cluster.now))


def with_leader(voters=3, observers=1):
    cluster = Cluster(voters, observers, kraft_version=1)
    cluster.elect(1)
    cluster.run(1000)
    return cluster


def test_an_added_voter_counts_from_the_append_on():
    cluster = with_leader()
    cluster.cut(3, 4)
    offset = change(cluster, 1, AddVoter(VoterNode(key(4))))
    cluster.deliver()
    leader = cluster.nodes[1].raft
    assert ids(leader) == ids(cluster.nodes[2].raft) == [1, 2, 3, 4]
    assert leader.high_watermark == offset, "1 and 2 are half of four voters, and no majority"
    cluster.heal()
    cluster.run(3000)
    assert cluster.nodes[cluster.leaders()[0]].raft.high_watermark > offset
    assert all(ids(node.raft) == [1, 2, 3, 4] for node in cluster.nodes.values())


def test_an_added_voter_is_undone_by_truncation():
    cluster = with_leader()
    cluster.cut(1)
    change(cluster, 1, AddVoter(VoterNode(key(4))))
    assert ids(cluster.nodes[1].raft) == [1, 2, 3, 4]
    cluster.elect(2)
    cluster.heal()
    cluster.run(5000)
    assert cluster.nodes[1].role == "follower"
    assert all(ids(node.raft) == [1, 2, 3] for node in cluster.nodes.values())


def test_a_change_survives_a_restart():
    cluster = with_leader()
    change(cluster, 1, AddVoter(VoterNode(key(4))))
    cluster.run(1000)
    for node_id in cluster.nodes:
        cluster.crash(node_id)
    for node_id in cluster.nodes:
        cluster.start(node_id)
        assert ids(cluster.nodes[node_id].raft) == [1, 2, 3, 4]
    cluster.cut(2, 3)
    cluster.run(10_000)
    assert cluster.leaders() == [], "two of four"


def test_a_removed_voter_counts_no_more():
    cluster = with_leader()
    cluster.cut(3)
    offset = change(cluster, 1, RemoveVoter(key(3)))
    cluster.deliver()
    assert cluster.nodes[1].raft.high_watermark == offset + 1
    cluster.run(10_000)
    assert cluster.leaders() == [1], "3 is none of those whose fetches it needs"
    cluster.heal()
    cluster.run(5000)
    assert ids(cluster.nodes[3].raft) == [1, 2] and cluster.nodes[3].role == "follower"
    assert (cluster.leaders(), cluster.nodes[1].raft.epoch) == ([1], 1)


def test_a_leader_that_removes_itself_leads_until_that_is_committed():
    cluster = with_leader()
    offset = change(cluster, 1, RemoveVoter(key(1)))
    assert cluster.nodes[1].role == "leader"
    cluster.deliver()
    assert cluster.nodes[1].raft.high_watermark > offset
    cluster.run(5000)
    (leader,) = cluster.leaders()
    assert leader in (2, 3)
    assert cluster.nodes[1].role == "follower" and ids(cluster.nodes[1].raft) == [2, 3]


def test_a_leader_that_fails_while_it_removes_itself_leads_again_if_nobody_else_can():
    """Its log says that it is no voter, and is longer than that of the only voter which is left."""
    cluster = with_leader(voters=2, observers=0)
    cluster.cut(1)
    offset = change(cluster, 1, RemoveVoter(key(1)))
    cluster.crash(1)
    cluster.start(1)
    cluster.heal()
    cluster.run(10_000)
    assert cluster.leaders() == [2] and ids(cluster.nodes[2].raft) == [2]
    before = max(epoch for epoch in cluster.invariants.leaders if epoch < cluster.nodes[2].raft.epoch)
    assert before > 1 and cluster.invariants.leaders[before] == key(1), "it led until that was committed"
    assert cluster.nodes[1].raft.high_watermark > offset and not cluster.nodes[1].raft.may_stand


def test_endpoints_of_a_voter_may_change():
    cluster = with_leader()
    moved = VoterNode(key(2), (Endpoint("CONTROLLER", "elsewhere", 9093),))
    change(cluster, 1, UpdateVoter(moved))
    cluster.deliver()
    assert cluster.nodes[3].raft.voters.get(2) == moved


@pytest.mark.parametrize(
    ("what", "code"),
    [
        (AddVoter(VoterNode(key(2))), ErrorCode.DUPLICATE_VOTER),
        (AddVoter(VoterNode(key(2, generation=1))), ErrorCode.DUPLICATE_VOTER),
        (AddVoter(VoterNode(key(9))), ErrorCode.REQUEST_TIMED_OUT),
        (RemoveVoter(key(4)), ErrorCode.VOTER_NOT_FOUND),
        (RemoveVoter(key(2, generation=1)), ErrorCode.VOTER_NOT_FOUND),
        (UpdateVoter(VoterNode(key(4))), ErrorCode.VOTER_NOT_FOUND),
    ],
)
def test_a_change_that_is_refused(what, code):
    cluster = with_leader()
    with pytest.raises(KafkaError) as refusal:
        change(cluster, 1, what)
    assert refusal.value.code is code
    assert cluster.nodes[1].raft.log.end_offset == 3


def test_one_change_at_a_time():
    cluster = with_leader(observers=2)
    cluster.cut(2, 3)
    change(cluster, 1, AddVoter(VoterNode(key(4))))
    for second in (AddVoter(VoterNode(key(5))), RemoveVoter(key(2))):
        with pytest.raises(KafkaError) as refusal:
            change(cluster, 1, second)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
    cluster.heal()
    cluster.run(3000)
    change(cluster, cluster.leaders()[0], AddVoter(VoterNode(key(5))))


def test_no_change_before_the_leader_has_committed_in_its_epoch():
    cluster = with_leader()
    cluster.unsynced = {1, 2, 3}
    cluster.elect(2)
    with pytest.raises(KafkaError) as refusal:
        change(cluster, 2, RemoveVoter(key(3)))
    assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_only_the_leader_changes_voters_and_only_from_kraft_version_1_on():
    cluster = with_leader()
    with pytest.raises(KafkaError) as refusal:
        change(cluster, 2, RemoveVoter(key(3)))
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    older = Cluster(voters=3)
    older.elect(1)
    with pytest.raises(KafkaError) as refusal:
        change(older, 1, RemoveVoter(key(3)))
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_an_observer_whose_log_does_not_know_the_leader_finds_it_all_the_same():
    cluster = with_leader(observers=2)
    cluster.cut(5)
    change(cluster, 1, AddVoter(VoterNode(key(4))))
    cluster.run(1000)
    cluster.elect(4)
    cluster.run(3000)
    cluster.cuts = {(4, 5), (5, 4)}
    cluster.run(5000)
    assert cluster.nodes[5].raft.leader_id == 4 and ids(cluster.nodes[5].raft) == [1, 2, 3]
    cluster.heal()
    cluster.run(5000)
    assert cluster.leaders() == [4]
    assert ids(cluster.nodes[5].raft) == [1, 2, 3, 4]


def test_the_only_voter_cannot_be_removed():
    cluster = Cluster(voters=1, kraft_version=1)
    cluster.tick(1)
    with pytest.raises(KafkaError) as refusal:
        change(cluster, 1, RemoveVoter(key(1)))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_a_wiped_disk_does_not_vote_under_its_old_identity():
    cluster = with_leader(observers=0)
    cluster.crash(3)
    cluster.add_node(3, generation=1)
    cluster.cut(1)
    cluster.run(10_000)
    assert cluster.leaders() in ([], [1]), "2 gets no vote from the new 3"
    assert cluster.nodes[2].raft.epoch == 1


def test_a_history_knows_what_was_valid_where():
    first, second = VoterSet.of(key(1)), VoterSet.of(key(1), key(2))
    history = VoterHistory(first)
    history.add(3, KRaftVersion(1))
    history.add(4, second)
    assert history.before(4) == (first, 1) and history.before(5) == (second, 1)
    history.truncate_to(4)
    assert (history.last, history.last_offset, history.kraft_version) == (first, -1, 1)
    history.add(4, second)
    history.add(9, first)
    history.start_at(7)
    assert history.before(7) == (second, 1) and history.last == first


def test_keys_without_a_directory_mean_any():
    assert ReplicaKey(1).names(key(1)) and not key(1).names(ReplicaKey(1))
    assert VoterSet.of(ReplicaKey(1)).includes(key(1)) and not VoterSet.of(key(1)).includes(key(1, 1))


def test_sets_one_voter_apart():
    three = VoterSet.of(key(1), key(2), key(3))
    assert three.is_one_change_from(three.without(2)) and three.without(2).is_one_change_from(three)
    assert not three.is_one_change_from(three.without(2).with_voter(VoterNode(key(4))))
