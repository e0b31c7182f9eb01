"""`odradek up --join HOST:PORT`: a new node for a cluster that is running.

    DIR/node.properties    the node's settings, written when it joins
    DIR                    its data

The cluster says the rest: its id, where its controllers are, and which node ids are taken. The node is a broker and a
controller without a vote; `odradek cluster grow` gives it partitions and, if that makes a better quorum, a vote. When
the directory is formatted already, the node is the same one again, on the same ports, and needs the cluster's address
only to learn of controllers that have moved meanwhile.
"""

import argparse
import logging
from collections.abc import Mapping
from pathlib import Path
from random import SystemRandom
from typing import NamedTuple

from odradek.cli.up import DEFAULT_PORT, HOST
from odradek.cli.up_home import write_atomically
from odradek.cli.up_ports import IS_SHARED, PortInUse, Reservation
from odradek.client.connection import Connection, ConnectionLost
from odradek.client.settings import ClientSettings
from odradek.config.listeners import parse_server
from odradek.config.sources import format_properties, read_file
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.metadata.formatting import format_directory, make_data_directory, new_properties
from odradek.metadata.properties import check_cluster, read_properties
from odradek.model import METADATA_TOPIC
from odradek.storage.disk.files import DiskFiles
from odradek.storage.store import LOCK_FILE
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDataInRequest,
    TopicDataInRequest,
)

log = logging.getLogger("odradek.up")

SETTINGS_FILE = "node.properties"
BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"
ROLES, LISTENERS, NODE_ID = "process.roles", "listeners", "node.id"
DEFAULT_ROLES = "broker,controller"
DESCRIBE_CLUSTER = DescribeClusterRequest(include_fenced_brokers=True)
DESCRIBE_QUORUM = DescribeQuorumRequest([TopicDataInRequest(METADATA_TOPIC, [PartitionDataInRequest(0)])])
HEADER = (
    "# 'odradek up --join' wrote this file. 'odradek broker --config' with it starts the node as a service.\n"
)


class BadUsage(Exception):
    """The options make no sense; the message says why."""


class CannotJoin(Exception):
    """Why the node cannot join the cluster, in a sentence."""


class Cluster(NamedTuple):
    """What a new node must know of it."""

    id: str
    node_ids: set[int]  # that are taken
    controller_listener: str
    controllers: list[str]  # host:port of each voter


class Joining(NamedTuple):
    settings_file: Path
    ports: list[Reservation]  # to be released once the node has bound them

    def release(self) -> None:
        for port in self.ports:
            port.release()


def join(options: argparse.Namespace) -> Joining:
    """Prepare the node's directory, unless that has been done. Raises BadUsage, CannotJoin, WrongDirectory."""
    if options.data_dir is None:
        raise BadUsage("--join needs --data-dir: the node keeps its data and its identity there")
    directory = options.data_dir.absolute()
    file = directory / SETTINGS_FILE
    files = DiskFiles()
    identity = read_properties(files, str(directory))
    if identity is not None and not file.exists():
        raise CannotJoin(
            f"{directory} belongs to node {identity.node_id} already: start it with its own settings file"
        )
    try:
        cluster = describe(options.join)
    except CannotJoin as error:
        if identity is None:
            raise
        log.warning("starting without news of the cluster: %s", error)
        return Joining(file, [])
    if identity is not None:
        check_cluster(str(directory), identity, cluster.id)
        settings = read_file(file) | {BOOTSTRAP_SERVERS: ",".join(cluster.controllers)}
        write_atomically(file, HEADER + format_properties(settings))
        return Joining(file, [])
    return _found(options, directory, cluster)


