"""Tests of where things of the picture go: nothing overlaps, nothing leaves the picture, whatever is drawn."""

import pytest

from odradek.console.pages.picture import MOSAIC_MOST, squares_of
from odradek.console.picture.layout import (
    CELL,
    CONSUMER,
    DEFAULT_WIDTH,
    MOST_WIDTH,
    TILE_HEIGHT,
    Drawing,
    draw,
    mosaic,
    styles_of,
    tiles,
)
from odradek.console.picture.scene import (
    BrokerScene,
    ConsumerScene,
    GroupScene,
    PartitionScene,
    ReplicaScene,
    Scene,
)
from odradek.console.watch.seen import TopicSeen

WIDTHS = [320, 372, 639, 640, DEFAULT_WIDTH, 1600]


def scene(brokers: int = 3, partitions: int = 3, replicas: int = 3, consumers: int = 3) -> Scene:
    rows = []
    for number in range(partitions):
        places = [(number + at) % brokers + 1 for at in range(min(replicas, brokers))]
        rows.append(
            PartitionScene(
                number,
                places[0],
                tuple(ReplicaScene(one, one == places[0], True, True, 1000) for one in places),
                90,
                100 + number,
            )
        )
    members = tuple(
        ConsumerScene(f"id-{one}", f"consumer-{one}", tuple(range(one, partitions, consumers)))
        for one in range(consumers)
    )
    groups = (
        (GroupScene("group", "Stable", members, dict.fromkeys(range(partitions), 80)),) if members else ()
    )
    servers = tuple(BrokerScene(one, True) for one in range(1, brokers + 1))
    return Scene("orders", servers, tuple(rows), groups)


def boxes(drawing: Drawing) -> list[tuple[int, int, int, int]]:
    """Return the boxes of replicas and consumers: left, top, right, bottom."""
    cells = [(one.x, one.y, one.x + one.width, one.y + CELL) for row in drawing.rows for one in row.cells]
    readers = [(one.x, one.y, one.x + one.width, one.y + CONSUMER) for one in drawing.readers]
    return cells + readers


def overlapping(found: list[tuple[int, int, int, int]]) -> list[object]:
    return [
        (one, other)
        for at, one in enumerate(found)
        for other in found[at + 1 :]
        if one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
    ]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "drawn",
    [scene(), scene(1, 1, 1, 0), scene(30, 12, 3, 5), scene(5, 12, 5, 12), scene(3, 12, 3, 40)],
    ids=["exercise", "alone", "thirty servers", "five servers", "many consumers"],
)
def test_nothing_overlaps_and_nothing_leaves_the_picture(drawn: Scene, width: int) -> None:
    drawing = draw(drawn, width)
    found = boxes(drawing)
    assert overlapping(found) == []
    assert all(
        left >= 0 and right <= drawing.width and bottom <= drawing.height for left, _, right, bottom in found
    )


def test_the_exercise_is_one_screen_with_servers_as_columns() -> None:
    drawing = draw(scene(), DEFAULT_WIDTH)
    assert [one.broker for one in drawing.columns] == [1, 2, 3]
    assert drawing.height <= 400
    for column in drawing.columns:
        inside = [one for row in drawing.rows for one in row.cells if one.replica.broker == column.broker]
        assert len(inside) == 3
        assert all(column.x <= one.x and one.x + one.width <= column.x + column.width for one in inside)


def test_thirty_servers_are_named_by_their_replicas() -> None:
    drawing = draw(scene(30, 12), DEFAULT_WIDTH)
    assert drawing.columns == []
    assert {one.title for one in drawing.rows[0].cells} == {"broker 1", "broker 2", "broker 3"}


@pytest.mark.parametrize("width", [372, DEFAULT_WIDTH])
def test_a_line_goes_from_each_leader_to_its_consumer(width: int) -> None:
    drawing = draw(scene(), width)
    assert [one.label for one in drawing.lines] == [
        f"consumer-{one} reads partition {one}" for one in range(3)
    ]
    for line, row, reader in zip(drawing.lines, drawing.rows, drawing.readers, strict=True):
        (leader,) = [one for one in row.cells if one.replica.is_leader]
        numbers = [int(word) for word in line.path.replace("M", "").replace("L", "").split()]
        assert leader.x < numbers[0] < leader.x + leader.width and numbers[1] == leader.y + CELL
        assert numbers[-2] in (reader.x, reader.x + reader.width)
        assert reader.y < numbers[-1] < reader.y + CONSUMER


def test_no_line_leaves_a_partition_without_a_leader() -> None:
    drawn = scene()
    first = drawn.partitions[0]
    lost = PartitionScene(
        0, None, tuple(ReplicaScene(one.broker, False, False, False) for one in first.replicas)
    )
    drawing = draw(Scene("orders", drawn.brokers, (lost, *drawn.partitions[1:]), drawn.groups), DEFAULT_WIDTH)
    assert drawing.rows[0].is_offline
    assert len(drawing.lines) == 2


def test_bars_are_as_long_as_logs() -> None:
    rows = (
        PartitionScene(
            0, 1, (ReplicaScene(1, True, True, True, 800), ReplicaScene(2, False, False, True, 200)), 50, 100
        ),
        PartitionScene(1, 2, (ReplicaScene(2, True, True, True, 400),), 50, 50),
    )
    drawing = draw(Scene("orders", (BrokerScene(1, True), BrokerScene(2, True)), rows), DEFAULT_WIDTH)
    (leader, follower), (shorter,) = (row.cells for row in drawing.rows)
    assert leader.fill == leader.bar and leader.high == round(leader.bar / 2)
    assert follower.fill == round(follower.bar / 4) and follower.high is None
    assert shorter.fill == shorter.high == round(shorter.bar / 2)


def test_who_stays_keeps_its_colour() -> None:
    names = [("group", f"consumer-{one}") for one in range(1, 4)]
    before = dict(zip(names, styles_of(names), strict=True))
    assert len(set(before.values())) == 3
    for gone in names:
        left = [name for name in names if name != gone]
        assert dict(zip(left, styles_of(left), strict=True)) == {name: before[name] for name in left}


@pytest.mark.parametrize("width", WIDTHS)
def test_tiles_of_thirty_servers(width: int) -> None:
    placed = tiles(30, width)
    found = [(one.x, one.y, one.x + one.width, one.y + TILE_HEIGHT) for one in placed.spots]
    assert len(found) == 30 and overlapping(found) == []
    assert max(right for _, _, right, _ in found) <= width
    assert max(bottom for _, _, _, bottom in found) == placed.height


def test_a_thousand_partitions_fit_on_a_screen() -> None:
    placed = mosaic(1000, DEFAULT_WIDTH)
    assert len({(one.x, one.y) for one in placed.spots}) == 1000
    assert placed.height < 300
    assert max(one.x + one.width for one in placed.spots) <= DEFAULT_WIDTH


def test_widths_that_nobody_has_are_taken_for_the_next() -> None:
    assert draw(scene(), -5).width == 320
    assert draw(scene(), 10**9).width == MOST_WIDTH
    assert tiles(0, 100).spots == []


def test_ten_thousand_partitions_come_in_screens_of_squares() -> None:
    topic = TopicSeen("big", "id", False, (1,) * 10_000, ((1,),) * 10_000, ((1,),) * 10_000)
    for first in (0, 2400, 9996):
        squares, _ = squares_of(topic, first, DEFAULT_WIDTH)
        assert squares[0].partition <= first <= squares[-1].partition
        assert len(squares) <= MOSAIC_MOST
