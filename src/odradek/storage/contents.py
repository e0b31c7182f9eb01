"""What a log is made from when it is created or opened."""

import random
from typing import NamedTuple

from odradek.storage.deletions import Deletions
from odradek.storage.epochs import LeaderEpochs
from odradek.storage.files import Files
from odradek.storage.producers import Producers
from odradek.storage.segment import Segment
from odradek.storage.snapshots import Snapshots


class LogHome(NamedTuple):
    """Where a log lives, and what it shares with the other logs of its store."""

    files: Files
    directory: str
    deletions: Deletions
    rng: random.Random


class Contents(NamedTuple):
    """What is in a log when it is created or opened."""

    segments: list[Segment]
    leader_epochs: LeaderEpochs
    snapshots: Snapshots
    producers: Producers
    log_start_offset: int
    end_offset: int
