"""A metadata snapshot: an image, written as the records that produce it, in Kafka's format.

    00000000000000001234-0000000007.checkpoint    where the log continues, and the epoch of the record before that
      control batch   SNAPSHOT_HEADER (when the last record was written), then KRAFT_VERSION and KRAFT_VOTERS
      batches         the records of the image
      control batch   SNAPSHOT_FOOTER: without it the snapshot is not complete

Offsets count from 0, and every batch has the epoch of the file name. Reading a snapshot gives the same image as reading
the log up to its end. So every field of an image has a writer in WRITERS, unless it is derived (DERIVED).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek.errors import KafkaError
from odradek.metadata import records as r
from odradek.metadata.delta import MetadataCorrupt, apply_records
from odradek.metadata.image import METADATA_VERSION_FEATURE, MetadataImage
from odradek.records.batch import CRC_START, HEADER_SIZE, MAGIC, BatchHeader, read_header
from odradek.records.control import ControlType, decode_control_key, encode_control_key
from odradek.records.crc import crc32c
from odradek.records.record import Record, build_batch, decode_batch
from odradek.storage.disk.files import File
from odradek.wire.codec import Steps, encode, read_message
from odradek.wire.messages.snapshot_footer_record import SnapshotFooterRecord
from odradek.wire.messages.snapshot_header_record import SnapshotHeaderRecord

SUFFIX = ".checkpoint"
RECORDS_IN_BATCH = 500
RECORDS_IN_STEP = 50

_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")

# The control records of the quorum: KRAFT_VERSION and KRAFT_VOTERS, if any.
ControlRecords = Sequence[tuple[ControlType, bytes]]


class DamagedSnapshot(Exception):
    """A snapshot is damaged; the message says how."""


class SnapshotId(NamedTuple):
    end_offset: int  # of the first record after it
    epoch: int  # of the last record in it

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


class Snapshot(NamedTuple):
    image: MetadataImage
    control: tuple[tuple[ControlType, bytes], ...] = ()


def id_of(image: MetadataImage) -> SnapshotId:
    return SnapshotId(image.offset + 1, image.epoch)


def parse_name(name: str) -> SnapshotId | None:
    matched = _NAME.fullmatch(name)
    return SnapshotId(int(matched[1]), int(matched[2])) if matched else None


# The records of an image


def records_of(image: MetadataImage) -> Iterator[r.MetadataRecord]:
    for write in WRITERS.values():
        yield from write(image)


def digest(image: MetadataImage) -> str:
    """The same for all images with the same contents at the same offset, whatever the order of their entries."""
    import hashlib  # only to compare images: not at every start

    place = f"{image.cluster_id} {image.offset} {image.epoch} {image.timestamp_ms}"
    hashed = hashlib.blake2b(place.encode(), digest_size=16)
    for encoded in sorted(map(r.encode_record, records_of(image))):
        hashed.update(len(encoded).to_bytes(4, "big") + encoded)
    return hashed.hexdigest()


def _write_features(image: MetadataImage) -> Iterator[r.FeatureLevelRecord]:
    """The metadata.version comes first: it says how to read the rest."""
    for name in sorted(image.features, key=lambda name: name != METADATA_VERSION_FEATURE):
        yield r.FeatureLevelRecord(name, image.features[name])


def _write_controllers(image: MetadataImage) -> Iterator[r.RegisterControllerRecord]:
    for controller in image.controllers.values():
        yield r.RegisterControllerRecord(
            controller_id=controller.id,
            incarnation_id=controller.incarnation_id,
            end_points=list(controller.endpoints),
            features=list(controller.features),
        )


def _write_brokers(image: MetadataImage) -> Iterator[r.RegisterBrokerRecord]:
    for broker in image.brokers.values():
        yield r.RegisterBrokerRecord(
            broker_id=broker.id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.epoch,
            end_points=list(broker.endpoints),
            features=list(broker.features),
            rack=broker.rack,
            fenced=broker.is_fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=list(broker.directories),
            cordoned_log_dirs=None if broker.cordoned is None else list(broker.cordoned),
            is_full=broker.is_full,
        )


def _write_topics(image: MetadataImage) -> Iterator[r.MetadataRecord]:
    for topic in image.topics.values():
        yield r.TopicRecord(topic.name, topic.id)
        for index, partition in topic.partitions.items():
            yield r.PartitionRecord(
                partition_id=index,
                topic_id=topic.id,
                replicas=list(partition.replicas),
                isr=list(partition.isr),
                removing_replicas=list(partition.removing_replicas),
                adding_replicas=list(partition.adding_replicas),
                leader=partition.leader,
                leader_recovery_state=partition.leader_recovery_state,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                directories=list(partition.directories),
                eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
                last_known_elr=list(partition.last_known_elr) or None,
            )


def _write_configs(image: MetadataImage) -> Iterator[r.ConfigRecord]:
    for resource, settings in image.configs.items():
        for name, value in settings.items():
            yield r.ConfigRecord(resource.type, resource.name, name, value)


def _write_quotas(image: MetadataImage) -> Iterator[r.ClientQuotaRecord]:
    for entity, limits in image.quotas.items():
        for key, value in limits.items():
            yield r.ClientQuotaRecord([r.QuotaEntity(kind, name) for kind, name in entity], key, value)


def _write_credentials(image: MetadataImage) -> Iterator[r.UserScramCredentialRecord]:
    for user, credential in image.credentials.items():
        yield r.UserScramCredentialRecord(
            user.name,
            user.mechanism,
            credential.salt,
            credential.stored_key,
            credential.server_key,
            credential.iterations,
        )


def _write_acls(image: MetadataImage) -> Iterator[r.AccessControlEntryRecord]:
    for acl_id, acl in image.acls.items():
        yield r.AccessControlEntryRecord(acl_id, *acl)


def _write_producer_ids(image: MetadataImage) -> Iterator[r.ProducerIdsRecord]:
    """An image does not have the owner of the last block."""
    if image.next_producer_id > 0:
        yield r.ProducerIdsRecord(-1, -1, image.next_producer_id)


# The key is a field of the image; the order is that of the snapshot.
WRITERS: dict[str, Callable[[MetadataImage], Iterator[r.MetadataRecord]]] = {
    "features": _write_features,
    "controllers": _write_controllers,
    "brokers": _write_brokers,
    "topics": _write_topics,
    "configs": _write_configs,
    "quotas": _write_quotas,
    "credentials": _write_credentials,
    "acls": _write_acls,
    "next_producer_id": _write_producer_ids,
}

# Fields that have no records of their own, and where they come from.
DERIVED: Mapping[str, str] = {
    "cluster_id": "meta.properties",
    "offset": "the name",
    "epoch": "the name",
    "timestamp_ms": "the header",
    "topics_by_id": "topics",
    "metric_names": "topics",
    "acl_ids": "acls",
}


# Writing


def write_snapshot(file: File, image: MetadataImage, control: ControlRecords = ()) -> Steps[int]:
    """Write a snapshot into an empty file, a few records in each step. The caller syncs it. Returns its size."""
    output = _Output(file, image)
    header = SnapshotHeaderRecord(0, image.timestamp_ms)
    output.write_control([(ControlType.SNAPSHOT_HEADER, bytes(encode(header, 0))), *control])
    values: list[bytes] = []
    for record in records_of(image):
        values.append(r.encode_record(record))
        if len(values) == RECORDS_IN_BATCH:
            output.write(values)
            values.clear()
        if len(values) % RECORDS_IN_STEP == 0:
            yield
    if values:
        output.write(values)
    output.write_control([(ControlType.SNAPSHOT_FOOTER, bytes(encode(SnapshotFooterRecord(), 0)))])
    return output.size


class _Output:
    def __init__(self, file: File, image: MetadataImage) -> None:
        self._file = file
        self._epoch = image.epoch
        self._timestamp_ms = image.timestamp_ms
        self._next_offset = 0
        self.size = 0

    def write(self, values: Sequence[bytes]) -> None:
        self._write([(None, value) for value in values], is_control=False)

    def write_control(self, records: ControlRecords) -> None:
        self._write([(encode_control_key(kind), value) for kind, value in records], is_control=True)

    def _write(self, pairs: Sequence[tuple[bytes | None, bytes]], is_control: bool) -> None:
        records = [
            Record(self._next_offset + place, self._timestamp_ms, key, value)
            for place, (key, value) in enumerate(pairs)
        ]
        batch = build_batch(records, control=is_control, leader_epoch=self._epoch)
        self._file.write_at(self.size, batch)
        self.size += len(batch)
        self._next_offset += len(records)


# Reading


def read_snapshot(data: bytes, snapshot_id: SnapshotId, cluster_id: str) -> Snapshot:
    """Raises DamagedSnapshot if it is not intact, ProtocolError if a newer release wrote it."""
    records: list[r.MetadataRecord] = []
    control: list[tuple[ControlType, bytes]] = []
    for item in _read_records(data, snapshot_id.epoch):
        if isinstance(item, r.MetadataRecord):
            records.append(item)
        else:
            control.append(item)
    kinds = [kind for kind, _ in control]
    if kinds[:1] != [ControlType.SNAPSHOT_HEADER]:
        raise DamagedSnapshot("it has no header")
    if kinds[-1] != ControlType.SNAPSHOT_FOOTER:
        raise DamagedSnapshot("its end is missing")
    header, _ = read_message(SnapshotHeaderRecord, 0, control[0][1], 0)
    try:
        image, _ = apply_records(
            MetadataImage(cluster_id),
            records,
            snapshot_id.end_offset - 1,
            snapshot_id.epoch,
            header.last_contained_log_timestamp,
        )
    except MetadataCorrupt as error:
        raise DamagedSnapshot(f"its records contradict each other: {error}") from None
    return Snapshot(image, tuple(control[1:-1]))


def read_timestamp(data: bytes) -> int:
    """Return when the last record in a snapshot was written, from the first bytes of the snapshot."""
    return read_header(data).max_timestamp


def _read_records(data: bytes, epoch: int) -> Iterator[r.MetadataRecord | tuple[ControlType, bytes]]:
    position, offset, is_complete = 0, 0, False
    while position < len(data):
        if is_complete:
            raise DamagedSnapshot("something follows its end")
        header = _checked_header(data, position, offset, epoch)
        batch = memoryview(data)[position : position + header.size]
        try:
            records = decode_batch(batch, header)
        except KafkaError as error:
            raise DamagedSnapshot(f"the batch at byte {position} cannot be read: {error}") from None
        for record in records:
            if record.value is None:
                raise DamagedSnapshot(f"the batch at byte {position} has a record without a value")
            if not header.is_control:
                yield r.decode_record(record.value)
            elif (kind := decode_control_key(record.key)) is not None:
                is_complete = kind is ControlType.SNAPSHOT_FOOTER
                yield kind, record.value
        position, offset = position + header.size, header.next_offset


def _checked_header(data: bytes, position: int, offset: int, epoch: int) -> BatchHeader:
    """The header of the batch at this position, which must be intact."""
    if position + HEADER_SIZE > len(data):
        raise DamagedSnapshot("its end is missing")
    header = read_header(data, position)
    if header.magic != MAGIC or header.size < HEADER_SIZE:
        raise DamagedSnapshot(f"there is no batch at byte {position}")
    if position + header.size > len(data):
        raise DamagedSnapshot("its end is missing")
    if header.crc != crc32c(memoryview(data)[position + CRC_START : position + header.size]):
        raise DamagedSnapshot(f"the batch at byte {position} has the wrong checksum")
    if header.base_offset != offset:
        raise DamagedSnapshot(f"the batch at byte {position} has offset {header.base_offset}, not {offset}")
    if header.leader_epoch != epoch:
        raise DamagedSnapshot(f"it was written in epoch {header.leader_epoch}, its name says {epoch}")
    return header
