"""Which replica a leader sends a consumer to."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from odradek.metadata.image import Broker
from odradek.metadata.records import BrokerEndpoint
from odradek.replication.leader import Leader
from odradek.replication.selector import NO_PREFERENCE, preferred_replica
from tests.replication.fakes import NODE, FakeLog, lead

LISTENER = "PLAINTEXT"


def broker(broker_id: int, rack: str | None, *, is_fenced: bool = False, listener: str = LISTENER) -> Broker:
    endpoint = BrokerEndpoint(listener, "host", 9092, 0)
    return Broker(broker_id, 1, UUID(int=broker_id), (endpoint,), rack, is_fenced, False, ())


def leader_with(fetched: dict[int, Any], isr: Iterable[int] = (1, 2, 3, 4)) -> Leader:
    """A leader of ten records. `fetched`: each replica's log end offset, or also its log start and when it fetched."""
    leader = lead(FakeLog(10, 10), replicas=(1, 2, 3, 4), isr=tuple(isr), leader_epoch=0)
    for replica, state in fetched.items():
        end, start, now_ms = state if isinstance(state, tuple) else (state, 0, 0)
        leader.replica_fetched(replica, 1, end, now_ms, start)
    return leader


RACKS = {1: broker(1, "a"), 2: broker(2, "b"), 3: broker(3, "b"), 4: broker(4, "c")}


def choose(leader: Leader, rack: str = "b", offset: int = 5, brokers: dict[int, Broker] | None = None) -> int:
    return preferred_replica(rack, LISTENER, offset, leader, RACKS if brokers is None else brokers)


def test_it_is_the_one_in_the_rack_with_the_most_records() -> None:
    assert choose(leader_with({2: 8, 3: 9, 4: 10})) == 3
    assert choose(leader_with({2: 9, 3: 8, 4: 10})) == 2
    assert choose(leader_with({2: 9, 3: 8, 4: 6}), rack="c") == 4


def test_of_two_with_the_same_end_it_is_the_one_that_caught_up_last_then_the_one_with_the_higher_id() -> None:
    assert choose(leader_with({2: (10, 0, 700), 3: (10, 0, 600)})) == 2
    assert choose(leader_with({2: (10, 0, 600), 3: (10, 0, 600)})) == 3


@pytest.mark.parametrize("rack", ["", "a", "elsewhere"])
def test_the_leader_serves_who_is_in_its_rack_or_in_none_that_has_a_replica(rack: str) -> None:
    assert choose(leader_with({2: 10, 3: 10, 4: 10}), rack=rack) == NO_PREFERENCE


def test_the_leader_is_preferred_in_its_rack_even_if_others_are_there() -> None:
    brokers = {**RACKS, NODE: broker(NODE, "b")}
    assert choose(leader_with({2: 10, 3: 10, 4: 10}), brokers=brokers) == NO_PREFERENCE


def test_a_replica_must_be_in_sync_and_have_the_offset() -> None:
    assert choose(leader_with({2: 10, 3: 10, 4: 10}, isr=(1, 2, 4))) == 2
    assert choose(leader_with({2: 10, 3: 10, 4: 10}, isr=(1, 4))) == NO_PREFERENCE
    assert choose(leader_with({2: 6, 3: 4})) == 2, "at offset 5"
    assert choose(leader_with({2: 4, 3: 4})) == NO_PREFERENCE, "both end before it"
    assert choose(leader_with({2: (10, 6, 0), 3: (9, 5, 0)})) == 3, "the other begins after it"
    assert choose(leader_with({})) == NO_PREFERENCE, "nobody has fetched in this epoch"


def test_the_end_of_a_replica_is_an_offset_that_it_has() -> None:
    """A consumer that waits for new records waits there."""
    assert choose(leader_with({2: 10, 3: 9}), offset=10) == 2


def test_it_must_be_a_broker_that_the_consumer_can_reach() -> None:
    leader = leader_with({2: 10, 3: 10, 4: 10})
    assert choose(leader, brokers={**RACKS, 3: broker(3, "b", is_fenced=True)}) == 2
    assert choose(leader, brokers={**RACKS, 3: broker(3, "b", listener="OTHER")}) == 2
    assert choose(leader, brokers={1: RACKS[1], 2: RACKS[2]}) == 2
    assert choose(leader, brokers={}) == NO_PREFERENCE
