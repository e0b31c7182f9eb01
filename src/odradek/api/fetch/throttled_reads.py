"""The reads of one Fetch of a follower from throttled partitions (KIP-73): nothing while the leader's quota is
exceeded.

An in-sync replica is never held back, so that it stays in sync, but what it gets counts as well.

Pure: time is an argument.
"""

from odradek.fetching.sessions import Wanted
from odradek.replication.leader import Leader
from odradek.replication.quota import ReplicationQuota
from odradek.replication.source import Fetched


class ThrottledReads:
    def __init__(self, quota: ReplicationQuota, replica_id: int) -> None:
        self._quota = quota
        self._replica_id = replica_id
        self._read: dict[Wanted, int] = {}  # bytes, when each was last looked at

    def within_quota(self, leader: Leader, wanted: Wanted, read: Fetched, now_ms: int) -> Fetched:
        """Return the part of this that may be sent."""
        if leader.topic_partition.partition not in leader.settings.throttled_as_leader:
            return read
        if self._replica_id not in leader.isr and self._quota.is_exceeded(now_ms):
            read = read._replace(records=None, length=0)
        self._read[wanted] = read.length
        return read

    def sent(self, now_ms: int) -> None:
        self._quota.record(sum(self._read.values()), now_ms)
