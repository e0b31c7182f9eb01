"""The simulations that have to find planted bugs, each with its list."""

from typing import NamedTuple

from tests.cluster.planted import PLANTED as IN_CLUSTERS
from tests.planting.planted import Planted
from tests.quorum.planted import PLANTED as IN_THE_QUORUM
from tests.simulation.planted import PLANTED as IN_A_NODE
from tests.transactions.planted import PLANTED as IN_TRANSACTIONS


class Suite(NamedTuple):
    name: str
    planted: list[Planted]
    folders: tuple[
        str, ...
    ]  # the simulation: its own folder first, then folders and files that it is built on


SUITES = [
    Suite("node", IN_A_NODE, ("tests/simulation", "tests/cluster/clusters.py", "tests/cluster/router.py")),
    Suite("quorum", IN_THE_QUORUM, ("tests/quorum",)),
    Suite("cluster", IN_CLUSTERS, ("tests/cluster", "tests/simulation")),
    Suite("transactions", IN_TRANSACTIONS, ("tests/transactions", "tests/cluster", "tests/simulation")),
]
BUGS = {f"{suite.name}/{bug.name}": (suite, bug) for suite in SUITES for bug in suite.planted}
