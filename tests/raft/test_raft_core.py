"""The quorum core: a quorum of one, read as a transcript."""

from uuid import UUID

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.raft.core import Append, Appended, Leader, Raft, Ready, Synced
from odradek.raft.election import ElectionState
from odradek.records.control import LeaderChange, Voter

NODE = Voter(1, UUID(int=0xD1))


def raft(election=None, end_offset=0, last_epoch=-1):
    return Raft(NODE, (NODE,), election, end_offset, last_epoch)


def test_an_only_voter_elects_itself_and_opens_its_epoch():
    node = raft()
    assert node.leader_id is None
    assert node.tick() == Ready(
        election=ElectionState(1, leader_id=1),
        append=Append(1, leader_change=LeaderChange(1, (NODE,), (NODE,))),
    )
    assert (node.leader_id, node.epoch) == (1, 1)
    assert node.tick() == Ready()


def test_nothing_is_committed_before_it_is_synced():
    node = raft()
    node.tick()
    assert node.step(Appended(1)) == Ready()
    assert node.high_watermark == 0
    assert node.step(Synced(1)) == Ready(high_watermark=1)
    assert node.propose([b"a", b"b"]) == Ready(append=Append(1, (b"a", b"b")))
    node.step(Appended(3))
    assert node.high_watermark == 1
    assert node.step(Synced(3)) == Ready(high_watermark=3)


def test_what_earlier_epochs_left_is_committed_only_with_an_entry_of_this_one():
    node = raft(ElectionState(4, leader_id=1), end_offset=10, last_epoch=4)
    node.tick()
    assert node.step(Synced(10)) == Ready()
    assert node.high_watermark == 0
    node.step(Appended(11))
    assert node.step(Synced(11)) == Ready(high_watermark=11)


@pytest.mark.parametrize(
    ("election", "last_epoch", "expected"),
    [
        (None, -1, 1),
        (None, 3, 4),
        (ElectionState(7), 3, 8),
        (ElectionState(2, voted_id=1), 5, 6),
    ],
)
def test_an_epoch_is_never_used_again(election, last_epoch, expected):
    node = raft(election, 10, last_epoch)
    assert node.tick().election.leader_epoch == expected


def test_only_a_leader_takes_proposals():
    with pytest.raises(KafkaError) as refusal:
        raft().propose([b"a"])
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER


def test_a_sync_that_tells_nothing_new_moves_nothing():
    node = raft()
    node.tick()
    node.step(Appended(2))
    node.step(Synced(2))
    assert node.step(Synced(2)) == Ready()
    assert node.high_watermark == 2


@pytest.mark.parametrize(
    ("offsets", "majority"),
    [
        ([5], 5),
        ([5, 3], 3),
        ([5, 3, 1], 3),
        ([1, 9, 9], 9),
        ([0, 0, 7], 0),
        ([4, 3, 2, 1], 2),
        ([5, 4, 3, 2, 1], 3),
    ],
)
def test_a_majority_is_more_than_half(offsets, majority):
    leader = Leader(1, 0, {Voter(node_id): offset for node_id, offset in enumerate(offsets)})
    assert leader.majority_offset() == majority
    assert sum(offset >= majority for offset in offsets) * 2 > len(offsets)
    assert sum(offset > majority for offset in offsets) * 2 <= len(offsets)


def test_more_voters_are_refused_rather_than_ignored():
    with pytest.raises(ValueError, match="several voters"):
        Raft(NODE, (NODE, Voter(2)), None, 0, -1)
