"""Checkers that look at a cluster after every step of the event loop, at the nodes whose code ran in it.

A node's state changes only while its code runs: a callback in its context, or data that arrives at its place. So the
others need not be looked at again, which would be most of what a run costs (`test_cluster_watch` shows that it is so).
"""

from collections.abc import Sequence
from typing import Protocol

from odradek.host.simulated import VirtualLoop
from tests.cluster.clusters import Cluster


class Checker(Protocol):
    def look(self, node_ids: Sequence[int]) -> None:
        """At these, in the order of their ids; some may be off."""


class Watch:
    def __init__(self, cluster: Cluster, *checkers: Checker) -> None:
        self._checkers = checkers
        self._ids = {machine.name: node_id for node_id, machine in cluster.machines.items()}
        self._ran = cluster.world.loop.ran
        self._reached = cluster.world.network.reached

    def look(self) -> None:
        touched = self.touched()
        if touched:  # a third of all steps are of clients alone
            for checker in self._checkers:
                checker.look(touched)

    def touched(self) -> list[int]:
        """The nodes that ran since this was last asked."""
        names = self._ran
        if not names and not self._reached:
            return []
        if self._reached:
            names.update(self._reached)
            self._reached.clear()
        node_ids = [self._ids[name] for name in names if name in self._ids]
        names.clear()
        if len(node_ids) > 1:
            node_ids.sort()
        return node_ids


class WatchedLoop(VirtualLoop):
    watch: Watch | None = None

    def _run_once(self) -> None:
        super()._run_once()
        if self.watch is not None:
            self.watch.look()
