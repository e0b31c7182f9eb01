"""A report on opening the logs of a directory, for one log line of the broker."""

from dataclasses import dataclass

from odradek.wording import count_of


@dataclass(slots=True)
class RecoveryReport:
    """The changes that a start made to the logs."""

    was_clean: bool = False
    logs: int = 0
    strays: int = 0
    deleted: int = 0  # logs of topics that were deleted while the node was down
    segments_scanned: int = 0
    bytes_scanned: int = 0
    logs_cut: int = 0
    bytes_cut: int = 0
    records_cut: int = 0  # of whole batches; a torn one cannot be counted
    segments_removed: int = 0

    def __str__(self) -> str:
        aside = f"; deleted {count_of(self.deleted, 'log')} of deleted topics" if self.deleted else ""
        aside += f"; set {count_of(self.strays, 'stray log')} aside" if self.strays else ""
        if self.was_clean or not self.logs:
            reason = "the last stop was clean" if self.was_clean else "there was nothing to recover"
            return f"opened {count_of(self.logs, 'log')}: {reason}{aside}"
        cut = "cut nothing"
        if self.logs_cut:
            records = f" ({self.records_cut:,} whole records)" if self.records_cut else ""
            cut = f"cut {count_of(self.bytes_cut, 'byte')}{records} off {count_of(self.logs_cut, 'log')}"
        removed = f", removed {count_of(self.segments_removed, 'segment')}" if self.segments_removed else ""
        return (
            f"recovered {count_of(self.logs, 'log')}, because the last stop was not clean: scanned "
            f"{count_of(self.segments_scanned, 'segment')} ({count_of(self.bytes_scanned, 'byte')}), "
            f"{cut}{removed}{aside}"
        )
