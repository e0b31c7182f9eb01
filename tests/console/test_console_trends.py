"""Tests of when a lag will be gone, and how fast a sink writes."""

import pytest

from odradek.admin.places import Place
from odradek.console.picture.album import MOST_SCENES, Album
from odradek.console.picture.scene import Scene
from odradek.console.watch.disks import FreeSpace
from odradek.console.watch.lag import MOST_GROUPS, LagHistories, LagHistory, caught_up_in_s
from odradek.console.watch.ledger import SinkHistory
from odradek.console.watch.recent import Recent
from odradek.ledger.record import Entry

FIRST, SECOND = Place("orders", 0), Place("orders", 1)


def test_a_lag_that_shrinks_will_be_gone() -> None:
    assert caught_up_in_s([(0.0, 300), (10.0, 200)]) == 20.0
    assert caught_up_in_s([(0.0, 300), (10.0, 0)]) == 0.0


def test_a_lag_that_grows_or_is_new_has_no_end() -> None:
    assert caught_up_in_s([(0.0, 100), (10.0, 100)]) is None
    assert caught_up_in_s([(0.0, 300), (1.0, 200)]) is None, "a second says little"
    assert caught_up_in_s([]) is None


def test_lags_of_partitions_are_added_while_all_of_them_are_known() -> None:
    history = LagHistory()
    history.note({FIRST: 5}, 0.0)
    history.note({FIRST: 4, SECOND: 10}, 10.0)
    history.note({FIRST: 1, SECOND: 1}, 10.5)  # too soon
    history.note({FIRST: 3, SECOND: 8}, 20.0)
    assert history.total() == [(10.0, 14), (20.0, 11)]
    assert list(history.lags[FIRST]) == [5, 4, 3]
    history.note({FIRST: 2}, 30.0)
    assert history.total() == [(0.0, 5), (10.0, 4), (20.0, 3), (30.0, 2)]


def test_few_histories_are_kept() -> None:
    histories = LagHistories()
    first = histories.note("first", {FIRST: 1}, 0.0)
    for one in range(MOST_GROUPS):
        histories.note(f"group {one}", {}, 0.0)
    assert histories.note("first", {}, 5.0) is not first


def test_rows_a_second_count_batches_that_nobody_saw() -> None:
    history = SinkHistory()
    history.note(Entry(4, "f", rows=100, written_at_ms=0))
    assert history.rows_per_second() is None
    history.note(Entry(4, "f", rows=100, written_at_ms=0))
    history.note(Entry(6, "f", rows=50, written_at_ms=10_000))
    assert history.rows_per_second() == 10.0


def test_an_album_asks_once_however_many_look() -> None:
    album, asked = Album(), []

    def ask(before: Scene | None) -> Scene:
        asked.append(before)
        return Scene("orders", (), ())

    assert album.look("orders", ask) == album.look("orders", ask)
    assert len(asked) == 1
    for one in range(MOST_SCENES):
        album.look(one, ask)
    album.look("orders", ask)
    assert len(asked) == MOST_SCENES + 2


def test_when_a_disk_will_be_full() -> None:
    space = FreeSpace()
    assert space.note(10_000, 0.0) is None, "nobody knows yet"
    assert space.note(9_900, 100.0) is None, "nor after so short a time"
    assert space.note(9_000, 400.0) == 3_600.0
    assert space.note(20_000, 500.0) is None, "somebody made room"


def test_a_disk_that_fills_slowly_has_no_end() -> None:
    space = FreeSpace()
    space.note(10**12, 0.0)
    assert space.note(10**12 - 1, 1_000.0) is None


def test_many_who_look_ask_a_cluster_once() -> None:
    asked = []
    recent = Recent()

    def ask() -> int:
        asked.append(1)
        return len(asked)

    assert [recent.look("topic orders", ask) for _ in range(5)] == [1] * 5
    assert recent.look("topic returns", ask) == 2
    recent.forget()
    assert recent.look("topic orders", ask) == 3


def test_a_failure_is_not_kept() -> None:
    recent = Recent()
    with pytest.raises(ZeroDivisionError):
        recent.look("topic orders", lambda: 1 // 0)
    assert recent.look("topic orders", lambda: 1) == 1
