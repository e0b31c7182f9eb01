"""Bugs that are planted in the quorum, to show that its simulation would find them.

    python -m tests.quorum.planted                 find the first seed that catches each, and print the table
    python -m tests.quorum.planted NAME            plant one, and run the simulation from its seed on
    python -m tests.quorum.planted NAME FIRST      find the first seed from this one on that catches it

Three kinds of bugs need whole nodes (a snapshot that misses records, a stale controller, an image ahead of the commit):
they are planted in the simulation of clusters (`tests/cluster/planted.py`).
"""

import logging
import sys

from tests.simulation.mutation import Mutation
from tests.simulation.planted import Simulated, print_table, run_seeds

SIMULATION = "tests.quorum.run"
SEEDS = 1_000  # within so many every bug has to be caught

PLANTED = [
    Simulated(
        "vote-before-it-is-persisted",
        "messages leave before the vote and the epoch that they speak of are on disk",
        [
            Mutation("raft.driver", "        self._write(ready)\n", ""),
            Mutation(
                "raft.driver",
                "            self._send_filled(message)\n        if",
                "            self._send_filled(message)\n        self._write(ready)\n        if",
            ),
        ],
        seed=0,
    ),
    Simulated(
        "quorum-state-without-a-sync",
        "the quorum-state is written, and not synced",
        [
            Mutation(
                "raft.store",
                "        write_with_spare(self._files, path, encode_election_state(election))",
                "        self._files.create(path).write_at(0, encode_election_state(election))",
            )
        ],
        seed=0,
    ),
    Simulated(
        "epoch-goes-back",
        "a restarted replica takes its epoch from its log alone",
        [
            Mutation(
                "raft.replica",
                "        if election is None or election.leader_epoch < self.log.last_epoch:",
                "        if election is None or election.leader_epoch >= 0:",
            )
        ],
        seed=0,
    ),
    Simulated(
        "vote-for-an-old-log",
        "a vote is granted to a candidate whose log is older",
        [
            Mutation(
                "raft.log_view",
                "        return (last_epoch, end_offset) >= (self.last_epoch, self.end_offset)",
                "        return True",
            )
        ],
        seed=8,
    ),
    Simulated(
        "wiped-disk-votes",
        "a replica votes under the identity that its node had before its disk was wiped",
        [
            Mutation(
                "raft.leadership",
                "        if not self._is_meant_by(request.voter):\n            return self._voted",
                "        if request.voter.node_id != self.node.node_id:\n            return self._voted",
            )
        ],
        seed=9,
    ),
    Simulated(
        "commit-by-counting",
        "an entry of an older epoch is committed once it is on a majority",
        [
            Mutation(
                "raft.core",
                "        if majority_offset > max(role.epoch_start_offset, self.high_watermark):",
                "        if majority_offset > self.high_watermark:",
            )
        ],
        seed=0,
    ),
    Simulated(
        "leader-counts-unsynced",
        "the leader counts its own records before they are on its disk",
        [
            Mutation(
                "raft.core",
                "role.majority_offset(self.voters, self.node, self.log.synced_offset)",
                "role.majority_offset(self.voters, self.node, self.log.end_offset)",
            )
        ],
        seed=0,
    ),
    Simulated(
        "follower-counted-before-its-sync",
        "a follower fetches on, and is counted, before its records are on its disk",
        [
            Mutation(
                "raft.outgoing",
                "        elif self._log.is_synced:\n            server",
                "        else:\n            server",
            )
        ],
        seed=0,
    ),
    Simulated(
        "sync-that-does-nothing",
        "the log is taken to be synced although its file was not",
        [
            Mutation(
                "storage.disk.sync", "        files.sync_many(dirty)", "        files.sync_many(dirty[1:])"
            )
        ],
        seed=0,
    ),
    Simulated(
        "diverging-epoch-ignored",
        "the leader does not compare a follower's last epoch with its own log",
        [
            Mutation(
                "raft.log_view",
                "        if end.epoch != last_epoch or end.offset < offset:",
                "        if offset > self.end_offset:",
            )
        ],
        seed=0,
    ),
    Simulated(
        "truncation-below-the-high-watermark",
        "a follower cuts the whole epoch in which the logs diverge, committed or not",
        [
            Mutation(
                "raft.core",
                "        offset = self.log.truncation_for(diverging)\n        if offset < self.high_watermark:",
                "        offset = self.log.end_of(diverging.epoch - 1).offset\n        if False:",
            )
        ],
        seed=0,
    ),
    Simulated(
        "voters-effective-at-commit",
        "a new voter set decides once it is committed, not from its append on",
        [
            Mutation(
                "raft.replica",
                "        return self.log.voters.last\n",
                "        return self.log.voters.before(max(self.high_watermark, 3))[0]\n",
            )
        ],
        seed=1,
    ),
    Simulated(
        "second-voter-change-too-early",
        "voters are changed again before the last change is committed",
        [
            Mutation(
                "raft.reconfiguration",
                "    if high_watermark <= leader.epoch_start_offset or log.voters.last_offset >= high_watermark:",
                "    if high_watermark <= leader.epoch_start_offset:",
            )
        ],
        seed=1,
    ),
    Simulated(
        "voter-change-before-a-commit",
        "a leader changes the voters before it has committed anything in its epoch",
        [
            Mutation(
                "raft.reconfiguration",
                "    if high_watermark <= leader.epoch_start_offset or log.voters.last_offset >= high_watermark:",
                "    if log.voters.last_offset >= high_watermark:",
            )
        ],
        seed=38,
    ),
    Simulated(
        "removed-leader-never-stands",
        "a leader that fails while it removes itself never stands for election again",
        [
            Mutation(
                "raft.replica",
                "            history.last_offset >= self.high_watermark\n",
                "            False\n",
            )
        ],
        seed=146,
    ),
    Simulated(
        "pre-vote-disturbs",
        "pre-votes are granted although the leader is heard of",
        [
            Mutation(
                "raft.roles",
                "            return is_up_to_date and not self.has_fetched",
                "            return is_up_to_date",
            )
        ],
        seed=3,
    ),
    Simulated(
        "parked-fetch-answered-by-a-resigned-leader",
        "a leader that resigns answers its parked fetches as if it still led",
        [
            Mutation(
                "raft.replica",
                "refusal = self._refuse_fetch(ErrorCode.NOT_LEADER_OR_FOLLOWER)",
                "refusal = FetchResponse(ErrorCode.NONE, before.leader_id, before.epoch, self.high_watermark)",
            )
        ],
        seed=16,
    ),
    Simulated(
        "torn-run-stops-the-start",
        "nothing says that batches were written without a sync between them",
        [Mutation("raft.store", "        self._note_run(len(batches))\n", "")],
        seed=0,
    ),
    Simulated(
        "deletion-undone-leaves-a-hole",
        "segments that come back after a crash are kept, though one between them is gone",
        [Mutation("storage.log.recovery", "            segments = self._without_leftovers(segments)\n", "")],
        seed=562,
    ),
    Simulated(
        "failed-sync-counts",
        "a sync that failed is taken for one that did not",
        [
            Mutation(
                "storage.disk.sync",
                "        if error is not None:\n            self._health.fail()\n        elif ticket",
                "        if ticket",
            )
        ],
        seed=0,
    ),
    Simulated(
        "roll-hides-a-failed-sync",
        "the sync of a roll counts for records whose own sync has failed, which nobody knows yet",
        [
            Mutation(
                "storage.disk.sync",
                "        if self._ticket is None:\n            self.synced",
                "        if True:\n            self.synced",
            )
        ],
        seed=0,
    ),
    Simulated(
        "left-in-memory-by-a-failed-sync",
        "what a start finds is synced, though only writing it again would bring it to disk",
        [
            Mutation(
                "storage.log.recovery",
                "            self._write_again(segment, synced_size)",
                "            pass",
            )
        ],
        seed=0,
    ),
    Simulated(
        "synced-but-not-written-down",
        "nothing says after a kill how far the log was synced, so that damage looks like a torn end",
        [Mutation("raft.store", "        self._synced.advance(self.log.synced_offset)\n", "")],
        seed=1,
    ),
    Simulated(
        "recovery-point-not-believed",
        "damage below the recovery point is cut off if it may be in a run of unsynced batches",
        [
            Mutation(
                "storage.log.recovery",
                "        return offset >= self.recovery_point and (\n            self._is_in_run(offset) or",
                "        return self._is_in_run(offset) or offset >= self.recovery_point and (\n           ",
            )
        ],
        seed=20,
    ),
    Simulated(
        "truncation-leaves-the-synced-offset",
        "a log is cut, and the file beside it still says that what is gone was synced",
        [Mutation("raft.store", "        self._synced.lower(offset)\n", "")],
        seed=38,
    ),
]


def main(arguments):
    """Exits with 0 if the bug was caught."""
    logging.disable(logging.WARNING)
    if not arguments:
        print_table(PLANTED, "tests.quorum.planted")
        return 0
    name, *first = arguments
    (planted,) = [item for item in PLANTED if item.name == name]
    # The seed moves when anything changes the course of a run, so there are others after it.
    seeds = range(int(first[0]), SEEDS) if first else [planted.seed, *range(SEEDS)]
    found = run_seeds(planted, seeds, SIMULATION)
    print(*(found or ("not caught",)))
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
