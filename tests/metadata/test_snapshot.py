"""Snapshots say what the log says: nothing is missing, and damage is never taken for an image."""

import dataclasses
import random
from uuid import UUID

import pytest

from odradek.acls.acl import Acl
from odradek.errors import ProtocolError
from odradek.metadata import snapshot
from odradek.metadata.delta import apply_records
from odradek.metadata.image import (
    Broker,
    ConfigResource,
    Controller,
    MetadataImage,
    Partition,
    ScramUser,
    Topic,
)
from odradek.metadata.records import (
    RECORD_TYPES,
    BrokerEndpoint,
    ProducerIdsRecord,
    SupportedFeature,
    encode_record,
)
from odradek.metadata.snapshot import (
    DERIVED,
    RECORDS_IN_BATCH,
    RECORDS_IN_STEP,
    WRITERS,
    DamagedSnapshot,
    SnapshotId,
    digest,
    id_of,
    parse_name,
    read_snapshot,
    records_of,
    write_snapshot,
)
from odradek.records.batch import read_header
from odradek.records.control import ControlType, decode_control_key
from odradek.records.record import Record, build_batch, decode_batch
from odradek.security.credentials import ScramCredential
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.wire.codec import drain
from tests.metadata.histories import History
from tests.metadata.worlds import World

SEEDS = range(25)


def written(image, control=()):
    file = SimulatedFiles().create("/file")
    size = drain(write_snapshot(file, image, control))
    assert size == file.size()
    return file.read_at(0, size)


def read_again(image, control=()):
    return read_snapshot(written(image, control), id_of(image), image.cluster_id)


def grown_image(seed, commits=60):
    rng, image = random.Random(seed), MetadataImage("cluster")
    history = History(rng)
    for _ in range(commits):
        records = history.next()
        image, _ = apply_records(image, records, image.offset + len(records), 3, rng.randrange(1000))
    return image


# --- nothing is missing ---

ENDPOINT = BrokerEndpoint("INTERNAL", "host", 9092, 1)
FEATURE = SupportedFeature("f", 2, 3)
FULL_PARTITION = Partition(
    leader=1,
    leader_epoch=2,
    partition_epoch=3,
    isr=(4,),
    replicas=(5,),
    directories=(UUID(int=6),),
    adding_replicas=(7,),
    removing_replicas=(8,),
    leader_recovery_state=1,
    eligible_leader_replicas=(10,),
    last_known_elr=(11,),
)
FULL_TOPIC = Topic("a.b", UUID(int=1), {3: FULL_PARTITION})
FULL_BROKER = Broker(
    1, 2, UUID(int=3), (ENDPOINT,), "rack", False, True, (UUID(int=4),), (FEATURE,), (UUID(int=4),), True
)
FULL_CONTROLLER = Controller(5, UUID(int=6), (ENDPOINT,), (FEATURE,))
AN_ACL = Acl(2, "a.b", 4, "User:ada", "10.0.0.7", 3, 2)
FULL_IMAGE = MetadataImage(
    "cluster",
    offset=41,
    epoch=7,
    timestamp_ms=1234,
    brokers={1: FULL_BROKER},
    topics={"a.b": FULL_TOPIC},
    topics_by_id={UUID(int=1): FULL_TOPIC},
    metric_names={"a_b": "a.b"},
    configs={ConfigResource(2, "a.b"): {"k": "v"}},
    quotas={(("user", None),): {"rate": 1.5}},
    credentials={ScramUser(1, "ada"): ScramCredential(b"salt", b"stored", b"server", 4096)},
    acls={UUID(int=8): AN_ACL},
    acl_ids={AN_ACL: UUID(int=8)},
    features={"f": 1},
    controllers={5: FULL_CONTROLLER},
    next_producer_id=9,
)


@pytest.mark.parametrize("record", [FULL_PARTITION, FULL_TOPIC, FULL_BROKER, FULL_CONTROLLER])
def test_the_full_image_has_a_value_in_every_field(record):
    """A new field must be added to the image above, which then shows whether it is in the snapshot."""
    missing = [name for name in record._fields if record._asdict()[name] in ((), None)]
    defaults = {name for name, value in record._field_defaults.items() if getattr(record, name) == value}
    assert not missing and not defaults


def test_every_field_of_an_image_is_written_or_derived():
    fields = {field.name: field for field in dataclasses.fields(MetadataImage)}
    assert fields.keys() == WRITERS.keys() | DERIVED.keys()
    for name, field in fields.items():
        value = getattr(FULL_IMAGE, name)
        assert value and value != field.default, f"{name} needs a value in the full image"


def test_a_snapshot_of_every_field_gives_the_image_back():
    found = read_again(FULL_IMAGE)
    assert found.image == FULL_IMAGE and found.control == ()
    assert digest(found.image) == digest(FULL_IMAGE)


@pytest.mark.parametrize("name", WRITERS)
def test_a_snapshot_without_one_kind_of_record_is_noticed(name, monkeypatch):
    """The planted bug: a writer that forgets."""
    monkeypatch.setitem(snapshot.WRITERS, name, lambda image: iter(()))
    noticed = [read_again(grown_image(seed)).image != grown_image(seed) for seed in range(5)]
    assert any(noticed)
    assert read_again(FULL_IMAGE).image != FULL_IMAGE


