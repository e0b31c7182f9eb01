"""Bugs in how the product treats damaged logs, to be planted as those in `planted`."""

from tests.simulation.mutation import Mutation, Planted

ROT = [
    Planted(
        "damage-kept",
        "a replica that left the ISR with a damaged log follows with that log",
        15,
        (
            Mutation(
                "services.local_partitions",
                "            if name in self._store.marked:\n",
                "            if False:\n",
            ),
        ),
    ),
    Planted(
        "damage-early",
        "a damaged log is thrown away before the metadata says that nobody needs it",
        63,
        (
            Mutation(
                "services.damaged_logs",
                "    return is_lost and registration.leader not in (NO_LEADER, node_id)\n",
                "    return name in store.marked\n",
            ),
        ),
    ),
]
