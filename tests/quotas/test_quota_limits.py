"""Which limit applies: Kafka's order of eight kinds of entities, for each quota on its own."""

from itertools import combinations

import pytest

from odradek.quotas.keys import MAX_NAME_LENGTH, Entity
from odradek.quotas.limits import Limit, Limits, limits_of_addresses
from odradek.quotas.meters import Meters

USER, CLIENT = ("user", "ada"), ("client-id", "etl")
ANY_USER, ANY_CLIENT = ("user", None), ("client-id", None)
# In Kafka's order, with who shares the limit.
KINDS: list[tuple[Entity, tuple[str | None, str | None]]] = [
    ((CLIENT, USER), ("ada", "etl")),
    ((ANY_CLIENT, USER), ("ada", "etl")),
    ((USER,), ("ada", None)),
    ((CLIENT, ANY_USER), ("ada", "etl")),
    ((ANY_CLIENT, ANY_USER), ("ada", "etl")),
    ((ANY_USER,), ("ada", None)),
    ((CLIENT,), (None, "etl")),
    ((ANY_CLIENT,), (None, "etl")),
]


@pytest.mark.parametrize("chosen", [one for size in range(9) for one in combinations(range(8), size)])
def test_the_first_kind_that_is_set_applies(chosen: tuple[int, ...]) -> None:
    quotas = {KINDS[place][0]: {"rate": float(place + 1)} for place in chosen}
    found = Limits("rate", quotas).find("ada", "etl")
    assert found == (Limit(chosen[0] + 1, KINDS[chosen[0]][1]) if chosen else None)


def test_entities_of_others_do_not_apply() -> None:
    others: dict[Entity, dict[str, float]] = {
        (("client-id", "web"), USER): {"rate": 1.0},
        (CLIENT, ("user", "bob")): {"rate": 2.0},
        (("user", "etl"),): {"rate": 3.0},
        (("client-id", "ada"),): {"rate": 4.0},
        (("ip", "ada"),): {"rate": 5.0},
        (USER,): {"another": 6.0},
    }
    assert Limits("rate", others).find("ada", "etl") is None


def test_each_quota_is_looked_up_on_its_own() -> None:
    quotas: dict[Entity, dict[str, float]] = {(USER,): {"produce": 1.0}, (ANY_USER,): {"fetch": 2.0}}
    assert Limits("produce", quotas).find("ada", "x") == Limit(1.0, ("ada", None))
    assert Limits("fetch", quotas).find("ada", "x") == Limit(2.0, ("ada", None))


def test_addresses() -> None:
    quotas: dict[Entity, dict[str, float]] = {
        (("ip", "10.0.0.1"),): {"rate": 1.0},
        (("ip", None),): {"rate": 2.0, "other": 3.0},
        (USER,): {"rate": 4.0},
    }
    assert limits_of_addresses("rate", quotas) == {"10.0.0.1": 1.0, None: 2.0}


def test_a_limit_is_shared_by_those_of_its_kind_and_by_nobody_else() -> None:
    meters: Meters[list[str]] = Meters("rate", list)
    meters.apply({(ANY_USER,): {"rate": 1.0}})
    first = meters.find("ada", "a")
    assert first is not None and meters.find("ada", "b") is first
    assert meters.find("bob", "a") is not first
    meters.apply({(USER,): {"rate": 5.0}})
    assert meters.find("bob", "a") is None
    again = meters.find("ada", "a")
    assert again is first and first.limit == 5.0, (
        "what a client has used is not forgotten when its limit changes"
    )


def test_client_ids_without_end_take_no_memory_without_end() -> None:
    meters: Meters[list[str]] = Meters("rate", list, most_kept=3)
    meters.apply({(ANY_CLIENT,): {"rate": 1.0}})
    kept = meters.find("ada", "kept")
    for number in range(10):
        meters.find("ada", str(number))
        assert meters.find("ada", "kept") is kept
    assert len(meters) == 3
    meters.find("ada", "x" * 30_000)
    assert max(len(client_id or "") for _, client_id in meters._kept) == MAX_NAME_LENGTH, "nor do long ones"
