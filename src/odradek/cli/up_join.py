"""`odradek up --join HOST:PORT`: a new node for a cluster that is running.

    DIR/node.properties    the node's settings, written when it joins
    DIR                    its data

The cluster says the rest: its id, where its controllers are, and which node ids are taken; `up_claim` gets a free one.
The node is a broker and a controller without a vote; `odradek cluster grow` gives it partitions and, if that makes a
better quorum, a vote. When the directory is formatted already, the node is the same one again, on the same ports, and
needs the cluster's address only to learn of controllers that have moved meanwhile.

A protected cluster is joined with a settings file (`--config`) that has the node's listeners, certificates and logins:
the node asks the cluster as it will talk to it later, so HOST:PORT is a listener that its brokers use among themselves.
"""

import argparse
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from typing import NamedTuple

from odradek.cli.up_claim import claim_id, free_id
from odradek.cli.up_cluster import OPEN, BadUsage, CannotJoin, Cluster, Way, describe, way_to_brokers
from odradek.cli.up_home import write_atomically
from odradek.cli.up_ports import IS_SHARED, PortInUse, Reservation
from odradek.cli.up_settings import DEFAULT_PORT, HOST
from odradek.config.broker import BrokerConfig
from odradek.config.roles import BROKER, CONTROLLER
from odradek.config.sources import format_properties, read_file
from odradek.metadata.formatting import format_directory, make_data_directory, new_properties
from odradek.metadata.properties import check_cluster, read_properties
from odradek.storage.disk.files import DiskFiles
from odradek.storage.store import LOCK_FILE

log = logging.getLogger("odradek.up")

SETTINGS_FILE = "node.properties"
BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"
ROLES, LISTENERS, NODE_ID = "process.roles", "listeners", "node.id"
DEFAULT_ROLES = "broker,controller"
PROTOCOLS = {"listener.security.protocol.map", "security.inter.broker.protocol"}
PORTS_TRIED = 100
HEADER = (
    "# 'odradek up --join' wrote this file. 'odradek broker --config' with it starts the node as a service.\n"
)


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
        given = read_file(file) if identity is not None else given_by(options)
        cluster = describe(options.join, _way(given))
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
    return found(options, directory, cluster)


def given_by(options: argparse.Namespace) -> dict[str, str]:
    return (read_file(options.config) if options.config else {}) | dict(options.set)


def _way(given: Mapping[str, str]) -> Way:
    """Read the way to the cluster's brokers from a joining node's settings; settings that protect must be complete."""
    if PROTOCOLS.isdisjoint(given):
        return OPEN
    return way_to_brokers(
        BrokerConfig({NODE_ID: "1", ROLES: DEFAULT_ROLES, BOOTSTRAP_SERVERS: "localhost:1", **given})
    )


def found(options: argparse.Namespace, directory: Path, cluster: Cluster) -> Joining:
    """A new node: choose its id and ports, write its settings, and then its identity."""
    files = DiskFiles()
    given = given_by(options)
    ports = [] if LISTENERS in given else reserve(options.port)
    settings = settings_of(given, directory, cluster, [one.port for one in ports])
    directory.parent.mkdir(parents=True, exist_ok=True)
    make_data_directory(files, str(directory))
    lock = files.lock(str(directory / LOCK_FILE))
    try:
        properties = new_properties(int(settings[NODE_ID]), SystemRandom(), cluster.id)
        if NODE_ID not in given and BROKER in settings[ROLES]:
            properties = claim_id(options.join, cluster, properties, settings)
            settings[NODE_ID] = str(properties.node_id)
        write_atomically(directory / SETTINGS_FILE, HEADER + format_properties(settings))
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
    if CONTROLLER not in settings[ROLES] and ports:
        settings[LISTENERS] = settings[LISTENERS].partition(",")[0]
    return settings


def reserve(port: int | None) -> list[Reservation]:
    """Reserve ports for clients and for controllers. Without a wish, clients get the usual port, or the next free one:
    those of the nodes on one machine are easy to tell."""
    clients = Reservation(port) if port is not None else next_free(DEFAULT_PORT)
    try:
        return [clients, Reservation()]
    except BaseException:
        clients.release()
        raise


def next_free(first: int) -> Reservation:
    for port in range(first, first + PORTS_TRIED):
        with suppress(PortInUse):
            return Reservation(port)
    return Reservation()
