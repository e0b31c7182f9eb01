"""The quorum's control records, against Kafka's schemas."""

import io
from uuid import UUID

import pytest
from kio.schema.k_raft_version_record.v0.data import KRaftVersionRecord
from kio.schema.leader_change_message.v0.data import LeaderChangeMessage as LeaderChangeV0
from kio.schema.leader_change_message.v1.data import LeaderChangeMessage as LeaderChangeV1
from kio.schema.leader_change_message.v1.data import Voter as VoterV1
from kio.schema.voters_record.v0.data import VotersRecord
from kio.serial import entity_reader, entity_writer

from odradek.errors import KafkaError
from odradek.raft.control import LeaderChange, build_control_records, read_control_records
from odradek.raft.voters import Endpoint, KRaftVersion, ReplicaKey, VoterNode, VoterSet
from odradek.records.control import ControlType, build_control_batch, encode_control_key
from odradek.records.record import decode_batch, header_of

CHANGE = LeaderChange(2, (ReplicaKey(1), ReplicaKey(2)), (ReplicaKey(2),))
VOTERS = VoterSet(
    [
        VoterNode(ReplicaKey(1, UUID(int=11)), (Endpoint("CONTROLLER", "a", 9093),)),
        VoterNode(ReplicaKey(2, UUID(int=12)), (Endpoint("CONTROLLER", "b", 9094),), 0, 1),
    ]
)


def build(*records):
    return build_control_records(records, timestamp=5, base_offset=3, leader_epoch=2)


def test_one_batch_of_several_records() -> None:
    batch = build(CHANGE, KRaftVersion(1), VOTERS)
    header = header_of(batch)
    assert header.is_control and not header.is_transactional and header.producer_id == -1
    assert (header.base_offset, header.leader_epoch) == (3, 2)
    assert list(read_control_records(batch, header)) == [(3, CHANGE), (4, KRaftVersion(1)), (5, VOTERS)]
    assert [record.key for record in decode_batch(batch)] == [
        encode_control_key(kind)
        for kind in (ControlType.LEADER_CHANGE, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS)
    ]


def test_kafka_reads_them() -> None:
    leader, version, voters = (
        record.value for record in decode_batch(build(CHANGE, KRaftVersion(1), VOTERS))
    )
    message = entity_reader(LeaderChangeV0)(leader, 0)[0]
    assert (message.version, message.leader_id) == (0, 2)
    assert [voter.voter_id for voter in message.voters] == [1, 2]
    assert entity_reader(KRaftVersionRecord)(version, 0)[0].k_raft_version == 1
    message = entity_reader(VotersRecord)(voters, 0)[0]
    assert [voter.voter_directory_id for voter in message.voters] == [UUID(int=11), UUID(int=12)]
    assert [(item.name, item.host, item.port) for item in message.voters[0].endpoints] == [
        ("CONTROLLER", "a", 9093)
    ]


def read_value(kind: ControlType, value: bytes):
    batch = build_control_batch(kind, value, timestamp=0)
    return [record for _, record in read_control_records(batch, header_of(batch))]


def test_a_leader_change_of_version_1_is_read() -> None:
    buffer = io.BytesIO()
    voters = (
        VoterV1(voter_id=1, voter_directory_id=UUID(int=7)),
        VoterV1(voter_id=3, voter_directory_id=UUID(int=8)),
    )
    entity_writer(LeaderChangeV1)(
        buffer, LeaderChangeV1(version=1, leader_id=3, voters=voters, granting_voters=voters[1:])
    )
    keys = (ReplicaKey(1, UUID(int=7)), ReplicaKey(3, UUID(int=8)))
    assert read_value(ControlType.LEADER_CHANGE, buffer.getvalue()) == [LeaderChange(3, keys, keys[1:])]


def test_other_control_records_are_left_out() -> None:
    assert read_value(ControlType.SNAPSHOT_HEADER, b"anything") == []


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        (ControlType.LEADER_CHANGE, CHANGE),
        (ControlType.KRAFT_VERSION, KRaftVersion(1)),
        (ControlType.KRAFT_VOTERS, VOTERS),
    ],
)
def test_a_value_cut_short_at_every_byte(kind, record) -> None:
    (stored,) = decode_batch(build(record))
    assert read_value(kind, stored.value) == [record]
    for length in range(len(stored.value) - 1):
        with pytest.raises(KafkaError):
            read_value(kind, stored.value[:length])
