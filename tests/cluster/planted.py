"""Bugs that are planted in the product, to show that the simulation of clusters would find them.

python -m tests.cluster.planted                 find the first seed that catches each, and print the table
python -m tests.cluster.planted NAME            plant one, and run the simulation from its seed on
python -m tests.cluster.planted NAME FIRST      find the first seed from this one on that catches it
"""

import subprocess
import sys

from tests.cluster.planted_damage import DAMAGE
from tests.cluster.planted_deletions import DELETIONS
from tests.cluster.planted_rot import ROT
from tests.simulation.mutation import Mutation, Planted, plant

MAX_SEEDS = 500


PLANTED = [
    Planted(
        "snapshot",
        "a snapshot has no records of configs",
        0,
        (
            Mutation(
                "metadata.snapshot",
                '    "configs": _write_configs,\n',
                '    "configs": lambda image: iter(()),\n',
            ),
        ),
    ),
    Planted(
        "stale",
        "a node decides though it is not the active controller",
        16,
        (
            Mutation(
                "services.metadata",
                """        if not self.quorum.is_active:
            error = KafkaError""",
                """        if False:
            error = KafkaError""",
            ),
        ),
    ),
    Planted(
        "early",
        "the controller's image is applied before the commit",
        0,
        (
            Mutation(
                "metadata.log",
                "while self._pending and self._pending[0].last_offset < self.high_watermark:",
                "while self._pending:",
            ),
        ),
    ),
    Planted(
        "response",
        "a response is sent before the commit",
        0,
        (
            Mutation(
                "services.quorum_waiters",
                """        if self._led.epoch == epoch and self._led.offset >= offset:
            return
        if not self._log.raft""",
                """        if self._log.newest.offset >= offset:
            return
        if not self._log.raft""",
            ),
        ),
    ),
    Planted(
        "follower",
        "a follower applies all that it has fetched, committed or not",
        0,
        (
            Mutation(
                "metadata.log",
                """        if self.image.offset + 1 < self.high_watermark:
            with self._advising():
                read = self._reader.read(self.image, self.high_watermark)""",
                """        known = self.high_watermark if self.raft.is_leader else self.end_offset
        if self.image.offset + 1 < known:
            with self._advising():
                read = self._reader.read(self.image, known)""",
            ),
        ),
    ),
    Planted(
        "bootstrap",
        "the first controller does not write the records of a new cluster",
        0,
        (
            Mutation(
                "services.metadata",
                "            self._activate(self._append)\n",
                "            pass\n",
            ),
        ),
    ),
    # Replication
    Planted(
        "current-isr",
        "the high watermark is the minimum over the current ISR instead of the maximal one",
        1,
        (
            Mutation(
                "replication.leader",
                "        others = sorted(maximal_isr - {self.node_id})\n",
                "        others = sorted(self.isr - {self.node_id})\n",
            ),
        ),
    ),
    Planted(
        "unsynced",
        "a follower fetches on, and is counted, before its records are on its disk",
        1,
        (
            Mutation(
                "replication.follower",
                "return not self.settings.sync_commit or self.log.synced_offset == self.log.end_offset",
                "return True",
            ),
        ),
    ),
    Planted(
        "early-join",
        "a replica joins the ISR though it has not all that came before the leader's epoch",
        13,
        (
            Mutation(
                "replication.leader",
                "enough = max(self.high_watermark, self.epoch_start_offset)",
                "enough = self.high_watermark",
            ),
        ),
    ),
    Planted(
        "broker-epoch",
        "a replica joins the ISR by fetches of its broker's earlier life",
        1,
        (
            Mutation("services.isr", "            and epoch in (-1, broker.epoch)\n", ""),
            Mutation(
                "controller.requests.alter_partition",
                "return member.broker_epoch in (ANY_EPOCH, broker.epoch)",
                "return True",
            ),
        ),
    ),
    Planted(
        "partition-epoch",
        "the controller takes an ISR that was proposed to an older registration",
        1,
        (
            Mutation(
                "controller.requests.alter_partition",
                "    if wanted.partition_epoch < partition.partition_epoch:\n",
                "    if False:\n",
            ),
        ),
    ),
    Planted(
        "to-high-watermark",
        "a follower cuts its log to the high watermark that it knows",
        1,
        (
            Mutation(
                "replication.follower",
                """        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.end_offset)

    def __repr__""",
                """        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.end_offset)
        if log.segments:
            log.truncate_to(self.high_watermark)

    def __repr__""",
            ),
        ),
    ),
    Planted(
        "divergence",
        "the leader does not compare a follower's last epoch with its own log",
        1,
        (
            Mutation(
                "replication.role",
                "        if epoch < last_fetched_epoch or end_offset < offset:\n",
                "        if False:\n",
            ),
        ),
    ),
    Planted(
        "latest",
        "a new leader answers ListOffsets before it knows its high watermark",
        6,
        (
            Mutation(
                "api.list_offsets",
                "        if self._is_consumer and not leader.knows_high_watermark:\n",
                "        if False:\n",
            ),
        ),
    ),
    Planted(
        "epoch-kept",
        "a leader that was restarted goes on in the epoch of its earlier life",
        3,
        (
            Mutation(
                "services.local_partitions",
                "        if registration.leader == self._node_id and not self._is_registered(self._image):\n",
                "        if False:\n",
            ),
        ),
    ),
    Planted(
        "producer-state",
        "what producers had sent is remembered though it was cut off",
        95,
        (
            Mutation(
                "storage.log.log",
                "self._finish_later(self.leader_epochs.persist, self._rebuild_producers)",
                "self._finish_later(self.leader_epochs.persist)",
            ),
        ),
    ),
    Planted(
        "old-ack",
        "whoever waits for an acknowledgement gets it when the epoch is over",
        3,
        (
            Mutation(
                "replication.leader",
                "        self._offset_waiters.end(error)\n",
                "        self._offset_waiters.reached(self.log.end_offset)\n",
            ),
        ),
    ),
    Planted(
        "elr",
        "where the ISR is empty any replica is elected, eligible or not",
        3,
        (
            Mutation(
                "controller.elections",
                "    eligible = isr or elr\n",
                "    eligible = isr or partition.replicas\n",
            ),
        ),
    ),
    Planted(
        "coordinator",
        "a coordinator goes on answering when its partition has another leader",
        10,
        (
            Mutation(
                "services.shards",
                """            del self._shards[index]
            present.runner.resign("its partition has a new leader epoch")
""",
                """            return
""",
            ),
        ),
    ),
    Planted(
        "min-isr",
        "min.insync.replicas is not looked at",
        1,
        (
            Mutation(
                "replication.leader",
                "self.has_enough_replicas = len(self.isr) >= min(",
                "self.has_enough_replicas = len(self.isr) >= 1 or len(self.isr) >= min(",
            ),
        ),
    ),
    Planted(
        "unclean",
        "leaders are elected uncleanly though the topic does not allow that",
        3,
        (
            Mutation(
                "controller.elections",
                "Election.UNCLEAN if is_unclean else Election.ONLINE",
                "Election.UNCLEAN",
            ),
        ),
    ),
    # Upkeep
    Planted(
        "eager-compaction",
        "compaction goes on beyond what is committed",
        1,
        (
            Mutation(
                "services.compactor",
                "facts_of(replica.log, replica.last_stable_offset, clean_offset)",
                "facts_of(replica.log, replica.log.end_offset, clean_offset)",
            ),
        ),
    ),
    Planted(
        "eager-retention",
        "retention deletes what is not committed",
        4,
        (
            Mutation(
                "services.maintenance",
                "        return replica.high_watermark if replica else 0\n",
                "        return replica.log.end_offset if replica else 0\n",
            ),
        ),
    ),
    Planted(
        "start-over",
        "a follower keeps its records though the leader's log starts after them",
        2,
        (
            Mutation(
                "replication.follower",
                """            self.log.truncate_fully_and_start_at(offset)
            self._move_high_watermark(offset)
""",
                "            pass\n",
            ),
        ),
    ),
    # Groups of KIP-848
    Planted(
        "unreleased",
        "a partition is given to its next owner before the former one has given it up",
        1,
        (
            Mutation(
                "coordinators.consumer.member",
                "            if holder_of(topic, partition) not in (None, member_id)\n",
                "            if False\n",
            ),
        ),
    ),
    # Unclean elections
    Planted(
        "unclean-follower",
        "a follower does not cut what it takes for committed, though its leader was elected uncleanly",
        41,
        (
            Mutation(
                "replication.follower",
                "        log.truncate_to(offset)\n        self.high_watermark = min",
                "        log.truncate_to(max(offset, self.high_watermark))\n        self.high_watermark = min",
            ),
        ),
    ),
    # Reassignment
    Planted(
        "move-early",
        "a reassignment completes before its new replicas are in sync",
        44,
        (
            Mutation(
                "controller.reassignment",
                "    if not in_sync or not set(required) <= set(in_sync):\n",
                "    if not in_sync:\n",
            ),
        ),
    ),
    Planted(
        "move-delete",
        "a replica that will be removed deletes its log before it has left",
        4,
        (
            Mutation(
                "services.local_partitions",
                "            if self._node_id not in registration.replicas:\n",
                """            if self._node_id in registration.removing_replicas or (
                self._node_id not in registration.replicas
            ):
""",
            ),
        ),
    ),
    Planted(
        "move-keep",
        "a replica that has left the partition keeps its log, and its role",
        4,
        (
            Mutation(
                "services.local_partitions",
                "            if self._node_id not in registration.replicas:\n",
                "            if self._node_id not in registration.replicas and self._present(topic, index) is None:\n",
            ),
        ),
    ),
    Planted(
        "move-cancel",
        "cancelling a reassignment puts all original replicas into the ISR, in sync or not",
        12,
        (
            Mutation(
                "controller.reassignment",
                "    isr = [replica for replica in partition.isr if replica in replicas]\n",
                "    isr = list(replicas)\n",
            ),
        ),
    ),
    Planted(
        "move-shrink",
        "cancelling a reassignment takes members out of the ISR that were not being added",
        4,
        (
            Mutation(
                "controller.reassignment",
                "    isr = [replica for replica in partition.isr if replica in replicas]\n",
                "    isr = [replica for replica in partition.isr if replica in replicas][:1]\n",
            ),
        ),
    ),
    # Full disks
    Planted(
        "full-leader",
        "a broker whose disk is full keeps its leaderships",
        19,
        (
            Mutation(
                "controller.brokers",
                "    return change_partitions(image, config, concerns, leave, most) if full else []\n",
                "    return []\n",
            ),
        ),
    ),
    Planted(
        "full-for-ever",
        "a broker whose disk was full does not notice that there is room again",
        1,
        (
            Mutation(
                "storage.disk.room",
                "return self.level is Level.FULL and not self.is_short and now >= self._distrusted_until",
                "return False",
            ),
        ),
    ),
    *DELETIONS,
    *DAMAGE,
    *ROT,
]


