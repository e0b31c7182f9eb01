"""Rights that the mirror's user lacks: each refusal says which right to grant, and on which cluster.

docs/MIRROR.md lists them all.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from odradek.admin.failures import Refused
from odradek.errors import ErrorCode

REFUSALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


def explained(error: Refused, right: str) -> str:
    """The refusal, with the right to grant if that is its reason."""
    return f"{error}; grant {right}" if error.code in REFUSALS else str(error)


@contextmanager
def needing(right: str) -> Iterator[None]:
    """Refusals within the block say that it needs this right."""
    try:
        yield
    except Refused as error:
        raise Refused(error.code, explained(error, right)) from None
