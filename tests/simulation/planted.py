"""Bugs that are planted in a node, to show that its simulation and the scripts find them; see `tests/planting`."""

from tests.planting.changes import (
    afterwards,
    always,
    assigning,
    beforehand,
    never,
    returning,
    swapping,
    without,
)
from tests.planting.planted import Planted, planted

SCENARIOS = "tests/simulation/test_scenarios.py"


def scripted(number: int, bug: str, *changes) -> Planted:
    return planted(f"script-{number}", bug, *changes, script=f"{SCENARIOS}::test_{number}_")


SCRIPTED = [
    scripted(
        16,
        "checkpoints of an earlier log of the same name are kept when a log is created",
        without("storage.store:LogStore.create", "_checkpoints.forget"),
    ),
    scripted(
        17,
        "recovery accepts gaps only in compacted topics",
        beforehand("storage.log.recovery:Recovery._may_jump", "if not self.config.compact: return False"),
    ),
    scripted(
        18,
        "the metadata log is recovered as any other: cut at the first damage",
        beforehand("raft.store:_open_or_create", "opening = opening._replace(strict=False)"),
    ),
    scripted(
        19,
        "a parked fetch keeps waiting for its other partitions after its response was sent",
        without("fetching.waiting:Wait.end", "forget_waiter"),
    ),
    scripted(
        20,
        "DeleteRecords leaves the log start to the next checkpoint",
        without("storage.store:LogStore.delete_records", "_checkpoints.write_starts"),
    ),
    scripted(
        21,
        "a retired segment always gets the name with `.deleted` and no number",
        never("storage.segments.retired:Retired.add", "_segments"),
    ),
    scripted(
        22,
        "an append that lacks a descriptor counts as a failed disk",
        swapping(
            "storage.log.log:Log._write",
            "isinstance(error, CannotOpen)",
            "isinstance(error, CannotOpen) and not self._health.fail()",
        ),
    ),
    scripted(
        23,
        "a failed attempt to create `__consumer_offsets` is never repeated",
        assigning("services.coordination.shards:Shards._create_topic", "self._creating", "self._creating"),
    ),
    scripted(
        24,
        "a request that is handled in steps is handled in one turn",
        always("serving.turns:Turns.advance", "clock"),
    ),
    scripted(
        25,
        "a leader enters its epoch with its first append only",
        without("replication.leader:Leader.__init__", "leader_epochs.begin"),
    ),
]

SIMULATED = [
    planted(
        "acks-all-before-the-sync",
        "acks=all is acknowledged before the sync",
        swapping(
            "api.produce.production:Acknowledgement.wait",
            "leader.when_committed(...)",
            "self._committed(leader, ErrorCode.NONE)",
        ),
    ),
    planted(
        "window-forgotten",
        "the five-batch window of a producer is forgotten at restart: only its newest batch is known",
        afterwards(
            "storage.producers.replay:replay_batch",
            "if header.producer_id >= 0: del producers.by_id[header.producer_id].batches[:-1]",
        ),
    ),
    planted(
        "duplicate-at-a-new-offset",
        "the response to a duplicate has a new offset",
        swapping(
            "storage.log.log:Log.append_as_leader",
            "duplicate_of(...)",
            "duplicate_of(duplicate)._replace(base_offset=self.end_offset)",
        ),
    ),
    planted(
        "offset-commit-before-the-write",
        "an offset commit is acknowledged before it is on disk",
        without("coordinators.runner:Runner._append", "_journal.commit"),
        swapping(
            "coordinators.runner:Runner._append",
            "self._shard.appended(...)",
            "(self._shard.appended(last_offset), self._carry_out(self._shard.committed(last_offset + 1)))",
        ),
    ),
    planted(
        "high-watermark-beyond-the-sync",
        "the high watermark moves beyond the synced offset",
        swapping(
            "replication.leader:Leader.maybe_advance_high_watermark", "log.synced_offset", "log.end_offset"
        ),
    ),
    planted(
        "append-during-the-sync",
        "what is appended while a sync is under way counts as synced with it",
        beforehand(
            "storage.log.log:Log.complete_sync", "ticket.offset = max(ticket.offset, self.end_offset)"
        ),
    ),
    planted(
        "torn-batch-kept",
        "recovery keeps a torn batch",
        swapping("storage.log.scan:SegmentScan.header", "self._size", "self._size + (1 << 20)"),
        swapping("storage.log.recovery:Recovery._sound_batches", "scan.is_intact(...)", "True"),
    ),
    planted(
        "recovery-point-before-the-sync",
        "the recovery point is written before the sync",
        returning("storage.checkpoints:StoreCheckpoints._recovery_point", "log.end_offset"),
    ),
    planted(
        "fetch-answered-twice",
        "a parked fetch gets two responses",
        without("fetching.waiting:Wait.end", "forget_waiter"),
    ),
    planted(
        "deleted-log-opened-again",
        "a deleted topic's log is opened for the new one of its name",
        never("services.partitions.local_partitions:LocalPartitions._open_log", "_doomed"),
        never("services.partitions.local_partitions:LocalPartitions._open_log", "topic_id"),
        without("services.partitions.local_partitions:LocalPartitions.apply", "_remove_doomed"),
    ),
    planted(
        "group-loaded-twice",
        "the groups of a partition are loaded twice, and two coordinators work on them",
        always("services.coordination.shards:Shards.metadata_changed", "_is_behind"),
        swapping(
            "services.coordination.shards:Shards._open_shards",
            "self._shard(...)",
            "self.new_role(self._services.partitions.replicas.get(self._topic.name, index))",
        ),
        never("services.coordination.shards:Shards.new_role", "present"),
    ),
    planted(
        "member-expired-by-a-jump",
        "a member expires when the clock is set",
        swapping(
            "coordinators.runner:Runner._tick",
            "self._shard.tick(...)",
            "self._shard.tick(max(self._host.steady_ms(), self._host.now_ms()))",
        ),
    ),
    planted(
        "swap-without-directory-sync",
        "compaction swaps segments without syncing the directory",
        without("storage.segments.swap:swap_in", "names.sync"),
    ),
]

QUOTAS = [
    planted(
        "quota-of-another-user",
        "the quota of one user applies to all users",
        swapping("quotas.limits:Limits.find", "_kinds(...)", "_kinds('ada', client_id)"),
        script="tests/quotas/test_quota_limits.py::test_a_limit_is_shared",
    ),
    planted(
        "muted-for-ever",
        "a connection over its quota is never read from again",
        assigning("serving.conversation:Conversation._unmute", "self._is_muted", "True"),
        script="tests/broker/test_quota_enforcement.py::test_a_throttled_connection",
    ),
    planted(
        "throttled-but-read",
        "a client over its quota is told so, and read from all the same",
        without("serving.conversation:Conversation._answered", "self._mute"),
        script="tests/broker/test_quota_enforcement.py::test_a_throttled_connection",
    ),
]

PLANTED = [*SCRIPTED, *SIMULATED, *QUOTAS]