def search(planted: Planted, first: int) -> int:
    plant(planted.mutations)
    from tests.cluster.run import METADATA_EVERY, run_seeds
    from tests.simulation.connection import Violation

    # Seeds without data do not find what is wrong with data.
    is_metadata = first % METADATA_EVERY == 0
    seeds = [seed for seed in range(first, first + MAX_SEEDS) if (seed % METADATA_EVERY == 0) == is_metadata]
    for outcome in run_seeds(seeds):
        if outcome.failure is not None and not isinstance(outcome.failure, Violation):
            raise outcome.failure  # of the simulation itself: nothing was caught
        if outcome.failure is not None:
            print(f"{planted.name}: seed {outcome.seed} catches that {planted.bug}: {outcome.failure}")
            return 0
    print(f"{planted.name}: no seed from {first} on catches that {planted.bug}")
    return 1


def main(arguments: list[str]) -> int:
    if not arguments:
        from tests.cluster.run import METADATA_EVERY

        calls = [
            [
                sys.executable,
                "-m",
                "tests.cluster.planted",
                item.name,
                str(min(item.seed % METADATA_EVERY, 1)),
            ]
            for item in PLANTED
        ]
        return max(subprocess.run(call).returncode for call in calls)
    (planted,) = [item for item in PLANTED if item.name == arguments[0]]
    return search(planted, int(arguments[1]) if len(arguments) > 1 else planted.seed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
