"""The composition root: builds the parts of a node, and owns its tasks.

Not obvious:

- The coordinators' code is imported after the broker has started (`broker.coordinators`): it is half of all
  imports. What only nodes of a cluster, or watched ones, need (`raft.rpc`, `serving.envelope`,
  `services.upkeep.monitoring`, messages between brokers) is imported in the function that first needs it;
  `tests/broker/test_start_imports.py` says what must not be imported at start. Such an import fails if no
  descriptor is left: callers treat that as a peer that cannot be reached, and try again.
"""

from odradek.broker.main import Broker, run

__all__ = ["Broker", "run"]
