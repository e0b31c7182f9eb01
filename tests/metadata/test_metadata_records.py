"""Metadata records: Kafka's bytes, and nothing else accepted."""

from uuid import UUID

import pytest

from odradek.errors import ProtocolError
from odradek.metadata.records import (
    RECORD_TYPES,
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    SupportedFeature,
    TopicRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)

ID = UUID(int=0x0102030405060708090A0B0C0D0E0F10)
ID_HEX = "0102030405060708090a0b0c0d0e0f10"

# Frame (01, type, version), then the schema's fields; written down by hand from Kafka's definitions.
BYTES = [
    (TopicRecord("ab", ID), "01 02 00" + "03 6162" + ID_HEX + "00"),
    (
        PartitionRecord(
            1, ID, [1, 2], [1], [], [3], leader=1, leader_epoch=4, partition_epoch=5, directories=[ID]
        ),
        "01 03 02 00000001" + ID_HEX + "03 00000001 00000002" + "02 00000001" + "01" + "02 00000003"
        "00000001 00000004 00000005" + "02" + ID_HEX + "00",
    ),
    (
        PartitionChangeRecord(1, ID, isr=[1], leader=-1),
        "01 05 02 00000001" + ID_HEX + "02" + "00 05 02 00000001" + "01 04 ffffffff",
    ),
    (ConfigRecord(2, "t", "retention.ms", None), "01 04 00 02 02 74 0d 726574656e74696f6e2e6d73 00 00"),
    (
        FeatureLevelRecord("metadata.version", 25),
        "01 0c 00 11 6d657461646174612e76657273696f6e 0019 00",
    ),
    (ProducerIdsRecord(1, 7, 1000), "01 0f 00 00000001 0000000000000007 00000000000003e8 00"),
    (NoOpRecord(), "01 14 00 00"),
    (
        BrokerRegistrationChangeRecord(1, 7, fenced=-1),
        "01 11 02 00000001 0000000000000007 01 00 01 ff",
    ),
    (
        BrokerRegistrationChangeRecord(1, 7, cordoned_log_dirs=[ID]),
        "01 11 03 00000001 0000000000000007 01 03 11 02" + ID_HEX,
    ),
    (
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=ID,
            broker_epoch=7,
            end_points=[BrokerEndpoint("P", "h", 40000, 0)],
            features=[SupportedFeature("f", 1, 2)],
            rack=None,
            fenced=False,
            log_dirs=[ID],
        ),
        "01 00 03 00000001 00" + ID_HEX + "0000000000000007" + "02 02 50 02 68 9c40 0000 00"
        "02 02 66 0001 0002 00" + "00 00 00" + "01 00 11 02" + ID_HEX,
    ),
    (
        ClientQuotaRecord([QuotaEntity("user", None)], "k", 0.5, False),
        "01 0e 00 02 05 75736572 00 00 02 6b 3fe0000000000000 00 00",
    ),
    (
        UserScramCredentialRecord("ada", 2, b"s", b"k", b"v", 8192),
        "01 0b 00 04 616461 02 02 73 02 6b 02 76 00002000 00",
    ),
    (RemoveUserScramCredentialRecord("ada", 1), "01 16 00 04 616461 01 00"),
    (
        AccessControlEntryRecord(ID, 2, "t", 4, "User:a", "*", 3, 2),
        "01 12 00" + ID_HEX + "02 02 74 04 07 557365723a61 02 2a 03 02 00",
    ),
    (RemoveAccessControlEntryRecord(ID), "01 13 00" + ID_HEX + "00"),
]


@pytest.mark.parametrize(("record", "expected"), BYTES, ids=lambda value: type(value).__name__)
def test_the_bytes_are_kafkas(record, expected):
    assert encode_record(record) == bytes.fromhex(expected)
    assert decode_record(bytes.fromhex(expected)) == record


@pytest.mark.parametrize("record_type", RECORD_TYPES.values(), ids=lambda item: item.__name__)
def test_every_type_survives_a_round_trip(record_type):
    assert decode_record(encode_record(record_type())) == record_type()


def test_an_older_version_is_read():
    old = "01 03 00 00000001" + ID_HEX + "02 00000001 02 00000001 01 01 00000001 00000004 00000005 00"
    record = decode_record(bytes.fromhex(old))
    assert isinstance(record, PartitionRecord)
    assert (record.replicas, record.directories) == ([1], [])


@pytest.mark.parametrize(
    "value",
    [
        "",
        "01",
        "0102",
        "00 14 00 00",
        "02 14 00 00",
        "01 63 00 00",
        "01 14 01 00",
        "01 14 00 00 00",
        "01 02 00 09 61",
    ],
)
def test_what_is_not_a_record_is_refused(value):
    with pytest.raises(ProtocolError):
        decode_record(bytes.fromhex(value))


@pytest.mark.parametrize(("record", "expected"), BYTES, ids=lambda value: type(value).__name__)
def test_a_record_cut_short_is_refused(record, expected):
    whole = bytes.fromhex(expected)
    for length in range(len(whole)):
        with pytest.raises(ProtocolError):
            decode_record(whole[:length])
