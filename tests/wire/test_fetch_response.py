"""The hand-written Fetch answer against the generated codec, in every version."""

import random
import uuid
from typing import NamedTuple

import pytest

from odradek.wire.fetch_response import Divergence, FetchedPartition, FetchedTopic, encode_fetch_response
from odradek.wire.frame import encode_response
from odradek.wire.messages import fetch as generated

VERSIONS = range(generated.FetchRequest.MIN_VERSION, generated.FetchRequest.MAX_VERSION + 1)


class Piece(NamedTuple):
    data: bytes


def random_partition(rng: random.Random) -> tuple[FetchedPartition, generated.PartitionData]:
    index, error, high, stable, start = (rng.randrange(1000) for _ in range(5))
    aborted = rng.choice([None, [], [(1, 2), (3, 4)]])
    data = rng.randbytes(rng.choice([0, 1, 200]))
    divergence = rng.choice([None, Divergence(5, 77)])
    answer = FetchedPartition(index, error, high, stable, start, aborted, Piece(data), len(data), divergence)
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
    return answer, expected


@pytest.mark.parametrize("version", VERSIONS)
def test_same_bytes(version: int) -> None:
    rng = random.Random(version)
    for _ in range(100):
        topics, expected = [], []
        for _ in range(rng.choice([0, 1, 2, 130])):
            topic_id, pairs = (
                uuid.UUID(int=rng.getrandbits(128)),
                [random_partition(rng) for _ in range(rng.choice([0, 1, 3]))],
            )
            topics.append(FetchedTopic("topic", topic_id, [answer for answer, _ in pairs]))
            expected.append(generated.FetchableTopicResponse(topic_id, "topic", [one for _, one in pairs]))
        parts = encode_fetch_response(version, 99, 0, 1234, topics)
        frame = b"".join(part.data if isinstance(part, Piece) else bytes(part) for part in parts)
        message = generated.FetchResponse(error_code=0, session_id=1234, responses=expected)
        assert frame == bytes(encode_response(message, 1, version, 99))
