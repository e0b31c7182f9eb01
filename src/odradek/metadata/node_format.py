"""Formats the data directory of a node, once, before its first start: for `odradek format` and `kafka-storage.sh`."""

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random
    from uuid import UUID

    from odradek.config.broker import BrokerConfig
    from odradek.metadata.properties import MetaProperties
    from odradek.metadata.records import MetadataRecord
    from odradek.raft.voters import VoterNode, VoterSet
    from odradek.storage.disk.files import Files

MAX_NODE_ID = 2**31 - 1


class Wanted(Protocol):
    """The options, by Kafka's names."""

    @property
    def cluster_id(self) -> str | None: ...
    @property
    def standalone(self) -> bool: ...
    @property
    def initial_controllers(self) -> str | None: ...
    @property
    def no_initial_controllers(self) -> bool: ...
    @property
    def ignore_formatted(self) -> bool: ...


class BadUsage(Exception):
    """The options make no sense; the message says why."""


class CannotFormat(Exception):
    """Why the directory was not formatted."""


class Outcome(NamedTuple):
    directory: str
    properties: "MetaProperties"
    voters: "VoterSet | None"  # None: the directory names none, or did so already
    was_formatted: bool


# What to write


def format_node(
    files: "Files",
    config: "BrokerConfig",
    options: Wanted,
    hostname: str,
    rng: "Random",
    first_records: "Callable[[], Sequence[MetadataRecord]]" = tuple,
) -> Outcome:
    """Format the directory of a node, unless it is formatted already. A new cluster begins with `first_records`. Raises
    BadUsage, CannotFormat, WrongDirectory."""
    from odradek.metadata.formatting import format_directory, make_data_directory
    from odradek.metadata.properties import read_properties
    from odradek.storage.store import LOCK_FILE

    properties, voters = plan(config, options, hostname, rng)
    directory = str(config.log_dirs[0])
    make_data_directory(files, directory)
    lock = files.lock(f"{directory}/{LOCK_FILE}")
    try:
        found = read_properties(files, directory)
        if found is not None:
            check_formatted(directory, found, properties, options)
            return Outcome(directory, found, None, was_formatted=True)
        records = first_records()
        if records and (options.no_initial_controllers or not config.is_controller):
            raise BadUsage(
                "--add-scram is for the first controllers of a new cluster; later, 'odradek user add' adds users"
            )
        format_directory(files, directory, properties, voters, records)
        return Outcome(directory, properties, voters, was_formatted=False)
    finally:
        lock.release()


def plan(
    config: "BrokerConfig", options: Wanted, hostname: str, rng: "Random"
) -> "tuple[MetaProperties, VoterSet | None]":
    """The node and cluster that the directory will belong to, and the first voters, if it should name them."""
    from odradek.metadata.formatting import new_properties
    from odradek.raft.voters import VoterSet

    if options.cluster_id is not None:
        parse_id("--cluster-id", options.cluster_id)
    check_choice(config, options, hostname)
    listed = options.initial_controllers
    voters = VoterSet(parse_controllers(listed, config.controller_listener_names[0])) if listed else None
    own = voters.get(config.node_id) if voters is not None else None
    if voters is not None and own is None:
        raise BadUsage(
            f"--initial-controllers does not name this node, which has node.id={config.node_id}: add it, or format "
            "with --no-initial-controllers if it will become a voter later"
        )
    directory_id = own.key.directory_id if own is not None else None
    properties = new_properties(config.node_id, rng, options.cluster_id, directory_id)
    if config.is_controller and not listed and not options.no_initial_controllers:
        voters = only_voter(config, properties, hostname)
    return properties, voters


