"""The offset of each key's latest record, on which compaction bases its decisions.

It is as large as memory allows. Records after the last one that fits are left for the next round.
"""

from collections.abc import Iterable
from hashlib import blake2b

from odradek.records.keys import KeyRow

# Memory per key: the key, its offset and their slots in the dict, when the dict is largest.
MAP_ENTRY_BYTES = 200
MAX_PLAIN_KEY_BYTES = 32


class OffsetMap:
    """A long key is replaced by a hash that no other key can equal."""

    def __init__(self, map_bytes: int, latest_offset: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.latest_offset = latest_offset  # everything up to there has been noted
        self._capacity = max(1, map_bytes // MAP_ENTRY_BYTES)

    @property
    def is_full(self) -> bool:
        return len(self.offsets) >= self._capacity

    def note(self, rows: Iterable[KeyRow], start_offset: int) -> None:
        offsets = self.offsets
        for offset, key, _ in rows:
            if key is not None and offset >= start_offset:
                offsets[key if len(key) <= MAX_PLAIN_KEY_BYTES else shortened(key)] = offset

    def kept(self, rows: Iterable[KeyRow], keep_tombstones: bool) -> list[bool]:
        """Return for each record whether it stays: the latest of its key, or later than anything noted here."""
        find, latest_offset = self.offsets.get, self.latest_offset
        kept = []
        for offset, key, is_tombstone in rows:
            if offset > latest_offset:
                kept.append(True)
            elif key is None or (is_tombstone and not keep_tombstones):
                kept.append(False)
            else:
                kept.append(find(key if len(key) <= MAX_PLAIN_KEY_BYTES else shortened(key), -1) <= offset)
        return kept


def shortened(key: bytes) -> bytes:
    return blake2b(key, digest_size=MAX_PLAIN_KEY_BYTES + 1).digest()
