"""The control records of the quorum, in Kafka's schemas: LEADER_CHANGE, KRAFT_VERSION and KRAFT_VOTERS.

A leader opens its epoch with a LEADER_CHANGE. The other two types say who the voters are. Readers of metadata skip
control records. A control batch may have several records.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from odradek.errors import ProtocolError
from odradek.raft.voters import Endpoint, KRaftVersion, ReplicaKey, VoterNode, VoterSet
from odradek.records.batch import BatchHeader, Buffer
from odradek.records.control import ControlType, decode_control_key, encode_control_key
from odradek.records.record import Record, build_batch, decode_batch, invalid
from odradek.wire.codec import Message, encode, read_message
from odradek.wire.messages import k_raft_version_record, leader_change_message, voters_record

VERSION = 0  # of each record, the only one that Kafka writes; LEADER_CHANGE has a version 1, which Kafka cannot read


class LeaderChange(NamedTuple):
    """`granting_voters` elected `leader_id`. Only their node ids are written."""

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting_voters: tuple[ReplicaKey, ...]


ControlRecord = LeaderChange | KRaftVersion | VoterSet


def build_control_records(
    records: Sequence[ControlRecord], *, timestamp: int, base_offset: int, leader_epoch: int
) -> bytearray:
    """One batch of these records."""
    encoded = []
    for delta, record in enumerate(records):
        control_type, value = encode_control(record)
        encoded.append(Record(base_offset + delta, timestamp, encode_control_key(control_type), value))
    return build_batch(encoded, control=True, leader_epoch=leader_epoch)


def read_control_records(batch: Buffer, header: BatchHeader) -> Iterator[tuple[int, ControlRecord]]:
    """The offsets and contents of a control batch's records; other types of control records are skipped."""
    for record in decode_batch(batch, header):
        control_type = decode_control_key(record.key)
        if control_type in _MESSAGES:
            if record.value is None:
                raise invalid("A control record of the quorum without a value")
            yield record.offset, decode_control(control_type, record.value)


def encode_control(record: ControlRecord) -> tuple[ControlType, bytes]:
    """The type and the value of a control record."""
    control_type, message = _to_message(record)
    return control_type, bytes(encode(message, VERSION))


def _to_message(record: ControlRecord) -> tuple[ControlType, Message]:
    if isinstance(record, LeaderChange):
        return ControlType.LEADER_CHANGE, leader_change_message.LeaderChangeMessage(
            VERSION,
            record.leader_id,
            [leader_change_message.Voter(voter.node_id) for voter in record.voters],
            [leader_change_message.Voter(voter.node_id) for voter in record.granting_voters],
        )
    if isinstance(record, KRaftVersion):
        return ControlType.KRAFT_VERSION, k_raft_version_record.KRaftVersionRecord(VERSION, record.level)
    return ControlType.KRAFT_VOTERS, voters_record.VotersRecord(VERSION, [_voter(voter) for voter in record])


def _voter(voter: VoterNode) -> voters_record.Voter:
    return voters_record.Voter(
        voter.key.node_id,
        voter.key.directory_id,
        [voters_record.Endpoint(*endpoint) for endpoint in voter.endpoints],
        voters_record.KRaftVersionFeature(voter.min_kraft_version, voter.max_kraft_version),
    )


_LATEST_VERSIONS = {ControlType.LEADER_CHANGE: 1, ControlType.KRAFT_VERSION: 0, ControlType.KRAFT_VOTERS: 0}
_MESSAGES: dict[ControlType, type[Message]] = {
    ControlType.LEADER_CHANGE: leader_change_message.LeaderChangeMessage,
    ControlType.KRAFT_VERSION: k_raft_version_record.KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: voters_record.VotersRecord,
}


def decode_control(control_type: ControlType, value: bytes) -> ControlRecord:
    """Later versions may only append fields, so they are read as the latest known version."""
    version = int.from_bytes(value[:2], signed=True) if len(value) >= 2 else -1
    message_type = _MESSAGES[control_type]
    if version < 0:
        raise invalid(f"Version {version} of a {control_type.name} record")
    try:
        message, _ = read_message(message_type, min(version, _LATEST_VERSIONS[control_type]), value)
    except ProtocolError as error:
        raise invalid(str(error)) from None
    if isinstance(message, leader_change_message.LeaderChangeMessage):
        return LeaderChange(message.leader_id, _keys(message.voters), _keys(message.granting_voters))
    if isinstance(message, k_raft_version_record.KRaftVersionRecord):
        return KRaftVersion(message.k_raft_version)
    assert isinstance(message, voters_record.VotersRecord)
    return VoterSet(
        VoterNode(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            tuple(Endpoint(item.name, item.host, item.port) for item in voter.endpoints),
            voter.k_raft_version_feature.min_supported_version,
            voter.k_raft_version_feature.max_supported_version,
        )
        for voter in message.voters
    )


def _keys(voters: Sequence[leader_change_message.Voter]) -> tuple[ReplicaKey, ...]:
    return tuple(ReplicaKey(voter.voter_id, voter.voter_directory_id) for voter in voters)
