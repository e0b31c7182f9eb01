"""PRODUCER_FENCED is younger than the requests that it answers: older clients know it as INVALID_PRODUCER_EPOCH."""

from odradek.errors import ErrorCode


def fenced_for(code: int, knows_fenced: bool) -> int:
    if code == ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
