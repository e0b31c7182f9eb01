"""Mappings of an image: like dictionaries, and the next version costs what changed."""

import random
from functools import cache
from uuid import UUID

import pytest

from odradek.metadata import mapping
from odradek.metadata.delta import apply_records
from odradek.metadata.image import MetadataImage
from odradek.metadata.mapping import GONE, SMALL, LayeredMap, with_changes
from odradek.metadata.records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

MANY = 10_000


class Counted(dict):
    """Counts the entries that are read to make a copy, or in any other walk."""

    walked = 0

    def __iter__(self):
        Counted.walked += len(self)
        return super().__iter__()

    def keys(self):
        Counted.walked += len(self)
        return super().keys()

    def values(self):
        Counted.walked += len(self)
        return super().values()

    def items(self):
        Counted.walked += len(self)
        return super().items()


@pytest.mark.parametrize("size", [0, SMALL, SMALL + 1, 500])
def test_it_behaves_as_a_dictionary(size):
    rng = random.Random(size)
    plain = {number: str(number) for number in range(size)}
    version = dict(plain)
    layered = 0
    for _ in range(200):
        before, copy = version, dict(plain)
        changes = {
            rng.randrange(size + 20): rng.choice([GONE, "new", "newer"]) for _ in range(rng.randrange(4))
        }
        version = with_changes(version, changes)
        for key, value in changes.items():
            if value is GONE:
                plain.pop(key, None)
            else:
                plain[key] = value
        layered += isinstance(version, LayeredMap)
        assert version == plain and plain == version and dict(version) == plain and len(version) == len(plain)
        assert sorted(version) == sorted(plain) and sorted(version.values()) == sorted(plain.values())
        for key in range(size + 20):
            assert (key in version) == (key in plain) and version.get(key, "no") == plain.get(key, "no")
            if key in plain:
                assert version[key] == plain[key]
            else:
                with pytest.raises(KeyError):
                    version[key]
        assert before == copy, "an earlier version stays as it was"
    assert layered or size <= SMALL


def test_no_change_is_no_new_version():
    version = {1: 2}
    assert with_changes(version, {}) is version


def test_order_is_that_of_insertion():
    version = with_changes(dict.fromkeys(range(500), 0), {7: 1, 1000: 1, 3: GONE, 999: 1})
    assert isinstance(version, LayeredMap)
    assert list(version) == [number for number in range(500) if number != 3] + [1000, 999]


def id_of(number):
    return UUID(int=number)


@cache
def image_with(topics, partitions):
    """So many topics of so many partitions, in dictionaries that count who walks over them."""
    records = []
    for number in range(topics):
        records.append(TopicRecord(f"t_{number}", id_of(number)))
        records.append(ConfigRecord(2, f"t_{number}", "k", "v"))
        records += [PartitionRecord(index, id_of(number), [1], [1], leader=1) for index in range(partitions)]
    image, _ = apply_records(MetadataImage("c"), records, 0, 1)
    by_id = {
        topic_id: topic._replace(partitions=Counted(topic.partitions))
        for topic_id, topic in image.topics_by_id.items()
    }
    return MetadataImage(
        "c",
        topics=Counted({topic.name: topic for topic in by_id.values()}),
        topics_by_id=Counted(by_id),
        metric_names=Counted(image.metric_names),
        configs=Counted(image.configs),
    )


CHANGES = {
    "a leader": lambda number: [PartitionChangeRecord(0, id_of(0), leader=number % 5)],
    "a config": lambda number: [ConfigRecord(2, "t_0", "k", str(number))],
    "a new topic": lambda number: [
        TopicRecord(f"new_{number}", id_of(MANY + number)),
        PartitionRecord(0, id_of(MANY + number), [1], [1]),
    ],
    "a partition": lambda number: [PartitionRecord(MANY + number, id_of(0), [1], [1])],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize(("topics", "partitions"), [(MANY, 1), (1, MANY)])
def test_a_change_costs_what_changes(topics, partitions, change):
    image = image_with(topics, partitions)
    Counted.walked = 0
    for number in range(50):
        image, delta = apply_records(image, change(number), number, 1)
        for changed in delta.changed_topics:
            assert len(changed.changed_partitions()) == 1
    assert Counted.walked <= 50 * SMALL, "nothing large is walked over"


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize(("topics", "partitions"), [(MANY, 1), (1, MANY)])
def test_many_changes_copy_everything_a_few_times_only(topics, partitions, change, monkeypatch):
    copied, fold = [], mapping._fold
    image = image_with(topics, partitions)
    monkeypatch.setattr(
        mapping, "_fold", lambda base, changes: copied.append(len(base)) or fold(base, changes)
    )
    for number in range(1000):
        image, _ = apply_records(image, change(number), number, 1)
    large = [size for size in copied if size >= MANY]
    assert len(large) <= 40, "three mappings know the topics, and each is copied once in a hundred changes"


def test_a_topic_that_goes_costs_itself():
    image = image_with(MANY, 1)
    Counted.walked = 0
    image, delta = apply_records(image, [RemoveTopicRecord(id_of(7))], 0, 1)
    assert Counted.walked == 0 and len(delta.deleted_topics) == 1
    assert "t_7" not in image.topics and len(image.topics) == MANY - 1
