"""The batches that sinks have written exactly once, by the ledger of the cluster, and how fast."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from odradek.console.watch.looked import Looked
from odradek.ledger.record import Entry

POINTS_KEPT = 20


@dataclass
class SinkHistory:
    """Batches of a sink that were seen: when each was written, and its rows."""

    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=POINTS_KEPT))

    def note(self, entry: Entry) -> None:
        if not self.batches or self.batches[-1][0] != entry.batch:
            self.batches.append((entry.batch, entry.written_at_ms, entry.rows))

    def rows_per_second(self) -> float | None:
        """Over the batches that were seen. Batches in between count as those beside them."""
        if len(self.batches) < 2:
            return None
        (first, began_ms, _), (last, ended_ms, _) = self.batches[0], self.batches[-1]
        if ended_ms <= began_ms or last <= first:
            return None
        later = [rows for _, _, rows in list(self.batches)[1:]]
        return sum(later) / len(later) * (last - first) * 1000 / (ended_ms - began_ms)


class LedgerWatch:
    def __init__(self) -> None:
        self._looked: Looked[tuple[dict[str, Entry], dict[str, SinkHistory]]] = Looked()
        self._histories: dict[str, SinkHistory] = {}

    def look(
        self, read: Callable[[], Mapping[str, Entry]]
    ) -> tuple[dict[str, Entry], dict[str, SinkHistory]]:
        return self._looked.look(lambda: self._noted(dict(read())))

    def _noted(self, entries: dict[str, Entry]) -> tuple[dict[str, Entry], dict[str, SinkHistory]]:
        self._histories = {sink: self._histories.get(sink, SinkHistory()) for sink in entries}
        for sink, entry in entries.items():
            self._histories[sink].note(entry)
        return entries, self._histories
