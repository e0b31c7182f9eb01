"""The quotas for copying throttled replicas (KIP-73): a broker has one for what it sends as leader, and one for what
it fetches as follower.

While the rate is above the quota, throttled partitions that are not in sync are left out: by the leader of its
responses, by the follower of its requests. What was sent in full is counted afterwards, so one response may go beyond
the quota, and the pause after it makes up for that.

The rate is Kafka's: the bytes of the last windows (`replication.quota.window.num`, each of
`replication.quota.window.size.seconds`), by the time since the first of them began.

Pure: time is an argument, in milliseconds of a clock that never jumps.
"""

from collections import deque

from odradek.config.broker import BrokerConfig
from odradek.config.definition import MAX_LONG


class Window:
    __slots__ = ("began_ms", "byte_count", "last_ms")

    def __init__(self, now_ms: int) -> None:
        self.began_ms = now_ms
        self.last_ms = now_ms  # when something was counted in it
        self.byte_count = 0


class ReplicationQuota:
    def __init__(self, windows: int = 11, window_ms: int = 1000) -> None:
        self.bytes_per_second = MAX_LONG
        self.total_bytes = 0  # since the start
        self._window_ms = window_ms
        self._kept_ms = windows * window_ms
        # The oldest first. One more than the quota names: the first is usually past in part.
        self._windows: deque[Window] = deque(maxlen=windows + 1)

    def record(self, byte_count: int, now_ms: int) -> None:
        self.total_bytes += byte_count
        windows = self._windows
        if not windows or now_ms - windows[-1].began_ms >= self._window_ms:
            windows.append(Window(now_ms))
        windows[-1].byte_count += byte_count
        windows[-1].last_ms = now_ms

    def rate(self, now_ms: int) -> float:
        """Bytes per second. The first window counts as a whole from its beginning."""
        windows = self._windows
        while windows and now_ms - windows[0].last_ms >= self._kept_ms:
            windows.popleft()
        if not windows:
            return 0.0
        elapsed_ms = max(now_ms - windows[0].began_ms, self._window_ms)
        return sum(window.byte_count for window in windows) * 1000 / elapsed_ms

    def is_exceeded(self, now_ms: int) -> bool:
        return self.rate(now_ms) > self.bytes_per_second


def new_quota(config: BrokerConfig) -> ReplicationQuota:
    return ReplicationQuota(
        config["replication.quota.window.num"], config["replication.quota.window.size.seconds"] * 1000
    )
