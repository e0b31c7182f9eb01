"""The composition root: builds the parts of a broker, owns every task."""

from odradek.broker.broker import Broker
from odradek.broker.main import run

__all__ = ["Broker", "run"]
