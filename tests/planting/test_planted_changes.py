"""The changes that bugs are made of."""

import ast
import subprocess
import sys

import pytest

from tests.planting.changes import (
    CannotPlant,
    Change,
    afterwards,
    always,
    assigning,
    beforehand,
    judging,
    never,
    returning,
    swapping,
    without,
)
from tests.planting.due import is_due
from tests.planting.loading import module_of, plant
from tests.planting.suites import BUGS

SOURCE = """
class Till:
    def __init__(self, coins):
        self.coins = coins
        self.log = []

    def pay(self, price, *more, tip=0):
        total = price + sum(more) + tip
        if total > self.coins:
            raise ValueError("too dear")
        self.coins -= total
        self.log.append(total)
        return self.coins

    @property
    def is_empty(self):
        return self.coins == 0

    def notes(self):
        for note in self.log:
            yield note
"""


def till(*changes: Change, coins: int = 10):
    tree = ast.parse(SOURCE)
    for change in changes:
        change.apply(tree)
    names: dict = {}
    exec(compile(tree, "till", "exec"), names)
    return names["Till"](coins)


def test_a_function_may_return_something_else() -> None:
    assert till(returning("m:Till.pay", "price * 2")).pay(3) == 6
    assert till(returning("m:Till.is_empty", "True")).is_empty
    assert list(till(returning("m:Till.notes", "[7]")).notes()) == [7]


def test_statements_that_call_something_may_be_left_out() -> None:
    changed = till(without("m:Till.pay", "log.append"))
    assert changed.pay(3) == 7 and changed.log == []


def test_conditions_are_found_by_the_words_in_them() -> None:
    assert till(never("m:Till.pay", "coins", "total")).pay(11) == -1
    with pytest.raises(ValueError, match="too dear"):
        till(always("m:Till.pay", "coins")).pay(1)
    with pytest.raises(ValueError, match="too dear"):
        till(judging("m:Till.pay", "total", by="price == 2")).pay(2)


def test_expressions_and_values_may_be_others() -> None:
    assert till(swapping("m:Till.pay", "sum(...)", "100"), coins=200).pay(1) == 99
    assert till(swapping("m:Till.pay", "price  +  sum(more)", "0")).pay(1) == 10
    assert till(assigning("m:Till.pay", "total", "1")).pay(5) == 9
    assert till(assigning("m:Till.__init__", "self.coins", "1")).coins == 1


def test_code_may_come_before_and_after() -> None:
    assert till(beforehand("m:Till.pay", "price = 0")).pay(5) == 10
    changed = till(afterwards("m:Till.pay", "self.log.append('paid'); result = -result"))
    assert changed.pay(1, 2, tip=3) == -4 and changed.log == [6, "paid"]


@pytest.mark.parametrize(
    "change",
    [
        returning("m:Till.steal", "0"),
        returning("m:pay", "0"),
        without("m:Till.pay", "log.extend"),
        never("m:Till.pay", "coins", "log"),
        swapping("m:Till.pay", "coins", "0"),
        assigning("m:Till.pay", "coins", "0"),
    ],
)
def test_a_change_that_finds_nothing_to_change_is_refused(change: Change) -> None:
    with pytest.raises(CannotPlant):
        till(change)


def test_a_function_is_found_in_the_module_that_it_was_moved_to() -> None:
    assert module_of(returning("storage.store:LogStore.create", "None")) == "storage.store"
    assert module_of(returning("storage.earlier:LogStore.create", "None")) == "storage.store"
    with pytest.raises(CannotPlant, match="0 other modules"):
        module_of(returning("storage.store:LogStore.no_such_method", "None"))


def test_bugs_are_planted_in_a_fresh_process_only() -> None:
    import odradek.errors  # noqa: F401

    with pytest.raises(CannotPlant, match="imported already"):
        plant([])


def test_a_bug_that_does_not_fit_any_more_is_reported_and_not_taken_for_found() -> None:
    code = (
        "from tests.planting.changes import without\n"
        "from tests.planting.loading import plant\n"
        "plant([without('storage.log.log:Log.truncate_to', 'no_such_call')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "CannotPlant" in done.stderr


def test_bugs_are_due_when_their_module_or_their_simulation_has_changed() -> None:
    in_cluster, scripted = BUGS["cluster/min-isr"], BUGS["node/script-16"]
    for changed, is_cluster_due, is_script_due in [
        ({"src/odradek/replication/leader.py"}, True, False),
        ({"src/odradek/storage/store.py"}, False, True),
        ({"tests/cluster/storm.py"}, True, False),
        ({"tests/cluster/test_reassignment.py"}, False, False),
        ({"tests/simulation/test_scenarios.py"}, False, True),
        ({"tests/planting/hunting.py"}, True, True),
        ({"README.md"}, False, False),
        (None, True, True),
    ]:
        assert is_due(*in_cluster, changed) == is_cluster_due, changed
        assert is_due(*scripted, changed) == is_script_due, changed
