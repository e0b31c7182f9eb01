"""Bugs in what a cluster does about damaged logs."""

from tests.simulation.mutation import Mutation, Planted

DAMAGE = [
    Planted(
        "recovery-wait",
        "after all in-sync replicas were killed, the first that is back leads at once",
        30,
        (
            Mutation(
                "controller.recovery",
                "    if len(gone) + len(told) < min(min_isr, len(known)) or not told:\n",
                "    if not told:\n",
            ),
        ),
    ),
    Planted(
        "recovery-shortest",
        "after all in-sync replicas were killed, the one with the least of the log leads",
        4,
        (
            Mutation(
                "controller.recovery",
                "    best = max(told, key=order)\n",
                "    best = min(told, key=order)\n",
            ),
        ),
    ),
    Planted(
        "damage-after-stop",
        "a log that was cut short after a clean stop counts as whole",
        44,
        (
            Mutation(
                "broker.node",
                "was_clean = self._store.was_clean and not self._store.has_damaged_logs\n",
                "was_clean = self._store.was_clean\n",
            ),
        ),
    ),
]
