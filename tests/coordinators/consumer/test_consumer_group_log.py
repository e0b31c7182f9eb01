"""Tests of what the log says of consumer groups (KIP-848)."""

import logging

import pytest

from tests.coordinators.consumer.consumer_world import Client, World


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [line.partition('": ')[2] for line in caplog.messages]
    caplog.clear()
    return lines


def test_members_join_and_leave(caplog: pytest.LogCaptureFixture) -> None:
    world = World(foo=4)
    one, two = Client(world, "one", "foo"), Client(world, "two", "foo")
    one.join()
    assert said(caplog) == [
        'member "one" joined from host (client "client", consumer protocol, session timeout 45 s)',
        'rebalancing to epoch 1 with 1 member, assigned by uniform, because member "one" joined',
        "epoch 1 is stable: every member has its partitions; the rebalance took 0 ms",
    ]
    world.advance(1_000)
    two.join()
    assert said(caplog) == [
        'member "two" joined from host (client "client", consumer protocol, session timeout 45 s)',
        'rebalancing to epoch 2 with 2 members, assigned by uniform, because member "two" joined',
    ]
    world.advance(2_500)
    one.beat()
    one.acknowledge()
    two.beat()
    two.acknowledge()
    assert said(caplog) == ["epoch 2 is stable: every member has its partitions; the rebalance took 2.5 s"]
    one.beat()
    two.beat()
    assert said(caplog) == []
    one.leave()
    assert said(caplog) == [
        'member "one" left',
        "rebalancing to epoch 3 with 1 member, because a member was removed",
    ]
    two.beat()
    two.leave()
    assert said(caplog)[-2:] == ['member "two" left', "epoch 4 has no members"]


def test_a_member_whose_session_ends(caplog: pytest.LogCaptureFixture) -> None:
    world = World(foo=4)
    Client(world, "one", "foo").join()
    said(caplog)
    world.advance(46_000)
    assert said(caplog) == [
        'member "one" was removed: no heartbeat arrived within its session timeout of 45 s',
        "epoch 2 has no members",
    ]


def test_topics_that_change(caplog: pytest.LogCaptureFixture) -> None:
    world = World(foo=4)
    one = Client(world, "one", "foo")
    one.join()
    said(caplog)
    world.grow_topic("foo", 6)
    one.beat()
    assert said(caplog)[0] == (
        "rebalancing to epoch 2 with 1 member, assigned by uniform, because its topics changed"
    )


def test_a_member_that_does_not_give_up_its_partitions(caplog: pytest.LogCaptureFixture) -> None:
    world = World(foo=4)
    one, two = Client(world, "one", "foo"), Client(world, "two", "foo")
    one.join()
    two.join()
    one.beat()
    said(caplog)
    for _ in range(40):
        world.advance(20_000)
        two.beat()
        one.beat()
        if lines := said(caplog):
            break
    assert "was removed: it did not give up its partitions within its rebalance timeout of" in lines[0]


def test_a_static_member_that_leaves_and_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    world = World(foo=4)
    one = Client(world, "one", "foo", instance_id="machine")
    one.join()
    said(caplog)
    one.leave(-2)
    other = Client(world, "two", "foo", instance_id="machine")
    other.join()
    assert said(caplog)[:2] == [
        'member "one" (instance "machine") left temporarily: it keeps its partitions until its session times out',
        'member "two" (instance "machine") replaced member "one", whose instance came back',
    ]
