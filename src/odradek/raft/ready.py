"""The input and output of the quorum core: events, and `Ready`, the work that follows from them.

The driver does the work of a `Ready` in the order of its fields, and reports what it did to the log as events.
"""

from typing import NamedTuple

from odradek.raft.control import ControlRecord
from odradek.raft.election import ElectionState
from odradek.raft.log_view import Batch
from odradek.raft.messages import Message, OffsetAndEpoch
from odradek.raft.voters import VoterHistory


class Append(NamedTuple):
    """One batch of a leader: control records, or what was proposed."""

    epoch: int
    records: tuple[bytes, ...] = ()
    control: tuple[ControlRecord, ...] = ()


class AppendFetched(NamedTuple):
    """Whole batches from the leader of this epoch, with their offsets."""

    epoch: int
    records: bytes


class SnapshotPart(NamedTuple):
    """Bytes of a snapshot. After the last part, the snapshot replaces the whole log, which then starts at its end."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes
    is_last: bool


class Ready(NamedTuple):
    """The work of the driver now, in this order. Fetches that must wait for a sync come with a later `Ready`."""

    election: ElectionState | None = None  # write and sync it
    truncate_to: int | None = None  # cut the log to end here
    snapshot: SnapshotPart | None = None  # then report SnapshotWritten, SnapshotInstalled or AppendFailed
    append: Append | AppendFetched | None = None  # then report `Appended` or `AppendFailed`
    sync: bool = False  # sync the log when convenient, then report `Synced`
    messages: tuple[Message, ...] = ()  # send these; any may be lost
    high_watermark: int | None = None  # moved here: everything below is committed


class Appended(NamedTuple):
    """An event: these batches are in the log, though perhaps not on disk."""

    batches: tuple[Batch, ...]


class SnapshotWritten(NamedTuple):
    """An event: the parts before this position are written."""

    snapshot_id: OffsetAndEpoch
    position: int


class SnapshotInstalled(NamedTuple):
    """An event: the log is empty and starts at the end of this snapshot. Both are on disk."""

    snapshot_id: OffsetAndEpoch
    voters: VoterHistory  # of the snapshot


class AppendFailed(NamedTuple):
    """An event: a batch or a part of a snapshot could not be written."""


class Synced(NamedTuple):
    """An event: the log is synced up to here."""

    offset: int


class LogStartMoved(NamedTuple):
    """An event: the log starts here; everything below is in this snapshot."""

    start_offset: int
    snapshot_id: OffsetAndEpoch


class Unreachable(NamedTuple):
    """An event: a request to this node will get no response. `is_gone`: the connection was refused, so its process has
    ended."""

    node_id: int
    correlation_id: int
    is_gone: bool = False


Event = (
    Appended
    | SnapshotWritten
    | SnapshotInstalled
    | AppendFailed
    | Synced
    | LogStartMoved
    | Unreachable
    | Message
)


class QuorumBroken(Exception):
    """Another replica asks for something that would lose committed records. The node must stop; the message says
    why."""
