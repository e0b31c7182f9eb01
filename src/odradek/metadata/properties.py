"""The identity of a data directory: `meta.properties`, in Kafka's version 1.

It is written when the directory is formatted (`formatting.py`), and checked at every start: a node that ran on another
node's data, or in another cluster, would vouch for records that it does not have.
"""

import os
from random import Random
from typing import NamedTuple
from uuid import UUID

from odradek.config.sources import parse_properties
from odradek.model import id_from_text, id_to_text
from odradek.storage.disk.checkpoints import write_atomically
from odradek.storage.disk.files import Files

FILE_NAME = "meta.properties"
VERSION = "1"
RESERVED_IDS = 100  # Kafka reserves the smallest directory ids


class WrongDirectory(Exception):
    """This data directory belongs to another node or cluster; the message says to which."""


class MetaProperties(NamedTuple):
    cluster_id: str
    node_id: int
    directory_id: UUID


def read_properties(files: Files, directory: str) -> MetaProperties | None:
    """The identity of a directory; None if it is not formatted."""
    path = os.path.join(directory, FILE_NAME)
    try:
        text = files.read(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    return _parse(path, text)


def write_properties(files: Files, directory: str, properties: MetaProperties) -> None:
    write_atomically(files, os.path.join(directory, FILE_NAME), _format(properties))


def check_node(directory: str, properties: MetaProperties, node_id: int) -> None:
    _compare(directory, "node.id", str(properties.node_id), str(node_id))


def check_cluster(directory: str, properties: MetaProperties, cluster_id: str) -> None:
    _compare(directory, "cluster.id", properties.cluster_id, cluster_id)


def check_directory(directory: str, properties: MetaProperties, directory_id: UUID) -> None:
    _compare(directory, "directory.id", id_to_text(properties.directory_id), id_to_text(directory_id))


def _compare(directory: str, key: str, found: str, expected: str) -> None:
    if found != expected:
        path = os.path.join(directory, FILE_NAME)
        raise WrongDirectory(
            f"{path} says {key}={found}, but this node is configured with {key}={expected}: "
            "the data belongs to another node or cluster, or the configuration is wrong"
        )


def _format(properties: MetaProperties) -> bytes:
    lines = (
        f"cluster.id={properties.cluster_id}",
        f"directory.id={id_to_text(properties.directory_id)}",
        f"node.id={properties.node_id}",
        f"version={VERSION}",
        "",
    )
    return "\n".join(lines).encode()


def _parse(path: str, text: str) -> MetaProperties:
    settings = parse_properties(text)
    try:
        if settings["version"] != VERSION:
            raise WrongDirectory(
                f"{path} has version {settings['version']}, and this release knows only version {VERSION}: the "
                "directory was written by another release, so start that one, or choose another directory"
            )
        return MetaProperties(
            settings["cluster.id"], int(settings["node.id"]), id_from_text(settings["directory.id"])
        )
    except (KeyError, ValueError) as error:
        raise WrongDirectory(f"{path} cannot be read ({error!r}): restore it from a backup") from None


def random_id(rng: Random) -> UUID:
    """Its text never begins with '-', which a command line would take for an option."""
    while True:
        value = UUID(int=rng.getrandbits(128), version=4)
        if value.int > RESERVED_IDS and not id_to_text(value).startswith("-"):
            return value
