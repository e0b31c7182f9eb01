"""The follower's end of a fetch session (KIP-227): every partition is named once, then only what changes.

A request names the partitions whose fetch offset, epoch or log start has changed since the last request, and those that
are no longer wanted. If the leader does not know the session (it restarted, or evicted it), or a response was lost, a
full request begins a new one.
"""

from collections.abc import Iterable, Mapping

from odradek.wire.replica_fetch import Key, Position

NO_SESSION = 0
INITIAL_EPOCH = 0
MAX_EPOCH = 2**31 - 1


class FetchSession:
    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self._told: dict[Key, Position] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._told

    def next_request(
        self, wanted: Mapping[Key, Position], looked_at: Iterable[Key]
    ) -> tuple[list[tuple[Key, Position]], list[Key]]:
        """Return what to name in the next request: the changes among the partitions that were looked at since the
        last one, or all partitions if it begins a session; and which of them are no longer wanted.
        """
        if self.id == NO_SESSION:
            looked_at = wanted
        changed: list[tuple[Key, Position]] = []
        forgotten: list[Key] = []
        told = self._told
        for key in looked_at:
            position = wanted.get(key)
            if position is None:
                if told.pop(key, None) is not None:
                    forgotten.append(key)
            elif told.get(key) != position:
                told[key] = position
                changed.append((key, position))
        return changed, forgotten

    def answered(self, session_id: int) -> None:
        """The leader keeps the session under this id; NO_SESSION if it keeps none."""
        self.id = session_id
        if session_id == NO_SESSION:
            self.reset()
        else:
            self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Make the next request a full one."""
        self.id, self.epoch = NO_SESSION, INITIAL_EPOCH
        self._told.clear()
