"""The parts that a log is made from when it is created or opened."""

import random
from typing import NamedTuple

from odradek.storage.disk.deletions import Deletions
from odradek.storage.disk.files import Files
from odradek.storage.log.epochs import LeaderEpochs
from odradek.storage.producers.snapshots import Snapshots
from odradek.storage.producers.state import Producers
from odradek.storage.segments.damage import Damages
from odradek.storage.segments.segment import Segment


class LogHome(NamedTuple):
    """The place of a log, and what it shares with the other logs of its store."""

    files: Files
    directory: str
    deletions: Deletions
    rng: random.Random
    damages: Damages


class Contents(NamedTuple):
    """The contents of a log when it is created or opened."""

    segments: list[Segment]
    leader_epochs: LeaderEpochs
    snapshots: Snapshots
    producers: Producers
    log_start_offset: int
    end_offset: int
    missing_until: int = 0  # the log is damaged: it was synced up to here, and ends before
