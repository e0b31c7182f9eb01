"""The file quorum-state: Kafka's format, and refusal of anything else."""

import json
from uuid import UUID

import pytest

from odradek.raft.election import (
    ElectionState,
    QuorumStateCorrupt,
    decode_election_state,
    encode_election_state,
)


@pytest.mark.parametrize(
    "state",
    [
        ElectionState(0),
        ElectionState(3, leader_id=1),
        ElectionState(4, voted_id=2, voted_directory_id=UUID(int=5)),
    ],
)
def test_round_trip(state):
    assert decode_election_state(encode_election_state(state)) == state


def test_kafkas_own_files_are_read():
    newer = b'{"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}'
    assert decode_election_state(newer).voted_id == 1
    older = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[],'
        b'"data_version":0}'
    )
    assert decode_election_state(older) == ElectionState(2, leader_id=1)


def test_the_file_is_one_line_of_json():
    data = encode_election_state(ElectionState(3, leader_id=1))
    assert b"\n" not in data
    assert json.loads(data) == {
        "leaderId": 1,
        "leaderEpoch": 3,
        "votedId": -1,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA",
        "data_version": 1,
    }


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"data_version":2}',
        b'{"leaderId":1,"leaderEpoch":"2","votedId":-1,"data_version":0}',
        b'{"leaderId":1,"leaderEpoch":-2,"votedId":-1,"data_version":0}',
        b'{"leaderId":true,"leaderEpoch":2,"votedId":-1,"data_version":0}',
        b"\xff\xff",
    ],
)
def test_damage_is_refused(data):
    with pytest.raises(QuorumStateCorrupt):
        decode_election_state(data)
