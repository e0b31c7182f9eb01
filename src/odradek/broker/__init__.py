"""The composition root: builds the parts of a node, and owns its tasks."""

from odradek.broker.main import Broker, run

__all__ = ["Broker", "run"]
