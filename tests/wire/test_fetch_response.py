"""The hand-written Fetch response against the generated codec, in every version."""

import random
import uuid
from typing import NamedTuple

import pytest

from odradek.wire.fetch_response import Divergence, FetchedPartition, FetchedTopic, encode_fetch_response
from odradek.wire.frame import encode_response
from odradek.wire.leader_hint import Address, LeaderHint
from odradek.wire.messages import fetch as generated

VERSIONS = range(generated.FetchRequest.MIN_VERSION, generated.FetchRequest.MAX_VERSION + 1)
HINTS_SINCE = 16


class Piece(NamedTuple):
    data: bytes


HINTS = (
    LeaderHint(1, 7, Address(1, "one", 9092, None)),
    LeaderHint(2, 8, Address(2, "two", 65535, "rack")),
    LeaderHint(-1, 9, None),
)


def random_partition(rng: random.Random, version: int) -> tuple[FetchedPartition, generated.PartitionData]:
    index, error, high, stable, start = (rng.randrange(1000) for _ in range(5))
    aborted = rng.choice([None, [], [(1, 2), (3, 4)]])
    data = rng.randbytes(rng.choice([0, 1, 200]))
    divergence = rng.choice([None, Divergence(5, 77)])
    records = rng.choice([Piece(data), bytearray(data)])  # in a file, or in memory
    response = FetchedPartition(index, error, high, stable, start, aborted, records, len(data), divergence)
    expected = generated.PartitionData(
        index,
        error,
        high,
        stable,
        start,
        aborted_transactions=None
        if aborted is None
        else [generated.AbortedTransaction(*one) for one in aborted],
        preferred_read_replica=-1,
        records=data,
    )
    if divergence:
        expected.diverging_epoch = generated.EpochEndOffset(*divergence)
    if version >= HINTS_SINCE and (hint := rng.choice([None, *HINTS])):
        response = response._replace(error_code=error or 6, leader=hint)
        expected.error_code = response.error_code
        expected.current_leader = generated.LeaderIdAndEpoch(hint.leader_id, hint.leader_epoch)
    return response, expected


def addresses_in(topics: list[FetchedTopic]) -> list[generated.NodeEndpoint]:
    """Each once, in the order of the partitions."""
    hints = [
        response.leader for topic in topics for response in topic.partitions if response.leader is not None
    ]
    found = dict.fromkeys(hint.address for hint in hints if hint.address is not None)
    return [generated.NodeEndpoint(*address) for address in found]


@pytest.mark.parametrize("version", VERSIONS)
def test_same_bytes(version: int) -> None:
    rng = random.Random(version)
    for _ in range(100):
        topics, expected = [], []
        for _ in range(rng.choice([0, 1, 2, 130])):
            topic_id, pairs = (
                uuid.UUID(int=rng.getrandbits(128)),
                [random_partition(rng, version) for _ in range(rng.choice([0, 1, 3]))],
            )
            topics.append(FetchedTopic("topic", topic_id, [response for response, _ in pairs]))
            expected.append(generated.FetchableTopicResponse(topic_id, "topic", [one for _, one in pairs]))
        parts = encode_fetch_response(version, 99, 0, 1234, topics)
        frame = b"".join(part.data if isinstance(part, Piece) else bytes(part) for part in parts)
        message = generated.FetchResponse(
            error_code=0, session_id=1234, responses=expected, node_endpoints=addresses_in(topics)
        )
        assert frame == bytes(encode_response(message, 1, version, 99))
