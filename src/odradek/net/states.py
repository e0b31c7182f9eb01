"""The states of a transport, and the moves that are legal in each.

Receiving and sending have a state each, which determines everything else:
the socket is watched for input exactly while `READING`, for output exactly while `BLOCKED`. A move that a table does
not have is a bug of ours, and raises `IllegalMove`.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import TypeVar


class Receiving(StrEnum):
    READING = "reading"
    PAUSED = "paused"  # the receiver wants no more frames for now
    STARVED = "starved"  # a part of a frame has arrived, and there is no memory for the rest
    ENDED = "ended"  # nothing more is read, pending requests still get their responses
    CLOSED = "closed"


class ReceivingMove(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    STARVE = "starve"
    FEED = "feed"  # there may be memory again
    END = "end"
    CLOSE = "close"


class Sending(StrEnum):
    IDLE = "idle"  # nothing waits
    GATHERING = "gathering"  # a flush is due: output added until then is sent together
    BLOCKED = "blocked"  # the peer does not read as fast as we write
    WARMING = "warming"  # a thread brings a piece of a file into the page cache
    ABANDONED = "abandoned"  # closed, while a thread still reads from a file that we keep open for it
    CLOSED = "closed"


class SendingMove(StrEnum):
    GATHER = "gather"
    EMPTY = "empty"  # everything was sent
    BLOCK = "block"
    WARM_UP = "warm up"
    WARMED = "warmed"
    CLOSE = "close"


READING, PAUSED, STARVED = Receiving.READING, Receiving.PAUSED, Receiving.STARVED
IDLE, GATHERING, BLOCKED, WARMING = Sending.IDLE, Sending.GATHERING, Sending.BLOCKED, Sending.WARMING

RECEIVING_MOVES: Mapping[Receiving, Mapping[ReceivingMove, Receiving]] = {
    READING: {
        ReceivingMove.PAUSE: PAUSED,
        ReceivingMove.RESUME: READING,
        ReceivingMove.STARVE: STARVED,
        ReceivingMove.FEED: READING,
        ReceivingMove.END: Receiving.ENDED,
        ReceivingMove.CLOSE: Receiving.CLOSED,
    },
    PAUSED: {
        ReceivingMove.PAUSE: PAUSED,
        ReceivingMove.RESUME: READING,
        ReceivingMove.FEED: PAUSED,
        ReceivingMove.END: Receiving.ENDED,
        ReceivingMove.CLOSE: Receiving.CLOSED,
    },
    STARVED: {
        ReceivingMove.PAUSE: PAUSED,  # on resuming it checks whether there is memory now
        ReceivingMove.RESUME: STARVED,
        ReceivingMove.FEED: READING,
        ReceivingMove.END: Receiving.ENDED,
        ReceivingMove.CLOSE: Receiving.CLOSED,
    },
    Receiving.ENDED: {
        ReceivingMove.PAUSE: Receiving.ENDED,
        ReceivingMove.RESUME: Receiving.ENDED,
        ReceivingMove.FEED: Receiving.ENDED,
        ReceivingMove.END: Receiving.ENDED,
        ReceivingMove.CLOSE: Receiving.CLOSED,
    },
    Receiving.CLOSED: {},
}

SENDING_MOVES: Mapping[Sending, Mapping[SendingMove, Sending]] = {
    IDLE: {
        SendingMove.GATHER: GATHERING,
        SendingMove.CLOSE: Sending.CLOSED,
    },
    GATHERING: {
        SendingMove.GATHER: GATHERING,
        SendingMove.EMPTY: IDLE,
        SendingMove.BLOCK: BLOCKED,
        SendingMove.WARM_UP: WARMING,
        SendingMove.CLOSE: Sending.CLOSED,
    },
    BLOCKED: {
        SendingMove.GATHER: BLOCKED,
        SendingMove.EMPTY: IDLE,
        SendingMove.BLOCK: BLOCKED,
        SendingMove.WARM_UP: WARMING,
        SendingMove.CLOSE: Sending.CLOSED,
    },
    WARMING: {
        SendingMove.GATHER: WARMING,
        SendingMove.WARMED: GATHERING,
        SendingMove.CLOSE: Sending.ABANDONED,
    },
    Sending.ABANDONED: {SendingMove.WARMED: Sending.CLOSED},
    Sending.CLOSED: {},
}


class IllegalMove(AssertionError):
    """A state was asked for a move that its table does not have."""


State = TypeVar("State", bound=Enum)
Move = TypeVar("Move", bound=Enum)


def next_state(moves: Mapping[State, Mapping[Move, State]], state: State, move: Move) -> State:
    try:
        return moves[state][move]
    except KeyError:
        raise IllegalMove(f"{move!r} while {state!r}") from None
