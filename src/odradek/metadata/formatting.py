"""Formats a data directory: writes its node, its cluster, and the first voters of the quorum.

    meta.properties                                                    cluster, node and directory id
    __cluster_metadata-0/00000000000000000000-0000000000.checkpoint    the voters, if they are known by then
    bootstrap.checkpoint                                               the first records of the cluster, if any

A cluster begins with one or more controllers whose directories name the same voters. All other nodes, including
controllers that become voters later, learn the voters from the log. `meta.properties` is written last: without it a
directory counts as not formatted, whatever a crash has left there, and can be formatted again.

A new node formats its own directory only if its configuration names no other controllers (`load_or_format`). One that
does must not begin a cluster of its own by accident.
"""

import logging
import os
from collections.abc import Sequence
from random import Random
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.metadata.bootstrap import write_bootstrap
from odradek.metadata.image import MetadataImage
from odradek.metadata.properties import (
    FILE_NAME,
    MetaProperties,
    WrongDirectory,
    check_node,
    random_id,
    read_properties,
    write_properties,
)
from odradek.metadata.records import MetadataRecord
from odradek.metadata.snapshot import write_snapshot
from odradek.metadata.snapshot_files import FORMATTED, SnapshotFiles
from odradek.model import id_to_text
from odradek.raft.control import encode_control
from odradek.raft.store import METADATA_PARTITION
from odradek.raft.voters import KRaftVersion, VoterSet
from odradek.storage.disk.files import Files
from odradek.storage.segments.segment import LOG_SUFFIX
from odradek.wire.codec import drain

logger = logging.getLogger(__name__)

DATA_DIRECTORY_MODE = 0o700
KRAFT_VERSION = KRaftVersion(1)


class NotFormatted(Exception):
    """A node must be told which cluster it belongs to; the message says how."""


def load_or_format(
    files: Files, directory: str, config: BrokerConfig, hostname: str, rng: Random
) -> MetaProperties:
    """The identity of the data directory. A new one becomes a new cluster with this node as its only controller. Raises
    NotFormatted if the configuration names other controllers."""
    properties = read_properties(files, directory)
    if properties is not None:
        check_node(directory, properties, config.node_id)
        return properties
    if config.names_a_quorum(hostname):
        servers = ",".join(map(str, config.quorum_bootstrap_servers))
        raise NotFormatted(
            f"{directory} is not formatted, and controller.quorum.bootstrap.servers names a quorum ({servers}): run "
            "'odradek format --config FILE --cluster-id ID …', with the id of the cluster that this node belongs to"
        )
    properties = new_properties(config.node_id, rng)
    format_directory(files, directory, properties)
    logger.info(
        "formatted %s: node %d is the only controller of a new cluster, %s",
        directory,
        properties.node_id,
        properties.cluster_id,
    )
    return properties


def new_properties(
    node_id: int, rng: Random, cluster_id: str | None = None, directory_id: UUID | None = None
) -> MetaProperties:
    """Make properties, with a random id for each that is not given."""
    return MetaProperties(cluster_id or id_to_text(random_id(rng)), node_id, directory_id or random_id(rng))


def format_directory(
    files: Files,
    directory: str,
    properties: MetaProperties,
    voters: VoterSet | None = None,
    records: Sequence[MetadataRecord] = (),
) -> None:
    """Write the directory's identity, the first voters if they are known, and the first records of the cluster, if
    there are any. It must not be formatted yet."""
    make_data_directory(files, directory)
    partition = f"{directory}/{METADATA_PARTITION}"
    _check_no_log(files, directory, partition)
    if voters is not None:
        _write_voters(files, partition, voters)
        files.sync_directory(directory)
    elif SnapshotFiles(files, partition).is_formatted:  # by an attempt that was interrupted
        files.remove(f"{partition}/{FORMATTED.file_name}")
        files.sync_directory(partition)
    write_bootstrap(files, directory, records)
    write_properties(files, directory, properties)


def make_data_directory(files: Files, path: str) -> None:
    if not files.exists(path):
        files.make_directory(path, DATA_DIRECTORY_MODE)
        files.sync_directory(os.path.dirname(path) or ".")


def _check_no_log(files: Files, directory: str, partition: str) -> None:
    """The voters in the log are known by their directory ids: with a new one, this node would no longer be a voter."""
    names = [entry.name for entry in files.list(partition)] if files.exists(partition) else []
    if any(name.endswith(LOG_SUFFIX) for name in names):
        raise WrongDirectory(
            f"{directory} has a metadata log, but no {FILE_NAME}: restore that file from a backup, or move the "
            "directory away to start without its data"
        )


def _write_voters(files: Files, partition: str, voters: VoterSet) -> None:
    files.make_directory(partition)
    snapshots = SnapshotFiles(files, partition)
    part = snapshots.create_part(FORMATTED)
    try:
        control = [encode_control(KRAFT_VERSION), encode_control(voters)]
        drain(write_snapshot(part, MetadataImage("", epoch=FORMATTED.epoch, timestamp_ms=0), control))
        part.sync()
    finally:
        part.close()
    snapshots.complete(FORMATTED)
    files.sync_directory(partition)
