"""Do two logs agree, and where to cut? The core's few numbers against whole logs, compared record by record."""

from random import Random

import pytest

from odradek.raft.log_view import Agreement, Batch, LogView
from odradek.raft.messages import OffsetAndEpoch
from odradek.raft.voters import KRaftVersion, VoterHistory, VoterSet
from tests.raft.cluster import key

VOTERS = VoterSet.of(key(1))


def view(epochs, start_offset=0, snapshot_id=None):
    """The view of a log whose records have these epochs."""
    starts = {}
    for offset, epoch in enumerate(epochs):
        starts.setdefault(epoch, offset)
    end = len(epochs)
    log = LogView(VoterHistory(VOTERS), end_offset=end, synced_offset=end, epochs=list(starts.items()))
    if snapshot_id is not None:
        log.start_at(start_offset, snapshot_id)
    return log


def two_histories(rng):
    """Logs that one quorum could have: an epoch has one leader, which extends the log that it has."""
    logs = [[], []]
    for epoch in range(1, rng.randint(2, 7)):
        leader = rng.randrange(2)
        logs[leader] += [epoch] * rng.randint(1, 3)
        if rng.random() < 0.4:  # the other one follows for a while
            common = common_length(*logs)
            logs[1 - leader] = logs[leader][: rng.randint(common, len(logs[leader]))]
    return logs


def common_length(one, other):
    """Records are the same if offset and epoch are."""
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


@pytest.mark.parametrize("seed", range(300))
def test_a_follower_is_cut_to_where_it_agrees_with_its_leader(seed):
    rng = Random(seed)
    leader_epochs, follower_epochs = two_histories(rng)
    leader_epochs.append(max([0, *leader_epochs, *follower_epochs]) + 1)  # its LEADER_CHANGE
    leader, follower = view(leader_epochs), view(follower_epochs)
    common = common_length(leader_epochs, follower_epochs)
    for _ in range(20):
        agreement = leader.check(follower.end_offset, follower.last_epoch)
        if agreement == Agreement():
            break
        offset = follower.truncation_for(agreement.diverging)
        assert common <= offset < follower.end_offset, (
            "what both have is kept, and something is cut every time"
        )
        follower.truncate_to(offset)
    assert follower.end_offset == common


@pytest.mark.parametrize("seed", range(100))
def test_after_the_log_was_cut_at_its_start_all_that_is_known_is_still_right(seed):
    rng = Random(seed)
    epochs = sorted(rng.randrange(1, 6) for _ in range(rng.randint(3, 14)))
    end = rng.randint(2, len(epochs))
    snapshot_id = OffsetAndEpoch(end, epochs[end - 1])
    start = rng.randint(1, end)
    log = view(epochs, start, snapshot_id)
    for offset in range(len(epochs) + 1):
        last_epoch = epochs[offset - 1] if offset else 0
        agreement = log.check(offset, last_epoch)
        if offset >= start:
            assert agreement == Agreement()
            wrong = log.check(offset, last_epoch + 1)
            assert (
                wrong.diverging is not None or epochs[offset:].count(last_epoch + 1) or wrong == Agreement()
            )
        else:
            assert agreement == Agreement(snapshot_id=snapshot_id)
    installed = LogView(
        VoterHistory(VOTERS), start_offset=end, end_offset=end, synced_offset=end, snapshot_id=snapshot_id
    )
    assert installed.end == snapshot_id
    assert log.check(*installed.end) == Agreement(), "whoever starts from the snapshot can fetch on"
    starts = [(epoch, start + epochs[start:].index(epoch)) for epoch in sorted(set(epochs[start:]))]
    restarted = LogView(
        VoterHistory(VOTERS),
        start_offset=start,
        end_offset=len(epochs),
        synced_offset=len(epochs),
        epochs=starts,
        snapshot_id=snapshot_id,
    )
    for offset in range(len(epochs), end - 1, -1):
        assert restarted.end == OffsetAndEpoch(offset, epochs[offset - 1])
        restarted.truncate_to(max(offset - 1, end))


def test_a_leader_of_other_epochs_sends_a_follower_back_to_its_beginning():
    leader, follower = view([2, 2]), view([1, 1, 1])
    agreement = leader.check(3, 1)
    assert follower.truncation_for(agreement.diverging) == 0
    assert leader.check(0, 0) == Agreement()


def test_an_up_to_date_log_has_a_higher_epoch_or_is_longer():
    log = view([1, 1, 3])
    assert log.is_up_to_date(3, 3) and log.is_up_to_date(3, 9) and log.is_up_to_date(4, 1)
    assert not log.is_up_to_date(3, 2) and not log.is_up_to_date(2, 9)


def test_batches_go_on_where_the_log_ends():
    log = view([1])
    log.append(Batch(1, 3, 2, ((1, KRaftVersion(1)),)))
    assert (log.end, log.synced_offset, log.is_synced) == (OffsetAndEpoch(3, 2), 1, False)
    assert log.voters.kraft_version == 1
    with pytest.raises(AssertionError):
        log.append(Batch(2, 4, 2))
    with pytest.raises(AssertionError):
        log.append(Batch(3, 4, 1))
    log.truncate_to(1)
    assert (log.end, log.is_synced, log.voters.kraft_version) == (OffsetAndEpoch(1, 1), True, 0)