def _found(options: argparse.Namespace, directory: Path, cluster: Cluster) -> Joining:
    """A new node: choose its id and ports, write its settings, and then its identity."""
    files = DiskFiles()
    given = (read_file(options.config) if options.config else {}) | dict(options.set)
    ports = [] if LISTENERS in given else reserve(options.port)
    settings = settings_of(given, directory, cluster, [one.port for one in ports])
    directory.parent.mkdir(parents=True, exist_ok=True)
    make_data_directory(files, str(directory))
    lock = files.lock(str(directory / LOCK_FILE))
    try:
        write_atomically(directory / SETTINGS_FILE, HEADER + format_properties(settings))
        properties = new_properties(int(settings[NODE_ID]), SystemRandom(), cluster.id)
        format_directory(files, str(directory), properties)
    finally:
        lock.release()
    log.info("node %s joins cluster %s, with its settings in %s", settings[NODE_ID], cluster.id, directory)
    joining = Joining(directory / SETTINGS_FILE, ports)
    if not IS_SHARED:
        joining.release()
    return joining


def settings_of(
    given: Mapping[str, str], directory: Path, cluster: Cluster, ports: list[int]
) -> dict[str, str]:
    """The user's settings, and ours for what they leave out."""
    own = {NODE_ID: str(free_id(cluster.node_ids)), ROLES: DEFAULT_ROLES}
    if ports:
        own[LISTENERS] = f"PLAINTEXT://{HOST}:{ports[0]},{cluster.controller_listener}://{HOST}:{ports[1]}"
    own["controller.listener.names"] = cluster.controller_listener
    fixed = {BOOTSTRAP_SERVERS: ",".join(cluster.controllers), "log.dirs": str(directory)}
    settings = own | dict(given) | fixed
    if not settings[NODE_ID].isdecimal():
        raise BadUsage(f"{NODE_ID}={settings[NODE_ID]} is not a number")
    if "controller" not in settings[ROLES] and ports:
        settings[LISTENERS] = settings[LISTENERS].partition(",")[0]
    return settings


def free_id(taken: set[int]) -> int:
    return max(taken, default=0) + 1


def reserve(port: int | None) -> list[Reservation]:
    """Ports for clients and for controllers. Without a wish, clients get the usual port if it is free."""
    if port is not None:
        clients = Reservation(port)
    else:
        try:
            clients = Reservation(DEFAULT_PORT)
        except PortInUse:
            clients = Reservation()
    try:
        return [clients, Reservation()]
    except BaseException:
        clients.release()
        raise


# The cluster


def describe(address: str) -> Cluster:
    """By way of one of its brokers."""
    try:
        server = parse_server(address)
    except ValueError as error:
        raise BadUsage(f"--join: {error}") from None
    try:
        connection = Connection(*server, ClientSettings((server,), client_id="odradek-up"))
        try:
            cluster = connection.call(DESCRIBE_CLUSTER, DescribeClusterResponse)
            _check(address, cluster.error_code, cluster.error_message)
            quorum = connection.call(DESCRIBE_QUORUM, DescribeQuorumResponse)
            _check(address, quorum.error_code, quorum.error_message)
        finally:
            connection.close()
    except (ConnectionLost, KafkaError, ProtocolError, OSError) as error:
        raise CannotJoin(f"the cluster cannot be reached: {error}") from None
    return _cluster_in(address, cluster, quorum)


def _cluster_in(address: str, cluster: DescribeClusterResponse, quorum: DescribeQuorumResponse) -> Cluster:
    (partition,) = quorum.topics[0].partitions
    _check(address, partition.error_code, partition.error_message)
    endpoints = [node.listeners[0] for node in quorum.nodes if node.listeners]
    if not endpoints:
        raise CannotJoin(
            f"the cluster at {address} does not say where its controllers are: its voters must be in its metadata "
            "log (kraft.version 1)"
        )
    replicas = [*partition.current_voters, *partition.observers]
    return Cluster(
        cluster.cluster_id,
        {one.broker_id for one in cluster.brokers} | {one.replica_id for one in replicas},
        endpoints[0].name,
        [f"{one.host}:{one.port}" for one in endpoints],
    )


def _check(address: str, code: int, message: str | None) -> None:
    if code:
        raise CannotJoin(f"the cluster at {address} cannot be described: {message or ErrorCode(code).name}")
