"""Make valid frames of every API and version, and damage most of them."""

import random
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from odradek.apis.messages import request_type
from odradek.apis.table import BROKER, SERVED
from odradek.errors import ProtocolError
from odradek.records.batch import CRC_START
from odradek.records.record import Record, build_batch, patch_crc
from odradek.wire import codec
from odradek.wire.frame import SIZE, encode_request, read_request_header
from odradek.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.wire.schema import fields_of

TOPICS = ("a", "b", "c.d", "__consumer_offsets")
GROUPS = ("g1", "g2", "g3", "")
CREATE_TOPICS, CREATE_PARTITIONS = 19, 37


class Pool:
    """Values that the broker knows: some from the start, some learned from its responses."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.members: deque[str] = deque(["", "m"], maxlen=50)
        self.topic_ids: deque[UUID] = deque([UUID(int=0)], maxlen=20)
        self.sessions: deque[int] = deque([0], maxlen=20)
        self.batches = [self._batch(number) for number in range(12)]
        self.metadata = [b"", b"x", self._subscription()]

    def _batch(self, number: int) -> bytes:
        records = [
            Record(at, 1_000_000, b"k" if number % 2 else None, b"v" * 50) for at in range(number % 3 + 1)
        ]
        numbered = {"producer_id": number, "producer_epoch": 0, "base_sequence": 0} if number > 6 else {}
        return bytes(build_batch(records, codec=number % 5, **numbered))

    @staticmethod
    def _subscription() -> bytes:
        return b"\0\1" + bytes(codec.encode(ConsumerProtocolSubscription(topics=list(TOPICS[:2])), 1))

    def learn(self, response: Any) -> None:
        """Remember what a later request could refer to."""
        if member := getattr(response, "member_id", None):
            self.members.append(member)
        if session := getattr(response, "session_id", 0):
            self.sessions.append(session)
        for topic in getattr(response, "topics", None) or ():
            if getattr(topic, "topic_id", None) and getattr(topic, "name", "") in TOPICS:
                self.topic_ids.append(topic.topic_id)

    def value(self, kind: str, name: str) -> Any:
        chooser = getattr(self, f"_{kind}", None)
        return chooser(name) if chooser else self._integer(kind, name)

    def _bool(self, name: str) -> bool:
        return self.rng.random() < 0.5

    def _float64(self, name: str) -> float:
        return self.rng.choice([0.0, -1.0, float("inf"), float("nan")])

    def _uuid(self, name: str) -> UUID:
        return self.rng.choice([*self.topic_ids, UUID(int=self.rng.getrandbits(128))])

    def _records(self, name: str) -> bytes:
        """Half of them damaged behind the CRC, which is made right again: else nobody would look inside."""
        batch = bytearray(self.rng.choice(self.batches))
        if self.rng.random() < 0.5:
            for _ in range(self.rng.choice([1, 2, 8])):
                batch[self.rng.randrange(CRC_START, len(batch))] = self.rng.choice([0, 1, 127, 128, 255])
            patch_crc(batch)
        return bytes(batch)

    def _bytes(self, name: str) -> bytes:
        return self.rng.choice(self.metadata)

    def _string(self, name: str) -> str:
        rng = self.rng
        if "group" in name or name == "key" or "coordinator" in name:
            return rng.choice(GROUPS)
        if "member" in name:
            return rng.choice(self.members)
        if "topic" in name or name in ("name", "resource_name"):
            return rng.choice([*TOPICS, "retention.ms", "cleanup.policy", "range", "consumer", "1"])
        if "protocol" in name or "assignor" in name:
            return rng.choice(["range", "consumer", "uniform", "x"])
        return rng.choice(["", "x", "compact", "100", "-1", "^a.*", "(", "é" * 40])

    def _integer(self, kind: str, name: str) -> int:
        bits = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}[kind]
        if "session_id" in name:
            return self.rng.choice(self.sessions)
        small = [0, 0, 1, 1, 2, 3, -1, 10, 50, 2 ** (bits - 1) - 1]
        if not kind.startswith("u"):
            small += [-2, -(2 ** (bits - 1))]
        value = self.rng.choice(small)
        return max(value, 0) if kind.startswith("u") else min(value, 2 ** (bits - 1) - 1)


class Frames:
    """Valid frames of every API and version, and damaged ones made of them."""

    def __init__(self, rng: random.Random, pool: Pool) -> None:
        self._rng = rng
        self._pool = pool
        self._routes = [
            (key, version)
            for key, api in sorted(SERVED[BROKER].items())
            for version in range(api.min_version, api.max_version + 1)
        ]
        self._last = bytes(30)

    def __iter__(self) -> Iterator[bytes]:
        """Without end; every API and version in turn."""
        mutations = [None, None, self._flip, self._flip, self._extreme, self._cut, self._insert, self._splice]
        while True:
            for key, version in self._routes:
                frame = self.valid(key, version)
                mutate = self._rng.choice(mutations)
                thrown = frame if mutate is None else mutate(frame)
                if not asks_for_many_partitions(thrown):
                    yield thrown
                self._last = frame

    def valid(self, key: int, version: int) -> bytes:
        message = self._fill(request_type(key), version)
        return bytes(encode_request(message, key, version, 7, "fuzz")[SIZE.size :])

    def _fill(self, struct_type: Any, version: int) -> Any:
        values: dict[str, Any] = {}
        for wanted in fields_of(struct_type):
            wire = wanted.wire
            if not wire.is_in(version):
                continue
            if wire.is_nullable_in(version) and not wire.is_tagged_in(version) and self._rng.random() < 0.3:
                values[wanted.name] = None
            elif wanted.is_array:
                count = self._rng.choice([0, 1, 1, 1, 2, 3])
                values[wanted.name] = [self._element(wanted, version) for _ in range(count)]
            else:
                values[wanted.name] = self._element(wanted, version)
        return struct_type(**values)

    def _element(self, wanted: Any, version: int) -> Any:
        if wanted.element_type == "struct":
            return self._fill(wanted.struct_type, version)
        return self._pool.value(wanted.element_type, wanted.name)

    # --- damage; the api key and version mostly stay, or nothing would get past them ---

    def _position(self, frame: bytes) -> int:
        return self._rng.randrange(0 if self._rng.random() < 0.05 else min(8, len(frame) - 1), len(frame))

    def _flip(self, frame: bytes) -> bytes:
        damaged = bytearray(frame)
        for _ in range(self._rng.choice([1, 1, 2, 8])):
            damaged[self._position(frame)] ^= 1 << self._rng.randrange(8)
        return bytes(damaged)

    def _extreme(self, frame: bytes) -> bytes:
        code = self._rng.choice("bhiq")
        bits = struct.calcsize(code) * 8
        value = self._rng.choice([-1, 0, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), self._rng.randrange(100)])
        at = self._position(frame)
        packed = struct.pack(f">{code}", value)
        return frame[:at] + packed + frame[at + len(packed) :]

    def _cut(self, frame: bytes) -> bytes:
        start = self._position(frame)
        return frame[:start] + frame[start + self._rng.choice([1, 2, 8, len(frame)]) :]

    def _insert(self, frame: bytes) -> bytes:
        at = self._position(frame)
        return frame[:at] + self._rng.randbytes(self._rng.choice([1, 2, 8, 300])) + frame[at:]

    def _splice(self, frame: bytes) -> bytes:
        at, other = self._position(frame), self._last
        start = self._rng.randrange(len(other))
        return frame[:at] + other[start : start + self._rng.randrange(1, 60)] + frame[at:]


def asks_for_many_partitions(frame: bytes) -> bool:
    """Thousands of partitions are work that anybody may ask for, and that takes its time."""
    try:
        header = read_request_header(frame)
        if header.api_key not in (CREATE_TOPICS, CREATE_PARTITIONS):
            return False
        message: Any = codec.read_message(request_type(header.api_key), header.version, frame, header.body)[0]
    except (ProtocolError, KeyError):
        return False
    return any(getattr(topic, "num_partitions", getattr(topic, "count", 0)) > 100 for topic in message.topics)
