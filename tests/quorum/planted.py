"""Bugs that are planted in the quorum, to show that its simulation finds them; see `tests/planting`.

Three kinds of bugs need whole nodes (a snapshot that misses records, a stale controller, an image ahead of the commit):
they are planted in the simulation of clusters (`tests/cluster/planted.py`).
"""

from tests.planting.changes import always, assigning, beforehand, judging, never, returning, swapping, without
from tests.planting.planted import planted

PLANTED = [
    planted(
        "vote-before-it-is-persisted",
        "messages leave before the vote and the epoch that they mention are on disk",
        without("raft.driver:Driver._perform", "self._write"),
        judging(
            "raft.driver:Driver._perform",
            "ready",
            "high_watermark",
            by="(self._write(ready), ready.high_watermark is not None)[1]",
        ),
    ),
    planted(
        "quorum-state-without-a-sync",
        "the quorum-state is written, and not synced",
        swapping(
            "raft.store:QuorumStore.save_election",
            "write_with_spare(...)",
            "self._files.create(path).write_at(0, encode_election_state(election))",
        ),
    ),
    planted(
        "epoch-goes-back",
        "a restarted replica takes its epoch from its log alone",
        beforehand("raft.replica:Replica._first_role", "election = None"),
    ),
    planted(
        "vote-for-an-old-log",
        "a vote is granted to a candidate whose log is older",
        returning("raft.log_view:LogView.is_up_to_date", "True"),
    ),
    planted(
        "wiped-disk-votes",
        "a replica votes under the identity that its node had before its disk was wiped",
        swapping(
            "raft.leadership:Leadership._handle_vote",
            "self._is_meant_by(...)",
            "request.voter.node_id == self.node.node_id",
        ),
    ),
    planted(
        "commit-by-counting",
        "an entry of an older epoch is committed once it is on a majority",
        swapping("raft.core:Raft._maybe_advance", "role.epoch_start_offset", "0"),
    ),
    planted(
        "leader-counts-unsynced",
        "the leader counts its own records before they are on its disk",
        swapping("raft.core:Raft._maybe_advance", "self.log.synced_offset", "self.log.end_offset"),
    ),
    planted(
        "follower-counted-before-its-sync",
        "a follower fetches on, and is counted, before its records are on its disk",
        always("raft.outgoing:Outgoing._wanted", "is_synced"),
    ),
    planted(
        "sync-that-does-nothing",
        "the log is regarded as synced although its file was not",
        beforehand("storage.disk.sync:_attempt", "dirty = dirty[1:]"),
    ),
    planted(
        "diverging-epoch-ignored",
        "the leader does not compare a follower's last epoch with its own log",
        judging("raft.log_view:LogView.check", "end", by="offset > self.end_offset"),
    ),
    planted(
        "truncation-below-the-high-watermark",
        "a follower truncates the whole epoch in which the logs diverge, committed or not",
        assigning("raft.core:Raft._truncate", "offset", "self.log.end_of(diverging.epoch - 1).offset"),
        never("raft.core:Raft._truncate", "high_watermark"),
    ),
    planted(
        "voters-effective-at-commit",
        "a new voter set decides once it is committed, not from its append on",
        returning("raft.replica:Replica.voters", "self.log.voters.before(max(self.high_watermark, 3))[0]"),
    ),
    planted(
        "second-voter-change-too-early",
        "voters are changed again before the last change is committed",
        swapping("raft.reconfiguration:change_voters", "log.voters.last_offset", "-1"),
    ),
    planted(
        "voter-change-before-a-commit",
        "a leader changes the voters before it has committed anything in its epoch",
        swapping("raft.reconfiguration:change_voters", "leader.epoch_start_offset", "-1"),
    ),
    planted(
        "removed-leader-never-stands",
        "a leader that fails while it removes itself never stands for election again",
        returning("raft.replica:Replica.may_stand", "self.is_voter"),
        script="tests/raft/test_voters.py::test_a_leader_that_fails_while_it_removes_itself",
    ),
    planted(
        "pre-vote-disturbs",
        "pre-votes are granted although the leader is alive",
        swapping("raft.roles:Follower.grants", "self.has_fetched", "False"),
    ),
    planted(
        "parked-fetch-answered-by-a-resigned-leader",
        "a leader that resigns responds to its parked fetches as if it still led",
        swapping(
            "raft.replica:Replica._become",
            "self._refuse_fetch(...)",
            "FetchResponse(ErrorCode.NONE, before.leader_id, before.epoch, self.high_watermark)",
        ),
    ),
    planted(
        "torn-run-stops-the-start",
        "it is not recorded that batches were written without a sync between them",
        without("raft.store:QuorumStore.append_fetched", "_note_run"),
        script="tests/raft/test_quorum_store.py::test_of_batches_without_a_sync",
    ),
    planted(
        "deletion-undone-leaves-a-hole",
        "segments that come back after a crash are kept, though one between them is gone",
        without("storage.log.recovery:Recovery._recover_all", "_without_leftovers"),
        script="tests/raft/test_quorum_store.py::test_a_deletion_that_a_crash_has_undone",
    ),
    planted(
        "failed-sync-counts",
        "a failed sync is taken for a successful one",
        beforehand("storage.disk.sync:Durability.complete", "error = None"),
    ),
    planted(
        "roll-hides-a-failed-sync",
        "the sync of a roll counts for records whose own sync has failed, which nobody knows yet",
        always("storage.disk.sync:Durability.reached", "_ticket"),
    ),
    planted(
        "left-in-memory-by-a-failed-sync",
        "what a start finds is synced, though only writing it again would bring it to disk",
        without("storage.log.recovery:Recovery._recover_segment", "_write_again"),
    ),
    planted(
        "synced-but-not-written-down",
        "after a kill it is unknown how far the log was synced, so damage looks like a torn end",
        without("raft.store:QuorumStore._note_synced", "_synced.advance"),
    ),
    planted(
        "recovery-point-not-believed",
        "damage below the recovery point is cut off if it may be in a run of unsynced batches",
        beforehand("storage.log.recovery:Recovery._may_end_at", "if self._is_in_run(offset): return True"),
    ),
    planted(
        "truncation-leaves-the-synced-offset",
        "a log is truncated, and the file beside it still says that what is gone was synced",
        without("raft.store:QuorumStore._lower_to", "_synced.lower"),
    ),
]
