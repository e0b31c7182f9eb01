"""Instructions for the operator of a node with a damaged metadata log.

The only voter of a cluster has the only copy of this log: without a backup, its operator can only start with no topics.
A member of a cluster must not do that. Its disk no longer has what it promised the others, so it gives up its vote,
and joins again with an empty directory (docs/CLUSTER.md). To tell a member to start with no topics would lose data, and
the other mistake only costs a command that fails. So a node counts as a member if anything says so: its configuration,
the leader or the vote in its quorum-state, or the last voters that are still readable in its snapshots and its log.
"""

from collections.abc import Iterator

from odradek.errors import KafkaError
from odradek.metadata.properties import MetaProperties
from odradek.metadata.snapshot import SUFFIX, parse_name
from odradek.metadata.snapshot_files import INSTALLING_SUFFIX
from odradek.raft.control import LeaderChange, read_control_records
from odradek.raft.election import (
    NO_NODE,
    QUORUM_STATE_FILE,
    ElectionState,
    QuorumStateCorrupt,
    decode_election_state,
)
from odradek.raft.store import METADATA_PARTITION
from odradek.raft.voters import VoterSet
from odradek.records.batch import BatchHeader
from odradek.storage.disk.files import Files
from odradek.storage.log.scan import SegmentScan
from odradek.storage.segments.segment import LOG_SUFFIX

REFUSED = "The node does not start, because topics could be missing; nothing was removed."
ALONE = (
    "Restore {log} from a backup. Without one, move it away to start with no topics: the logs of the old ones are kept "
    "under names that end with -stray."
)
MEMBER = (
    "The other nodes of cluster {cluster_id} have this log. Never move it away alone: this node would forget what it "
    "has promised them. {first} {directory} away, and let the node join again with an empty one: docs/CLUSTER.md, "
    "'A metadata log is damaged'."
)
REMOVE_VOTE = (
    "Remove its vote ('odradek quorum remove-controller {node_id} -b HOST:PORT' at another controller), move"
)


def advice(
    files: Files, directory: str, properties: MetaProperties, names_a_quorum: bool, is_controller: bool
) -> str:
    """The end of an error message about the metadata log in this data directory."""
    log = f"{directory}/{METADATA_PARTITION}"
    if not names_a_quorum and not knows_others(files, log, properties.node_id):
        return f"{REFUSED} {ALONE.format(log=log)}"
    first = REMOVE_VOTE.format(node_id=properties.node_id) if is_controller else "Move"
    return f"{REFUSED} {MEMBER.format(first=first, directory=directory, cluster_id=properties.cluster_id)}"


def knows_others(files: Files, log: str, node_id: int) -> bool:
    """True if anything readable beside the damage names another node of the quorum."""
    election = _election(files, log)
    named = {election.leader_id, election.voted_id} - {NO_NODE} if election is not None else set()
    return bool((named | _last_voters(files, log)) - {node_id})


def _election(files: Files, log: str) -> ElectionState | None:
    try:
        return decode_election_state(files.read(f"{log}/{QUORUM_STATE_FILE}"))
    except (FileNotFoundError, QuorumStateCorrupt):
        return None


def _last_voters(files: Files, log: str) -> set[int]:
    """The voters that the newest readable record names; a snapshot is as new as its last record."""
    newest, voters = -1, set[int]()
    for entry in files.list(log) if files.exists(log) else ():
        snapshot = parse_name(entry.name.replace(INSTALLING_SUFFIX, SUFFIX))
        if snapshot is None and not entry.name.endswith(LOG_SUFFIX):
            continue
        for header, named in _voters_in(files, f"{log}/{entry.name}", entry.size):
            offset = header.base_offset if snapshot is None else snapshot.end_offset - 1
            if offset >= newest:
                newest, voters = offset, named
    return voters


def _voters_in(files: Files, path: str, size: int) -> Iterator[tuple[BatchHeader, set[int]]]:
    file = files.file(path)
    scan, position = SegmentScan(file, size), 0
    while (start := scan.find_intact(position)) is not None:
        header = scan.header(start)
        assert header is not None, "it is intact"
        if header.is_control:
            for named in _named(file.read_at(start, header.size), header):
                yield header, named
        position = start + header.size
    file.close()


def _named(batch: bytes, header: BatchHeader) -> Iterator[set[int]]:
    try:
        for _, record in read_control_records(batch, header):
            if isinstance(record, LeaderChange):
                yield {voter.node_id for voter in record.voters}
            elif isinstance(record, VoterSet):
                yield {key.node_id for key in record.keys}
    except KafkaError:
        return  # written by a later release
