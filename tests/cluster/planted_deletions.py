"""Planted bugs in how records are deleted: by DeleteRecords, and by their age."""

from tests.simulation.mutation import Mutation, Planted

DELETIONS = [
    Planted(
        "deletion-early",
        "DeleteRecords is answered once the leader has deleted the records",
        5,
        (
            Mutation(
                "replication.leader",
                "            if progress.log_start_offset < lowest and is_alive(replica):\n",
                "            if False:\n",
            ),
        ),
    ),
    Planted(
        "deletion-unsaved",
        "what DeleteRecords and followers delete is in memory alone until the next checkpoint",
        5,
        (
            Mutation(
                "storage.store",
                "                self._start_offsets.write(self._log_start_offsets() | moved)\n",
                "                pass\n",
            ),
        ),
    ),
    Planted(
        "deletion-middle",
        "a follower that starts over in the middle of a batch does not take that batch",
        13,
        (
            Mutation(
                "replication.follower",
                "        if first.base_offset < log.end_offset <= first.last_offset:\n",
                "        if False:\n",
            ),
        ),
    ),
    Planted(
        "deletion-too-far",
        "DeleteRecords deletes the record at its offset, too",
        5,
        (
            Mutation(
                "api.delete_records",
                "    return leader, offset\n",
                "    return leader, offset + (0 < offset < leader.high_watermark)\n",
            ),
        ),
    ),
    Planted(
        "expired-early",
        "retention goes by the time when a segment was begun, not by its newest record",
        4,
        (
            Mutation(
                "storage.log.retention",
                "now_ms - newest_time_ms(segment) > retention_ms",
                "now_ms - segment.created_ms > retention_ms",
            ),
        ),
    ),
]
