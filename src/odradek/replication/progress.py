"""The progress of another replica of a partition, according to its fetches in this epoch.

Pure: the time is an argument, from a clock that never jumps.
"""

from odradek.errors import ErrorCode, KafkaError

UNKNOWN_OFFSET = -1
NO_BROKER_EPOCH = -1


class Progress:
    __slots__ = (
        "_goal_ms",
        "_goal_offset",
        "broker_epoch",
        "last_caught_up_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, last_caught_up_ms: int) -> None:
        # Everything below it is on that replica's disk: it asks for an offset only once it has synced what is below.
        # UNKNOWN_OFFSET until it fetches in this epoch. It may fall: a replica that restarts, or truncates, begins
        # again from a lower offset.
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET  # of that replica, according to its last fetch
        # Of the process that sent the last fetch; never falls. A replica that was restarted has a higher one.
        self.broker_epoch = NO_BROKER_EPOCH
        # The latest time at which it had caught up. Never decreases.
        self.last_caught_up_ms = last_caught_up_ms
        # The leader's log end offset at the time of an earlier fetch, kept until the replica reaches it. Then it has
        # everything that the leader had at that time: so a replica that is always a few fetches behind, because much is
        # written, still counts as caught up.
        self._goal_ms = last_caught_up_ms
        self._goal_offset = UNKNOWN_OFFSET

    def __repr__(self) -> str:
        return f"<Progress to {self.log_end_offset} of broker epoch {self.broker_epoch}>"

    def fetched(self, offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int) -> None:
        """A fetch from `offset` arrived. One from an earlier process of that broker is refused: it says nothing about
        the current log."""
        if broker_epoch < self.broker_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"A fetch with broker epoch {broker_epoch} arrived after one with {self.broker_epoch}",
            )
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
            self._goal_ms, self._goal_offset = now_ms, leader_end_offset
        elif offset >= self._goal_offset:
            if self._goal_offset != UNKNOWN_OFFSET:
                self.last_caught_up_ms = max(self.last_caught_up_ms, self._goal_ms)
            self._goal_ms, self._goal_offset = now_ms, leader_end_offset
        self.log_end_offset = offset
        self.broker_epoch = broker_epoch
