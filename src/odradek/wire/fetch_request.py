"""A follower's Fetch, where its leader reads it: see `replica_fetch`, which writes it.

While records are written to one partition, all requests of its followers look the same but for a few numbers, so they
are read with one `struct` call. Any other Fetch is read by the codec.
"""

from struct import Struct

from odradek.wire.codec import read_message
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.wire.replica_fetch import VERSION
from odradek.wire.source import uuid_of

# Max wait, min bytes, max bytes, isolation level, session id, session epoch; one topic, its id; one partition of it and
# its fields; what follows them; replica id and broker epoch; no tags.
ONE_PARTITION = Struct(">iiibiis16ssiiqiqi7siqs")
ONE = b"\2"
# No tags of the partition and the topic, no forgotten topics, no rack; one tagged field: the replica's state.
BETWEEN = bytes((0, 0, 1, 1, 1, 1, 13))
NO_TAGS = b"\0"


def read_fetch_request(frame: memoryview, position: int) -> FetchRequest:
    if len(frame) - position == ONE_PARTITION.size:
        (wait_ms, least, most, isolation, session_id, session_epoch, topics, topic_id, partitions,
         index, epoch, offset, last_epoch, log_start, max_bytes, between,
         replica_id, broker_epoch, tags) = ONE_PARTITION.unpack_from(frame, position)  # fmt: skip
        if topics == partitions == ONE and between == BETWEEN and tags == NO_TAGS:
            asked = FetchPartition(index, epoch, offset, last_epoch, log_start, max_bytes)
            topic = FetchTopic(uuid_of(topic_id), "", [asked])
            state = ReplicaState(replica_id, broker_epoch)
            return FetchRequest(
                None, state, -1, wait_ms, least, most, isolation, session_id, session_epoch, [topic]
            )
    return read_message(FetchRequest, VERSION, frame, position)[0]
