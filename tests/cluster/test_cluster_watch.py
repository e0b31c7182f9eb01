"""Tests that what the checkers do not look at has not changed."""

from typing import Any

import pytest

from tests.cluster.clusters import Cluster
from tests.cluster.run import METADATA_EVERY, new_plan
from tests.cluster.watch import Checker, Watch
from tests.simulation.machine import Machine


class Suspicious(Watch):
    """Looks at the others, too: nothing that a checker sees of them may be new."""

    def __init__(self, cluster: Cluster, *checkers: Checker) -> None:
        super().__init__(cluster, *checkers)
        self._machines = cluster.machines
        self._seen: dict[int, Any] = {}
        self.left_out = 0

    def touched(self) -> list[int]:
        touched = super().touched()
        for node_id, machine in self._machines.items():
            state = visible_state(machine)
            if node_id not in touched and machine.node is not None:
                self.left_out += 1
                assert state == self._seen[node_id], f"node {node_id} has changed, and nothing ran on it"
            self._seen[node_id] = state
        return touched


def visible_state(machine: Machine) -> Any:
    """Images and roles are compared by identity: a new one is a change, whatever it says."""
    node = machine.node
    if node is None:
        return None
    quorum = node.metadata.quorum
    replicas = []
    for replica in node.replicas:
        role = replica.leader or replica.follower
        isr = None if replica.leader is None else (replica.leader.isr, replica.leader.maximal_isr)
        log = replica.log
        offsets = (log.log_start_offset, log.synced_offset, log.end_offset)
        replicas.append((id(replica), id(role), role and role.high_watermark, offsets, isr))
    image = id(node.metadata.image)
    return machine.starts, image, quorum.log.end_offset, quorum.is_active, quorum.epoch, replicas


@pytest.mark.parametrize("seed", [1, 3, METADATA_EVERY])
def test_a_node_on_which_nothing_ran_has_not_changed(seed: int) -> None:
    plan = new_plan(seed)
    loop = plan.world.loop
    loop.watch = watch = Suspicious(plan.cluster, *loop.watch._checkers)  # type: ignore[attr-defined]
    plan.world.run(plan.carry_out())
    assert watch.left_out > 10_000
