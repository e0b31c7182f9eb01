"""The states of a conversation (`serving.conversation`), and its legal moves; any other move is a bug of ours."""

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    READY = "ready"  # no frame is held
    HANDLING = "handling"  # frames that just arrived, or held ones
    HOLDING = "holding"  # the rest of them: our share of this turn is used up, or a bound is reached
    GATED = "gated"  # the effect of a request is awaited: later frames are held
    FULL = "full"  # over a bound: frames are held, or left unread, until responses have been sent
    IN_LINE = "in line"  # frames are held until it is our turn
    CLOSED = "closed"


class Move(StrEnum):
    BEGIN = "begin"  # to handle frames
    HOLD = "hold"
    GATE = "gate"
    FILL = "fill"  # be over a bound, with nothing to handle
    LINE_UP = "line up"
    REST = "rest"
    CLOSE = "close"


READY, HANDLING, HOLDING, GATED = State.READY, State.HANDLING, State.HOLDING, State.GATED
FULL, IN_LINE, CLOSED = State.FULL, State.IN_LINE, State.CLOSED
BEGIN, REST = Move.BEGIN, Move.REST

MOVES: Mapping[State, Mapping[Move, State]] = {
    READY: {
        Move.BEGIN: HANDLING,
        Move.FILL: FULL,
        Move.CLOSE: CLOSED,
    },
    HANDLING: {
        Move.HOLD: HOLDING,
        Move.GATE: GATED,
        Move.REST: READY,
        Move.CLOSE: CLOSED,
    },
    HOLDING: {
        Move.GATE: GATED,  # by requests that were gathered before, and are handled last
        Move.FILL: FULL,
        Move.LINE_UP: IN_LINE,
        Move.REST: READY,
        Move.CLOSE: CLOSED,
    },
    GATED: {
        Move.BEGIN: HANDLING,
        Move.CLOSE: CLOSED,
    },
    FULL: {
        Move.LINE_UP: IN_LINE,
        Move.REST: READY,
        Move.CLOSE: CLOSED,
    },
    IN_LINE: {
        Move.BEGIN: HANDLING,
        Move.CLOSE: CLOSED,
    },
    CLOSED: {
        Move.GATE: CLOSED,  # gathered requests are handled, though no client waits for them
    },
}
