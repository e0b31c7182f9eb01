"""Bugs that are planted in a cluster, to show that its simulation finds them; see `tests/planting`.

Kinds of seeds (`among`) are those of `run.KINDS`.
"""

from tests.planting.changes import (
    afterwards,
    assigning,
    beforehand,
    judging,
    never,
    returning,
    swapping,
    without,
)
from tests.planting.planted import planted

METADATA = [
    planted(
        "snapshot",
        "a snapshot has no records of configs",
        returning("metadata.snapshot:_write_configs", "()"),
        among="metadata",
    ),
    planted(
        "stale",
        "a node decides though it is not the active controller",
        never("services.cluster.metadata:BrokerMetadata.decide_here", "is_active"),
        among="metadata",
    ),
    planted(
        "early",
        "the controller's image is applied before the commit",
        judging("metadata.log:MetadataLog.publish", "last_offset", by="self._pending"),
        among="metadata",
    ),
    planted(
        "response",
        "a response is sent before the commit",
        judging(
            "services.cluster.quorum_waiters:CommitWaiters.committed",
            "_led",
            by="self._log.newest.offset >= offset",
        ),
        among="metadata",
    ),
    planted(
        "follower",
        "a follower applies all that it has fetched, committed or not",
        swapping(
            "metadata.log:MetadataLog.publish",
            "self.high_watermark",
            "(self.high_watermark if self.raft.is_leader else self.end_offset)",
        ),
        among="metadata",
    ),
    planted(
        "bootstrap",
        "the first controller does not write the records of a new cluster",
        without("services.cluster.metadata:BrokerMetadata._became_active", "_activate"),
        among="metadata",
    ),
]

REPLICATION = [
    planted(
        "current-isr",
        "the high watermark is the minimum over the current ISR instead of the maximal one",
        assigning("replication.leader:Leader._count_on", "others", "sorted(self.isr - {self.node_id})"),
    ),
    planted(
        "unsynced",
        "a follower fetches on, and is counted, before its records are on its disk",
        returning("replication.follower:Follower.may_fetch", "True"),
    ),
    planted(
        "early-join",
        "a replica joins the ISR though it has not all that came before the leader's epoch",
        swapping("replication.leader:Leader.joining_replicas", "self.epoch_start_offset", "0"),
    ),
    planted(
        "broker-epoch",
        "a replica joins the ISR by fetches of its broker's earlier life",
        swapping("services.partitions.isr:InSyncReplicas._active", "broker.epoch", "epoch"),
        swapping("controller.requests.alter_partition:_may_join", "broker.epoch", "member.broker_epoch"),
    ),
    planted(
        "partition-epoch",
        "the controller accepts an ISR that was proposed to an older registration",
        swapping(
            "controller.requests.alter_partition:_why_not",
            "wanted.partition_epoch < partition.partition_epoch",
            "False",
        ),
    ),
    planted(
        "to-high-watermark",
        "a follower truncates its log to the high watermark that it knows",
        afterwards(
            "replication.follower:Follower.__init__",
            "if log.segments: log.truncate_to(self.high_watermark)",
        ),
    ),
    planted(
        "divergence",
        "the leader does not compare a follower's last epoch with its own log",
        returning("replication.role:Role.divergence", "None"),
    ),
    planted(
        "latest",
        "a new leader responds to ListOffsets before it knows its high watermark",
        returning("api.list_offsets:Search._check_high_watermark", "None"),
    ),
    planted(
        "epoch-kept",
        "a restarted leader continues in the epoch of its earlier life",
        never("services.partitions.local_partitions:LocalPartitions._give_role", "_is_registered"),
    ),
    planted(
        "producer-state",
        "producers' batches are remembered though they were truncated",
        swapping("storage.log.log:Log.truncate_to", "self._rebuild_producers", "(lambda: None)"),
        script="tests/cluster/test_cluster_histories.py::test_a_leader_whose_log_was_cut",
    ),
    planted(
        "old-ack",
        "a producer that waits for an acknowledgement gets it when the epoch ends",
        swapping(
            "replication.leader:Leader.close",
            "self._offset_waiters.end(...)",
            "self._offset_waiters.reached(self.log.end_offset)",
        ),
    ),
    planted(
        "elr",
        "if the ISR is empty, any replica is elected, eligible or not",
        beforehand("controller.elections:_elect", "elr = partition.replicas"),
    ),
    planted(
        "coordinator",
        "a coordinator keeps responding when its partition has another leader",
        beforehand(
            "services.coordination.shards:Shards.new_role",
            "if replica.topic_partition.topic == self._topic.name:\n"
            "    if replica.topic_partition.partition in self._shards:\n"
            "        return",
        ),
    ),
    planted(
        "min-isr",
        "min.insync.replicas is ignored",
        afterwards("replication.leader:Leader._count_isr", "self.has_enough_replicas = bool(self.isr)"),
    ),
    planted(
        "unclean",
        "leaders are elected uncleanly though the topic does not allow it",
        swapping("controller.elections:rules_of", "Election.ONLINE", "Election.UNCLEAN"),
    ),
    planted(
        "unclean-follower",
        "a follower does not truncate what it regards as committed, though its leader was elected uncleanly",
        swapping(
            "replication.follower:Follower.truncate",
            "log.truncate_to(...)",
            "log.truncate_to(max(offset, self.high_watermark))",
        ),
        script="tests/cluster/test_cluster_histories.py::test_after_an_unclean_election",
    ),
    planted(
        "start-over",
        "a follower keeps its records though the leader's log starts after them",
        without(
            "replication.follower:Follower.start_over", "truncate_fully_and_start_at", "_move_high_watermark"
        ),
    ),
    planted(
        "unreleased",
        "a partition is given to its next owner before the former one has given it up (KIP-848)",
        never("coordinators.consumer.member:_free_part", "holder_of"),
    ),
]

