"""The settings of a topic as its logs use them, with Apache Kafka's defaults and names."""

from dataclasses import dataclass

DAY_MS = 24 * 60 * 60 * 1000
NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's settings. -1 in a retention setting means no limit."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    compact: bool = False
    delete: bool = True
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = (1 << 20) + 12
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    file_delete_delay_ms: int = 60_000

    @property
    def max_segment_ms(self) -> int:
        """The active segment cannot be compacted, so a compaction lag also makes logs roll."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms
