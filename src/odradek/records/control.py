"""Control records: what brokers write into a log for readers of the protocol, not of the data.

A control batch has one record whose key says what it is (a version and a type, both int16). Two matter to
every partition: the markers that end a transaction, COMMIT and ABORT, whose value is a version and the epoch
of the coordinator that decided. LEADER_CHANGE opens every epoch of the metadata log. The types 2 to 6 (it, the
frame of a metadata snapshot, and the quorum's voters) are named here; their values belong to the quorum
(`raft.control`).

Readers skip unknown types, so they are `None` and not an error.
"""

from enum import IntEnum
from struct import Struct

from odradek.records.batch import (
    BEFORE_CRC,
    CONTROL,
    COVERED,
    LENGTH_END,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL,
)
from odradek.records.crc import crc32c
from odradek.records.record import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, Record, build_batch, invalid

KEY_VERSION = 0
MARKER_VERSION = 0

_KEY = Struct(">hh")
_MARKER = Struct(">hi")
# A marker's batch has always the same size. This is what the CRC covers.
_MARKER_BATCH = Struct(f"{COVERED.format} BBBBB hh B hi B")
MARKER_BATCH_SIZE = BEFORE_CRC.size + _MARKER_BATCH.size
# The numbers of the one record, as varints: size, attributes, timestamp and offset deltas; the sizes of key and value.
_RECORD_START = (2 * 16, 0, 0, 0, 2 * _KEY.size)
_VALUE_SIZE = 2 * _MARKER.size


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def encode_control_key(control_type: ControlType) -> bytes:
    return _KEY.pack(KEY_VERSION, control_type)


def decode_control_key(key: bytes | None) -> ControlType | None:
    """None: a type that is newer than this code."""
    if key is None or len(key) < _KEY.size:
        raise invalid("The key of a control record is too short")
    version, value = _KEY.unpack_from(key)
    if version < 0:
        raise invalid(f"Version {version} of a control record's key")
    return ControlType(value) if value in ControlType._value2member_map_ else None


def build_control_batch(
    control_type: ControlType,
    value: bytes,
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """A control batch of the quorum, which has no producer."""
    record = Record(base_offset, timestamp, encode_control_key(control_type), value)
    return build_batch([record], control=True, leader_epoch=leader_epoch)


# The end of a transaction


def decode_marker(value: bytes | None) -> int:
    """The coordinator's epoch. Later versions may append fields, which are not for us."""
    if value is None or len(value) < _MARKER.size:
        raise invalid("The value of a transaction marker is too short")
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise invalid(f"Version {version} of a transaction marker")
    return int(coordinator_epoch)


def build_marker_batch(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The batch that `build_batch` would build, by one format: every transaction writes one to each partition."""
    covered = _MARKER_BATCH.pack(
        *(CONTROL | TRANSACTIONAL, 0, timestamp, timestamp, producer_id, producer_epoch, NO_SEQUENCE, 1),
        *_RECORD_START,
        *(KEY_VERSION, ControlType.COMMIT if commit else ControlType.ABORT),
        *(_VALUE_SIZE, MARKER_VERSION, coordinator_epoch, 0),
    )
    before = BEFORE_CRC.pack(
        base_offset, MARKER_BATCH_SIZE - LENGTH_END, leader_epoch, MAGIC, crc32c(covered)
    )
    return bytearray(before + covered)
