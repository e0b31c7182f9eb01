"""All transports do this alike, on a socket or simulated: their two states move (`net.states`), they are greeted, and
their receiver is told.

A subclass says what a move has to do with the world: a socket is watched while it is `READING` or `BLOCKED`.
"""

import logging
from typing import Any

from odradek.net.states import (
    IDLE,
    PAUSED,
    RECEIVING_MOVES,
    SENDING_MOVES,
    Receiving,
    ReceivingMove,
    Sending,
    SendingMove,
    next_state,
)
from odradek.net.transport import NOBODY, Owner, Receiver


class MovingTransport:
    _owner: Owner[Any]

    def __init__(self, largest_frame: int) -> None:
        """`largest_frame`: its size in bytes, once the connection is greeted."""
        self.receiver: Receiver = NOBODY
        self.receiving: Receiving = PAUSED
        self.sending: Sending = IDLE
        self.is_greeting = False
        self._largest_frame = self._max_frame_size = largest_frame

    # --- receiving ---

    def _move_receiving(self, move: ReceivingMove) -> None:
        self.receiving = next_state(RECEIVING_MOVES, self.receiving, move)

    def pause_reading(self) -> None:
        self._move_receiving(ReceivingMove.PAUSE)

    def resume_reading(self) -> None:
        self._move_receiving(ReceivingMove.RESUME)

    def stop_reading(self) -> None:
        """Stop reading for good: pending requests still get their responses, but no more are read."""
        if self.receiver is NOBODY:
            self.close("this node is stopping", logging.DEBUG)
            return
        self._move_receiving(ReceivingMove.END)
        self.receiver.reading_ended()

    # --- sending ---

    def _move_sending(self, move: SendingMove) -> None:
        self.sending = next_state(SENDING_MOVES, self.sending, move)

    def gather(self) -> None:
        self._move_sending(SendingMove.GATHER)

    # --- life ---

    @property
    def is_busy(self) -> bool:
        return self.receiver.is_busy

    def begin_greeting(self, max_frame_size: int) -> None:
        self.is_greeting = True
        self._max_frame_size = min(max_frame_size, self._largest_frame)

    def end_greeting(self) -> None:
        self.is_greeting = False
        self._max_frame_size = self._largest_frame
        self._owner.greeted(self)

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        raise NotImplementedError
