"""The elements of lists of planted bugs. They import nothing of the product, because they are read before it is."""

from typing import NamedTuple

from tests.planting.changes import Change


class Planted(NamedTuple):
    name: str
    bug: str
    changes: tuple[Change, ...]
    among: str  # the kind of seeds that can catch it, by the simulation's own names; empty: all
    script: str  # the test that catches it, where chance meets it too rarely: a file, and how its tests' names begin


def planted(name: str, bug: str, *changes: Change, among: str = "", script: str = "") -> Planted:
    return Planted(name, bug, changes, among, script)