def check_choice(config: "BrokerConfig", options: Wanted, hostname: str) -> None:
    is_first = options.standalone or options.initial_controllers is not None
    names_a_quorum = config.names_a_quorum(hostname)
    if is_first and not config.is_controller:
        raise BadUsage(
            "only a controller is formatted with --standalone or --initial-controllers, and this node's "
            "process.roles is broker"
        )
    if options.no_initial_controllers and not names_a_quorum:
        raise BadUsage(
            "--no-initial-controllers is for a node that joins others, but controller.quorum.bootstrap.servers names "
            "none"
        )
    if config.is_controller and names_a_quorum and not is_first and not options.no_initial_controllers:
        raise BadUsage(
            "controller.quorum.bootstrap.servers names a quorum: say how this controller takes part in it, with "
            "--initial-controllers, --standalone or --no-initial-controllers"
        )
    if names_a_quorum and not is_first and options.cluster_id is None:
        raise BadUsage("a node that joins a cluster needs its id: --cluster-id")


def only_voter(config: "BrokerConfig", properties: "MetaProperties", hostname: str) -> "VoterSet | None":
    """This node. If its port is not known yet, no other node can join, and the node records itself later."""
    from odradek.raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet

    listener = config.advertised_listeners(config.controller_listeners, hostname)[0]
    if listener.port == 0:
        if config.names_a_quorum(hostname):
            raise BadUsage(f"the other nodes need a port to reach {listener.name}: set one in listeners")
        return None
    key = ReplicaKey(properties.node_id, properties.directory_id)
    return VoterSet((VoterNode(key, (Endpoint(*listener[:3]),)),))


def check_formatted(
    directory: str, found: "MetaProperties", wanted: "MetaProperties", options: Wanted
) -> None:
    """Raise ConfigError if the directory does not match the options."""
    from odradek.metadata.properties import check_cluster, check_directory, check_node

    if not options.ignore_formatted:
        raise CannotFormat(
            f"{directory} is formatted already, for node {found.node_id} of cluster {found.cluster_id}: nothing was "
            "changed"
        )
    check_node(directory, found, wanted.node_id)
    if options.cluster_id is not None:
        check_cluster(directory, found, options.cluster_id)
    if options.initial_controllers is not None:
        check_directory(directory, found, wanted.directory_id)


# Parsing the options


def parse_controllers(text: str, listener: str) -> "list[VoterNode]":
    voters = [parse_controller(item.strip(), listener) for item in text.split(",")]
    for what, values in (
        ("id", [voter.key.node_id for voter in voters]),
        ("directory id", [voter.key.directory_id for voter in voters]),
        ("address", [voter.endpoints for voter in voters]),
    ):
        if len(set(values)) < len(values):
            raise BadUsage(f"--initial-controllers {text}: each controller needs its own {what}")
    return voters


def parse_controller(item: str, listener: str) -> "VoterNode":
    """ID@HOST:PORT:DIRECTORY-ID"""
    from odradek.config.listeners import parse_server
    from odradek.raft.voters import Endpoint, ReplicaKey, VoterNode

    node_id, at, rest = item.partition("@")
    address, colon, directory_id = rest.rpartition(":")
    if not at or not colon or not node_id.isdecimal():
        raise BadUsage(f"--initial-controllers: {item!r} is not of the form ID@HOST:PORT:DIRECTORY-ID")
    if int(node_id) > MAX_NODE_ID:
        raise BadUsage(f"--initial-controllers: the node id {node_id} is larger than {MAX_NODE_ID}")
    try:
        server = parse_server(address)
    except ValueError as error:
        raise BadUsage(
            f"--initial-controllers: {item!r} is not of the form ID@HOST:PORT:DIRECTORY-ID: {error}"
        ) from None
    key = ReplicaKey(int(node_id), parse_id("--initial-controllers", directory_id))
    return VoterNode(key, (Endpoint(listener, *server),))


def parse_id(option: str, text: str) -> "UUID":
    from odradek.metadata.properties import RESERVED_IDS
    from odradek.model import id_from_text, id_to_text

    try:
        found = id_from_text(text)
    except ValueError:
        found = None
    if found is None or found.int <= RESERVED_IDS or id_to_text(found) != text:
        raise BadUsage(f"{option}: {text!r} is not an id like those that 'odradek random-uuid' prints")
    return found
