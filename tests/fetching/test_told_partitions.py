"""Tests of what a session counts as told: only what its client will have kept."""

from uuid import UUID

from odradek.fetching.sessions import Wanted
from odradek.wire.fetch_response import Divergence, FetchedPartition
from odradek.wire.messages.fetch import FetchPartition

RESPONSE = FetchedPartition(0, 0, high_watermark=30, last_stable_offset=30, log_start_offset=0)


def wanted(leader_epoch: int = 4) -> Wanted:
    return Wanted(b"id", UUID(int=1), "t", FetchPartition(0, leader_epoch, 30, 3, 0, 1000))


def test_what_was_told_is_no_news() -> None:
    partition = wanted()
    assert partition.has_news(RESPONSE)
    partition.told(RESPONSE)
    assert not partition.has_news(RESPONSE)
    assert partition.has_news(RESPONSE._replace(high_watermark=31))


def test_a_replica_that_was_told_to_cut_its_log_is_told_the_high_watermark_again() -> None:
    """It took nothing else from that response, and without it would not know what is committed until the next write."""
    partition = wanted()
    partition.told(RESPONSE._replace(divergence=Divergence(3, 30)))
    assert partition.has_news(RESPONSE)


def test_in_another_leader_epoch_everything_is_told_again() -> None:
    """A replica that changes its role throws away responses of the epoch before."""
    partition = wanted()
    partition.told(RESPONSE)
    partition.ask(wanted(leader_epoch=4).asked)
    assert not partition.has_news(RESPONSE)
    partition.ask(wanted(leader_epoch=5).asked)
    assert partition.has_news(RESPONSE)
