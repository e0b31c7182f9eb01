"""Epochs that are used up soon: after a few transactions, instead of 32,766, a producer gets a new id."""

from collections.abc import Iterator
from contextlib import contextmanager

from odradek.coordinators.transactions import transaction

FEW = 6
FEW_EVERY = 3  # seeds


def has_few(seed: int) -> bool:
    return seed % FEW_EVERY == 1


@contextmanager
def epochs_of(seed: int) -> Iterator[None]:
    """The largest epoch in this seed, for all coordinators."""
    usual = transaction.MAX_EPOCH
    if has_few(seed):
        _set_max_epoch(FEW)
    try:
        yield
    finally:
        _set_max_epoch(usual)


def _set_max_epoch(epoch: int) -> None:
    transaction.MAX_EPOCH, transaction.LAST_EPOCH_OF_A_PRODUCER = epoch, epoch - 1


def is_used_up(epoch: int) -> bool:
    """After a transaction in this one there is none left."""
    return epoch >= transaction.LAST_EPOCH_OF_A_PRODUCER
