"""The names of directories in a data directory, and which of them are ours.

    <topic>-<partition>                the log of a partition
    <topic>-<partition>.<id>-delete    a deleted log, removed later
    <topic>-<partition>.<id>-stray     a log that the metadata did not know when the broker started: kept
    <topic>-<partition>.<id>-future    a log that Kafka was moving here: left alone

The names are Kafka's. The id is random, and the topic is cut short where the name would be too long.
Directories with any other name are not ours.
"""

import random
import re
import uuid

from odradek.model import LEGAL_TOPIC_NAME, MAX_TOPIC_NAME_LENGTH, TopicPartition

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
MAX_NAME_LENGTH = 255

DELETED = re.compile(rf".+-[0-9]+\.[0-9a-f]{{32}}{DELETE_SUFFIX}")


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition whose log has this name, None if it is not the name of a log."""
    topic, _, partition = name.rpartition("-")
    if not LEGAL_TOPIC_NAME.fullmatch(topic) or len(topic) > MAX_TOPIC_NAME_LENGTH:
        return None
    if not (partition.isascii() and partition.isdecimal()) or str(int(partition)) != partition:
        return None
    return TopicPartition(topic, int(partition))


def is_deleted(name: str) -> bool:
    return DELETED.fullmatch(name) is not None


def is_set_aside(name: str) -> bool:
    return name.endswith((STRAY_SUFFIX, FUTURE_SUFFIX))


def name_for(topic_partition: TopicPartition, suffix: str, rng: random.Random) -> str:
    """A new name for a log that is deleted or set aside."""
    unique = uuid.UUID(int=rng.getrandbits(128)).hex
    end = f"-{topic_partition.partition}.{unique}{suffix}"
    return topic_partition.topic[: MAX_NAME_LENGTH - len(end)] + end