def test_the_histories_have_every_kind_of_record():
    """A new kind must be added to tests/metadata/histories.py, which then shows whether snapshots keep it."""
    history = History(random.Random(0))
    for _ in range(600):
        history.next()
    assert history.kinds == set(RECORD_TYPES.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_snapshot_is_the_fold_of_the_log(seed):
    """At any offset the image, the snapshot of it and the log read again are equal, in every field and in the hash."""
    rng = random.Random(seed)
    history, world = History(rng), World()
    for _ in range(rng.randrange(1, 60)):
        world.commit(*history.next())
        world.pass_time(rng.random())
        if rng.random() < 0.1:
            found = read_again(world.image)
            assert found.image == world.image and digest(found.image) == digest(world.image)
    from_log = World(world.files.twin()).image
    world.maintain()
    [name] = world.names()
    assert parse_name(name) == id_of(world.image)
    from_snapshot = World(world.files.twin()).image
    assert from_snapshot == from_log and digest(from_snapshot) == digest(from_log)


def test_a_hash_tells_images_apart_and_not_the_order_of_their_entries():
    image = grown_image(1)
    reordered = dataclasses.replace(image, topics=dict(reversed(list(image.topics.items()))))
    assert digest(reordered) == digest(image)
    other, _ = apply_records(
        image, [ProducerIdsRecord(1, 1, 10**9)], image.offset, image.epoch, image.timestamp_ms
    )
    assert digest(other) != digest(image)
    assert digest(dataclasses.replace(image, offset=image.offset + 1)) != digest(image)


# --- the format ---


def batches(data):
    position = 0
    while position < len(data):
        header = read_header(data, position)
        yield header, decode_batch(data[position : position + header.size])
        position += header.size


def test_the_format_is_kafkas():
    control = [(ControlType.KRAFT_VERSION, b"\0\0\0\1\0"), (ControlType.KRAFT_VOTERS, b"\0\0\1\0")]
    data = written(FULL_IMAGE, control)
    (first, head), *middle, (last, foot) = batches(data)
    assert first.is_control and last.is_control and not any(header.is_control for header, _ in middle)
    kinds = [decode_control_key(record.key) for record in head]
    assert kinds == [ControlType.SNAPSHOT_HEADER, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]
    assert head[0].value == bytes(2) + (1234).to_bytes(8, "big") + bytes(1)
    assert [(decode_control_key(record.key), record.value) for record in foot] == [
        (ControlType.SNAPSHOT_FOOTER, bytes(3))
    ]
    records = [record for _, found in batches(data) for record in found]
    assert [record.offset for record in records] == list(range(len(records)))
    assert {header.leader_epoch for header, _ in batches(data)} == {7}
    assert read_snapshot(data, id_of(FULL_IMAGE), "cluster").control == tuple(control)


def test_the_metadata_version_comes_first():
    image = dataclasses.replace(FULL_IMAGE, features={"a": 1, "metadata.version": 20})
    assert next(records_of(image)).name == "metadata.version"


def test_names():
    assert SnapshotId(1234, 7).file_name == "00000000000000001234-0000000007.checkpoint"
    assert parse_name("00000000000000001234-0000000007.checkpoint") == SnapshotId(1234, 7)
    for wrong in (
        "1-7.checkpoint",
        "00000000000000001234-0000000007.checkpoint.part",
        "bootstrap.checkpoint",
    ):
        assert parse_name(wrong) is None


def test_no_step_has_more_than_a_few_records():
    topic = FULL_TOPIC._replace(partitions=dict.fromkeys(range(3 * RECORDS_IN_BATCH), FULL_PARTITION))
    image = dataclasses.replace(FULL_IMAGE, topics={topic.name: topic}, topics_by_id={topic.id: topic})
    assert read_again(image).image == image
    count = sum(1 for _ in records_of(image))
    steps = sum(1 for _ in write_snapshot(SimulatedFiles().create("/file"), image))
    assert steps >= count // RECORDS_IN_STEP


# --- damage ---


def test_a_snapshot_that_is_cut_anywhere_is_not_taken_for_one():
    image = grown_image(2, commits=5)
    data = written(image)
    for size in range(len(data)):
        with pytest.raises(DamagedSnapshot):
            read_snapshot(data[:size], id_of(image), "cluster")
    with pytest.raises(DamagedSnapshot, match="follows its end"):
        read_snapshot(data + data, id_of(image), "cluster")


def test_a_flipped_bit_anywhere_is_noticed():
    data = written(FULL_IMAGE)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 4
        with pytest.raises(DamagedSnapshot):
            read_snapshot(bytes(damaged), id_of(FULL_IMAGE), "cluster")


def test_a_snapshot_under_the_name_of_another_epoch_is_damaged():
    with pytest.raises(DamagedSnapshot, match="epoch 7, its name says 8"):
        read_snapshot(written(FULL_IMAGE), SnapshotId(42, 8), "cluster")


def test_records_that_contradict_each_other_are_damage():
    data = written(FULL_IMAGE)
    twice = encode_record(ProducerIdsRecord(-1, -1, 9))
    *_, (last, _) = batches(data)
    extra = build_batch([Record(last.base_offset, 1234, None, twice)], leader_epoch=7)
    foot = build_batch(
        [record._replace(offset=last.base_offset + 1) for record in decode_batch(data[-last.size :])],
        control=True,
        leader_epoch=7,
    )
    with pytest.raises(DamagedSnapshot, match="contradict"):
        read_snapshot(data[: -last.size] + extra + foot, id_of(FULL_IMAGE), "cluster")


def test_a_record_of_a_newer_release_is_not_damage():
    head, foot = (data for data in _frame(written(dataclasses.replace(MetadataImage("cluster"), epoch=7))))
    unknown = build_batch([Record(1, 0, None, b"\1\xf0\1\0")], leader_epoch=7)
    foot = build_batch([decode_batch(foot)[0]._replace(offset=2)], control=True, leader_epoch=7)
    with pytest.raises(ProtocolError):
        read_snapshot(head + unknown + foot, SnapshotId(0, 7), "cluster")


def _frame(data):
    size = read_header(data).size
    return data[:size], data[size:]