UPKEEP = [
    planted(
        "eager-compaction",
        "compaction continues beyond what is committed",
        swapping(
            "services.upkeep.compactor:Compactor._choose",
            "replica.last_stable_offset",
            "replica.log.end_offset",
        ),
    ),
    planted(
        "eager-retention",
        "retention deletes what is not committed",
        swapping(
            "services.upkeep.maintenance:Maintenance._high_watermark",
            "replica.high_watermark",
            "replica.log.end_offset",
        ),
    ),
    planted(
        "deletion-early",
        "the response to DeleteRecords is sent once the leader has deleted the records",
        returning("replication.leader:Leader.low_watermark", "self.log.log_start_offset"),
        among="deleted",
    ),
    planted(
        "deletion-unsaved",
        "what DeleteRecords and followers delete is in memory alone until the next checkpoint",
        without("storage.store:LogStore.delete_records", "_checkpoints.write_starts"),
        among="deleted",
    ),
    planted(
        "deletion-middle",
        "a follower that starts over in the middle of a batch does not take that batch",
        returning("replication.follower:Follower._maybe_start_before", "None"),
        script="tests/cluster/test_deleted_records.py::test_a_follower_that_was_away_catches_up",
    ),
    planted(
        "deletion-too-far",
        "DeleteRecords deletes the record at its offset, too",
        swapping(
            "api.delete_records:_new_start",
            "(leader, offset)",
            "(leader, offset + (0 < offset < leader.high_watermark))",
        ),
        among="deleted",
    ),
    planted(
        "expired-early",
        "retention goes by the time when a segment was begun, not by its newest record",
        swapping("storage.log.retention:_expired.expired", "newest_time_ms(...)", "segment.created_ms"),
    ),
]

REASSIGNMENT = [
    planted(
        "move-early",
        "a reassignment completes before its new replicas are in sync",
        judging("controller.reassignment:completed", "required", by="not in_sync"),
        among="moves",
    ),
    planted(
        "move-delete",
        "a replica that will be removed deletes its log before it has left",
        judging(
            "services.partitions.local_partitions:LocalPartitions._plan_partitions",
            "replicas",
            by="self._node_id in registration.removing_replicas"
            " or self._node_id not in registration.replicas",
        ),
        among="moves",
    ),
    planted(
        "move-keep",
        "a replica that has left the partition keeps its log, and its role",
        judging(
            "services.partitions.local_partitions:LocalPartitions._plan_partitions",
            "replicas",
            by="self._node_id not in registration.replicas and self._present(topic, index) is None",
        ),
        among="moves",
    ),
    planted(
        "move-cancel",
        "cancelling a reassignment puts all original replicas into the ISR, in sync or not",
        assigning("controller.reassignment:reverted", "isr", "list(replicas)"),
        among="moves",
    ),
    planted(
        "move-shrink",
        "cancelling a reassignment takes members out of the ISR that were not being added",
        assigning(
            "controller.reassignment:reverted",
            "isr",
            "[replica for replica in partition.isr if replica in replicas][:1]",
        ),
        among="moves",
    ),
]

DISKS = [
    planted(
        "full-leader",
        "a broker whose disk is full keeps its leaderships",
        returning("controller.brokers:leave_full", "[]"),
    ),
    planted(
        "full-for-ever",
        "a broker whose disk was full does not notice that there is room again",
        returning("storage.disk.room:Room.wants_probe", "False"),
    ),
    planted(
        "recovery-wait",
        "after all in-sync replicas were killed, the first that is back leads at once",
        judging("controller.recovery:choose_leader", "min_isr", by="not told"),
        among="deleted",  # any kind would do; all seeds up to the first that finds it take half a minute
    ),
    planted(
        "recovery-shortest",
        "after all in-sync replicas were killed, the one with the shortest log leads",
        assigning("controller.recovery:choose_leader", "best", "min(told, key=order)"),
    ),
    planted(
        "damage-after-stop",
        "a log that was cut short after a clean stop counts as whole",
        swapping("broker.node:Node.start", "self._store.has_damaged_logs", "False"),
        script="tests/cluster/test_recovery_elections.py::test_a_log_that_is_damaged_after_a_clean_stop",
    ),
    planted(
        "damage-kept",
        "a replica that left the ISR with a damaged log follows with that log",
        never("services.partitions.local_partitions:LocalPartitions._plan_partitions", "marked"),
        among="rot",
    ),
    planted(
        "damage-early",
        "a damaged log is thrown away before the metadata says that nobody needs it",
        returning("services.partitions.damaged_logs:is_to_be_copied_again", "name in store.marked"),
        script="tests/cluster/test_damaged_replicas.py::test_it_stays_as_it_is_while_no_other",
    ),
]

PLANTED = [*METADATA, *REPLICATION, *UPKEEP, *REASSIGNMENT, *DISKS]
