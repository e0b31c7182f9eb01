"""The high watermark over random progress, against a dumb oracle that counts offset by offset."""

from random import Random

import pytest

from odradek.raft.core import Raft
from odradek.raft.election import ElectionState
from odradek.raft.log_view import Batch, LogView
from odradek.raft.messages import FetchRequest, Message
from odradek.raft.ready import Appended, Synced
from odradek.raft.roles import Leader
from odradek.raft.voters import VoterHistory, VoterSet
from tests.raft.cluster import CLUSTER_ID, key


def oracle(voters, synced, epochs, epoch, high_watermark):
    """The highest offset that a majority has on disk and whose last entry is of the leader's epoch."""
    for offset in range(len(epochs), high_watermark, -1):
        have = sum(synced.get(voter, 0) >= offset for voter in voters)
        if 2 * have > len(voters) and epochs[offset - 1] == epoch:
            return offset
    return high_watermark


def new_leader(rng, voter_count, epochs):
    """Node 1, elected in the next epoch over a log with these epochs."""
    voters = VoterSet.of(*(key(n) for n in range(1, voter_count + 1)))
    starts = [(epoch, epochs.index(epoch)) for epoch in sorted(set(epochs))]
    end = len(epochs)
    log = LogView(VoterHistory(voters), end_offset=end, synced_offset=end, epochs=starts)
    raft = Raft(key(1), CLUSTER_ID, log, ElectionState(max(epochs, default=0)), rng=rng, now_ms=0)
    raft.tick(raft.role.deadline_ms)
    while not isinstance(raft.role, Leader):
        raft._count_vote(rng.choice(voters.keys), is_granted=True)
    raft._ready()
    epochs.append(raft.epoch)
    raft.step(Appended((Batch(end, end + 1, raft.epoch),)), 0)
    return raft


@pytest.mark.parametrize("seed", range(100))
def test_the_high_watermark_is_what_counting_says(seed):
    rng = Random(seed)
    epochs = sorted(rng.randrange(1, 4) for _ in range(rng.randrange(6)))
    raft = new_leader(rng, rng.choice((1, 2, 3, 4, 5, 7)), epochs)
    voters = [item.node_id for item in raft.voters.keys]
    synced = {1: raft.log.synced_offset}
    expected = oracle(voters, synced, epochs, raft.epoch, 0)
    for step in range(150):
        kind = rng.random()
        if kind < 0.2:
            size = rng.randint(1, 3)
            batch = Batch(len(epochs), len(epochs) + size, raft.epoch)
            epochs += [raft.epoch] * size
            raft.step(Appended((batch,)), 0)
        elif kind < 0.35:
            synced[1] = rng.randint(synced[1], len(epochs))
            raft.step(Synced(synced[1]), 0)
        else:
            node_id = rng.randint(2, 9)  # some are observers
            offset = rng.randint(0, len(epochs))
            epoch = epochs[offset - 1] if offset else 0
            request = FetchRequest(CLUSTER_ID, key(node_id), raft.epoch, offset, epoch, 0, 0, 1)
            raft.step(Message(node_id, 1, step, request), 0)
            synced[node_id] = offset
        expected = oracle(voters, synced, epochs, raft.epoch, expected)
        assert raft.high_watermark == expected
