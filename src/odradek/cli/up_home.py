"""The directory of a cluster on one machine, as `odradek up --brokers N` keeps it.

    DIR/cluster.json      the cluster: its id, and each node's controller port and directory id
    DIR/1.properties …    the settings of each node, rewritten at every start
    DIR/1 …               the data of each node

`cluster.json` is written before the data directories are formatted, so that the start after an interrupted one uses the
same ids; afterwards it says that formatting is done. From then on a data directory that is not formatted has lost its
data: formatting it again would bring back a voter that has forgotten its votes, so the user must decide what to do.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import NamedTuple

from odradek.config.sources import format_properties
from odradek.metadata.formatting import format_directory
from odradek.metadata.properties import MetaProperties, check_cluster, check_node, random_id, read_properties
from odradek.metadata.records import MetadataRecord
from odradek.model import id_from_text, id_to_text
from odradek.raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from odradek.storage.disk.files import DiskFiles

HOST = "localhost"
CLUSTER_FILE = "cluster.json"
META_FILE = "meta.properties"  # of a single broker with its data in DIR itself
LISTENER, SECURE_LISTENER, CONTROLLER_LISTENER = "PLAINTEXT", "SASL_SSL", "CONTROLLER"
# Settings that `up` chooses for each node; they cannot be set.
OWN_SETTINGS = frozenset(
    {
        *("node.id", "broker.id", "process.roles", "broker.rack", "log.dirs", "log.dir", "metadata.log.dir"),
        *(
            "listeners",
            "advertised.listeners",
            "listener.security.protocol.map",
            "inter.broker.listener.name",
        ),
        *("controller.listener.names", "controller.quorum.bootstrap.servers", "controller.quorum.voters"),
    }
)


class CannotStart(Exception):
    """Why the cluster does not start, in a sentence."""


class Member(NamedTuple):
    """A node of the cluster, for the lifetime of the cluster."""

    node_id: int
    controller_port: int
    directory_id: str

    @property
    def rack(self) -> str:
        return f"rack-{self.node_id}"


class _Cluster(NamedTuple):
    """The content of `cluster.json`."""

    cluster_id: str
    is_formatted: bool  # all data directories
    members: list[Member]


class Home:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files = DiskFiles()

    def data_dir(self, node_id: int) -> Path:
        return self.directory / str(node_id)

    def settings_file(self, node_id: int) -> Path:
        return self.directory / f"{node_id}.properties"

    # The members of the cluster

    def check(self, brokers: int) -> None:
        """Refuse a directory that is not a cluster of `count` brokers. An empty directory can become one."""
        if (self.directory / META_FILE).exists():
            raise CannotStart(
                f"{self.directory} contains the data of one broker: start it without --brokers, or give the cluster "
                "its own directory with --data-dir"
            )
        count = len(self.members())
        if count and count != brokers:
            raise CannotStart(
                f"{self.directory} contains a cluster of {count} brokers: start it with --brokers {count}, or give the "
                "new one its own directory with --data-dir"
            )

    def members(self) -> list[Member]:
        """The nodes of this cluster; there are none before `found`."""
        cluster = self._read()
        return [] if cluster is None else cluster.members

    def found(self, controller_ports: Iterable[int]) -> list[Member]:
        """A new cluster, with a node for each port."""
        chance = SystemRandom()
        members = [
            Member(node_id, port, id_to_text(random_id(chance)))
            for node_id, port in enumerate(controller_ports, 1)
        ]
        self._write(_Cluster(id_to_text(random_id(chance)), False, members))
        return members

    def format(self, records: Sequence[MetadataRecord] = ()) -> None:
        """Format the directories that are not formatted yet; a new cluster begins with these records. Raises
        CannotStart, WrongDirectory."""
        cluster = self._read()
        assert cluster is not None
        for member in cluster.members:
            self._format(member, cluster, records)
        if not cluster.is_formatted:
            self._write(cluster._replace(is_formatted=True))

    def _format(self, member: Member, cluster: "_Cluster", records: Sequence[MetadataRecord]) -> None:
        directory = str(self.data_dir(member.node_id))
        found = read_properties(self._files, directory)
        if found is not None:
            check_node(directory, found, member.node_id)
            check_cluster(directory, found, cluster.cluster_id)
            return
        if cluster.is_formatted:
            settings = self.settings_file(member.node_id)
            raise CannotStart(
                f"{directory} has lost its data: restore it from a backup, or let it join the cluster again with "
                f"'odradek format --config {settings} --cluster-id {cluster.cluster_id} --no-initial-controllers'"
            )
        properties = MetaProperties(cluster.cluster_id, member.node_id, id_from_text(member.directory_id))
        format_directory(self._files, directory, properties, _voters(cluster.members), records)

    def _read(self) -> "_Cluster | None":
        path = self.directory / CLUSTER_FILE
        try:
            content = json.loads(path.read_text("utf-8"))
            members = [Member(**one) for one in content["brokers"]]
            return _Cluster(content["cluster_id"], content["is_formatted"], members)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CannotStart(f"{path} cannot be read ({error!r}): restore it from a backup") from None

    def _write(self, cluster: "_Cluster") -> None:
        content = {
            "cluster_id": cluster.cluster_id,
            "is_formatted": cluster.is_formatted,
            "brokers": [member._asdict() for member in cluster.members],
        }
        write_atomically(self.directory / CLUSTER_FILE, json.dumps(content, indent=2) + "\n")

    # Their settings

    def write_settings(
        self,
        member: Member,
        members: list[Member],
        port: int,
        settings: Mapping[str, str],
        security: Mapping[str, str],
    ) -> None:
        """`settings` are those that are the same for all nodes, `security` those of a node with TLS and SASL."""
        listener = SECURE_LISTENER if security else LISTENER
        own = {
            "node.id": str(member.node_id),
            "process.roles": "broker,controller",
            "broker.rack": member.rack,
            "listeners": f"{listener}://{HOST}:{port},{CONTROLLER_LISTENER}://{HOST}:{member.controller_port}",
            "controller.listener.names": CONTROLLER_LISTENER,
            "controller.quorum.bootstrap.servers": ",".join(
                f"{HOST}:{one.controller_port}" for one in members
            ),
            "log.dirs": str(self.data_dir(member.node_id)),
        }
        shared = {key: text for key, text in settings.items() if key not in OWN_SETTINGS}
        text = "# 'odradek up --brokers' writes this file at every start.\n" + format_properties(
            own | shared | dict(security)
        )
        write_atomically(self.settings_file(member.node_id), text)


def _voters(members: list[Member]) -> VoterSet:
    return VoterSet(
        VoterNode(
            ReplicaKey(one.node_id, id_from_text(one.directory_id)),
            (Endpoint(CONTROLLER_LISTENER, HOST, one.controller_port),),
        )
        for one in members
    )


def write_atomically(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.part")
    with open(part, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
