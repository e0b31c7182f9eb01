"""The composition root: builds the parts of a broker, owns every task."""

from odradek.broker.main import Broker, run

__all__ = ["Broker", "run"]
