"""Plans of where replicas go: what they look like on small layouts, and what must hold for any."""

from collections import Counter
from random import Random

import pytest

from odradek.admin.places import Place
from odradek.admin.reassignment_plan import ImpossiblePlan, Layout, Move, Wish, make_plan


def layout_of(
    racks: dict[int, str | None], *replicas: tuple[int, ...], sizes: dict[int, int] | None = None
) -> Layout:
    return Layout(
        racks,
        {Place("t", index): one for index, one in enumerate(replicas)},
        {Place("t", index): size for index, size in (sizes or {}).items()},
    )


def after(layout: Layout, moves: list[Move]) -> dict[Place, tuple[int, ...]]:
    return dict(layout.replicas) | {move.place: move.after for move in moves}


def no_racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def test_what_one_broker_has_spreads_over_three() -> None:
    layout = layout_of(no_racks(1, 2, 3), *[(1,)] * 6)
    moves = make_plan(layout, Wish(layout.replicas, (1, 2, 3), replication_factor=3))
    assert all(sorted(move.after) == [1, 2, 3] and move.removed == () for move in moves)
    assert Counter(move.after[0] for move in moves) == {1: 2, 2: 2, 3: 2}


def test_nothing_moves_where_all_is_well() -> None:
    layout = layout_of(no_racks(1, 2, 3), (1, 2), (2, 3), (3, 1))
    assert make_plan(layout, Wish(layout.replicas, (1, 2, 3), is_even=True)) == []


def test_a_broker_is_drained_and_the_others_keep_what_they_have() -> None:
    layout = layout_of(no_racks(1, 2, 3, 4), (1, 2), (2, 3), (3, 1), (4, 1))
    moves = make_plan(layout, Wish([p for p, r in layout.replicas.items() if 1 in r], (2, 3, 4)))
    assert all(move.removed == (1,) and len(move.added) == 1 for move in moves)
    assert len(moves) == 3
    counts = Counter(one for replicas in after(layout, moves).values() for one in replicas)
    assert counts[1] == 0 and max(counts.values()) - min(counts[one] for one in (2, 3, 4)) <= 1


def test_new_replicas_go_to_racks_without_one() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    layout = layout_of(racks, *[(1,)] * 4, *[(3,)] * 4)
    for move in make_plan(layout, Wish(layout.replicas, racks, replication_factor=2)):
        assert {racks[one] for one in move.after} == {"a", "b"}


def test_a_smaller_factor_drops_replicas_that_share_a_rack() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b"}
    layout = layout_of(racks, (1, 2, 3))
    (move,) = make_plan(layout, Wish(layout.replicas, racks, replication_factor=2))
    assert {racks[one] for one in move.after} == {"a", "b"}


def test_small_partitions_move_first() -> None:
    layout = layout_of(no_racks(1, 2), (1,), (1,), sizes={0: 1000, 1: 10})
    (move,) = make_plan(layout, Wish(layout.replicas, (1, 2), is_even=True))
    assert move == Move(Place("t", 1), (1,), (2,))


def test_load_of_other_partitions_counts() -> None:
    layout = layout_of(no_racks(1, 2, 3), (1,), (2,), (2,))
    (move,) = make_plan(layout, Wish([Place("t", 0)], (1, 2, 3), replication_factor=2))
    assert move.added == (3,)


def test_impossible_plans_say_why() -> None:
    layout = layout_of(no_racks(1, 2), (1,))
    with pytest.raises(ImpossiblePlan, match=r"t-0 cannot have 3 replicas on 2 brokers"):
        make_plan(layout, Wish(layout.replicas, (1, 2), replication_factor=3))
    with pytest.raises(ImpossiblePlan, match="broker 9 cannot get replicas"):
        make_plan(layout, Wish(layout.replicas, (1, 9)))


def random_layout(rng: Random) -> Layout:
    brokers = range(1, rng.randint(2, 9))
    named = rng.random() < 0.5
    racks = {one: rng.choice("abc") if named else None for one in brokers}
    replicas = [tuple(rng.sample(list(brokers), rng.randint(1, min(3, len(brokers))))) for _ in range(30)]
    return layout_of(racks, *replicas, sizes={index: rng.randrange(100) for index in range(30)})


@pytest.mark.parametrize("seed", range(60))
def test_any_plan_is_valid_balanced_and_small(seed: int) -> None:
    rng = Random(seed)
    layout = random_layout(rng)
    brokers = sorted(rng.sample(sorted(layout.racks), rng.randint(1, len(layout.racks))))
    factor = rng.randint(1, len(brokers))
    wish = Wish(layout.replicas, brokers, factor, is_even=rng.random() < 0.5)
    moves = make_plan(layout, wish)
    result = after(layout, moves)
    racks = {layout.racks[one] for one in brokers}
    for place, replicas in result.items():
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= set(brokers)
        if not wish.is_even:  # what may stay, stays
            kept = set(layout.replicas[place]) & set(brokers)
            assert len(kept & set(replicas)) == min(len(kept), factor)
        if None not in racks and len(layout.replicas[place]) == 1 and not wish.is_even:
            assert len({layout.racks[one] for one in replicas}) == min(factor, len(racks))
    counts = Counter(one for replicas in result.values() for one in replicas)
    leaders = Counter(replicas[0] for replicas in result.values())
    if wish.is_even and None in racks:
        assert max(counts.values()) - min(counts[one] for one in brokers) <= 1
    if factor == len(brokers):
        assert max(leaders.values()) - min(leaders[one] for one in brokers) <= 1
    again = Layout(layout.racks, result, layout.sizes)
    assert make_plan(again, wish) == []  # it is what it wants to be
