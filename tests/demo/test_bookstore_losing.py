"""The broker that dies on the way: which one, when, and how long its clients waited."""

from tools.bookstore.losing import Loss, busiest

LEADERS = {("orders", 0): 1, ("orders", 1): 3, ("books", 0): 2, ("books", 1): 3}


def test_the_busiest_one_dies() -> None:
    assert busiest(LEADERS) == 3
    assert busiest({("orders", 0): 2, ("orders", 1): 1}) == 1, "of several, the lowest id"


def test_it_dies_once_when_half_is_acknowledged() -> None:
    killed: list[int] = []
    loss = Loss(1_000, LEADERS, killed.append, clock=lambda: 0.0)
    for count in (100, 499):
        loss.acknowledged(count)
    assert killed == []
    assert [loss.acknowledged(count) for count in (520, 600, 1_000)] == [True, False, False], (
        "told when it happens"
    )
    assert killed == [3]
    assert (loss.led, loss.partitions, loss.acknowledged_before) == (2, 4, 520)


def test_the_longest_wait_is_that_after_the_kill() -> None:
    times = iter([0.0, 7.0, 7.5, 8.75, 9.0])
    loss = Loss(100, LEADERS, lambda broker: None, clock=lambda: next(times))
    for count in (10, 50, 60, 90, 100):
        loss.acknowledged(count)
    assert loss.longest_wait_s == 1.25
