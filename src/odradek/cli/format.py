"""`odradek format` and `odradek random-uuid`: format the data directory of a node, once, before its first start.

The flags are those of Kafka's `kafka-storage format`. Only the standard library and the modules that write the
directory are imported here, as in `up`.
"""

import argparse
import os
import random
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from odradek.cli.up import BAD_USAGE, FAILED, fail, load_config, setting, words_of

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.config.broker import BrokerConfig
    from odradek.metadata.properties import MetaProperties
    from odradek.metadata.records import MetadataRecord
    from odradek.raft.voters import VoterNode, VoterSet
    from odradek.storage.disk.files import Files

MAX_NODE_ID = 2**31 - 1

DESCRIPTION = """\
Format the data directory of a node: set the cluster it belongs to, and, on the first controllers, the voters. Do
this once, before the node's first start. A node that is the only controller does not need it: 'odradek up' and
'odradek broker' format an empty directory themselves, unless controller.quorum.bootstrap.servers names other nodes."""
EPILOG = """\
A cluster of three controllers, each formatted on its own machine with the same id and the same list:

  odradek random-uuid                                         one for the cluster, one for each controller
  odradek format -c server.properties -t CLUSTER-ID \\
      -I 1@c1:9093:DIRECTORY-ID,2@c2:9093:DIRECTORY-ID,3@c3:9093:DIRECTORY-ID

A broker, or a controller that will become a voter later:

  odradek format -c server.properties -t CLUSTER-ID -N

docs/CLUSTER.md walks through it.

Exit status: 0 formatted (or already formatted, with --ignore-formatted), 1 could not be formatted, 2 bad option or
setting."""


class BadUsage(Exception):
    """The options make no sense; the message says why."""


class CannotFormat(Exception):
    """Why the directory was not formatted."""


class Outcome(NamedTuple):
    directory: str
    properties: "MetaProperties"
    voters: "VoterSet | None"  # None: the directory names none, or did so already
    was_formatted: bool


def main(arguments: Sequence[str]) -> int:
    options = parse_arguments(arguments)
    from odradek.cli.scram_option import EXPOSED, BadScram, exposes_a_password
    from odradek.config.definition import ConfigError
    from odradek.metadata.properties import WrongDirectory
    from odradek.storage.disk.files import DataDirectoryLocked, DiskFiles

    try:
        if any(exposes_a_password(text) for text in options.add_scram):
            print(f"Warning: {EXPOSED}", file=sys.stderr)
        config = load_config(options, os.environ)
        outcome = format_node(DiskFiles(), config, options, socket.gethostname())
    except BadScram as error:
        return fail(f"--add-scram: {error}", BAD_USAGE)
    except (BadUsage, ConfigError) as error:
        return fail(str(error), BAD_USAGE)
    except (CannotFormat, DataDirectoryLocked, WrongDirectory) as error:
        return fail(str(error), FAILED)
    except OSError as error:
        return fail(words_of(error), FAILED)
    tell(outcome, options.json)
    return 0


def print_random_uuid(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        "odradek random-uuid",
        description="Print a new id, for a cluster or for the directory of a controller (see 'odradek format').",
    )
    parser.parse_args(arguments)
    from odradek.metadata.properties import random_id
    from odradek.model import id_to_text

    print(id_to_text(random_id(random.SystemRandom())))
    return 0


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    options = argument_parser().parse_args(arguments)
    options.command, options.port = "broker", None
    return options


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "odradek format",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        *("-c", "--config"),
        type=Path,
        metavar="FILE",
        required=True,
        help="the node's settings, as .properties or .toml",
    )
    parser.add_argument(
        "-t",
        "--cluster-id",
        metavar="ID",
        help="id of the cluster; if not given, a new one is generated and printed",
    )
    add_voter_options(parser)
    parser.add_argument(
        *("-S", "--add-scram"),
        action="append",
        default=[],
        metavar="SCRAM",
        help="a user of the new cluster, as 'SCRAM-SHA-512=[name=NAME,password-file=FILE]'; without a password, it is "
        "asked for. The same on each of the first controllers",
    )
    parser.add_argument(
        *("-g", "--ignore-formatted"),
        action="store_true",
        help="succeed if the directory is already formatted for this node and cluster",
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="instead of the file's log.dirs")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="one setting; repeatable",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON line: data_dir, cluster_id, node_id, directory_id, voters, formatted",
    )
    return parser


def add_voter_options(parser: argparse.ArgumentParser) -> None:
    first = parser.add_mutually_exclusive_group()
    first.add_argument(
        "-s",
        "--standalone",
        action="store_true",
        help="this node is the only voter; others may be added later",
    )
    first.add_argument(
        *("-I", "--initial-controllers"),
        metavar="LIST",
        help="the first voters, as ID@HOST:PORT:DIRECTORY-ID with commas; the same list on each. This node gets the "
        "directory id of its entry",
    )
    first.add_argument(
        *("-N", "--no-initial-controllers"),
        action="store_true",
        help="this node joins a cluster that already has voters",
    )


# What to write


def format_node(
    files: "Files", config: "BrokerConfig", options: argparse.Namespace, hostname: str
) -> Outcome:
    """Format the directory of a node, unless it is formatted already. Raises BadUsage, CannotFormat, WrongDirectory."""
    from odradek.metadata.formatting import format_directory, make_data_directory
    from odradek.metadata.properties import read_properties
    from odradek.storage.store import LOCK_FILE

    properties, voters = plan(config, options, hostname)
    directory = str(config.log_dirs[0])
    make_data_directory(files, directory)
    lock = files.lock(f"{directory}/{LOCK_FILE}")
    try:
        found = read_properties(files, directory)
        if found is not None:
            check_formatted(directory, found, properties, options)
            return Outcome(directory, found, None, was_formatted=True)
        format_directory(files, directory, properties, voters, first_records(options))
        return Outcome(directory, properties, voters, was_formatted=False)
    finally:
        lock.release()


def plan(
    config: "BrokerConfig", options: argparse.Namespace, hostname: str
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
    properties = new_properties(config.node_id, random.SystemRandom(), options.cluster_id, directory_id)
    if config.is_controller and not listed and not options.no_initial_controllers:
        voters = only_voter(config, properties, hostname)
    return properties, voters


def first_records(options: argparse.Namespace) -> "list[MetadataRecord]":
    """The users that a new cluster begins with, and the secret of those that it does not have."""
    if not options.add_scram:
        return []
    import getpass

    from odradek.cli.scram_option import BadScram, parse_scram
    from odradek.controller.requests.alter_user_scram_credentials import decoys_record

    try:
        records = [parse_scram(text, os.environ, getpass.getpass) for text in options.add_scram]
    except BadScram as error:
        raise BadUsage(f"--add-scram: {error}") from None
    return [decoys_record(random.SystemRandom()), *records]


def check_choice(config: "BrokerConfig", options: argparse.Namespace, hostname: str) -> None:
    is_first = options.standalone or options.initial_controllers is not None
    if options.add_scram and (options.no_initial_controllers or not config.is_controller):
        raise BadUsage(
            "--add-scram is for the first controllers of a new cluster; later, 'odradek user add' adds users"
        )
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
    directory: str, found: "MetaProperties", wanted: "MetaProperties", options: argparse.Namespace
) -> None:
    """Whether that matches the options."""
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


# Output


def tell(outcome: Outcome, as_json: bool) -> None:
    from odradek.model import id_to_text

    cluster_id, node_id, directory_id = outcome.properties
    if as_json:
        import json

        facts = {
            "data_dir": outcome.directory,
            "cluster_id": cluster_id,
            "node_id": node_id,
            "directory_id": id_to_text(directory_id),
            "voters": [voter.key.node_id for voter in outcome.voters or ()],
            "formatted": not outcome.was_formatted,
        }
        print(json.dumps(facts))
        return
    what = "Formatted already" if outcome.was_formatted else "Formatted"
    ids = f"cluster {cluster_id}, node {node_id}, directory id {id_to_text(directory_id)}"
    print(f"{what}: {outcome.directory}, {ids}")
    if outcome.voters is not None:
        print(f"First voters: {', '.join(str(voter.key.node_id) for voter in outcome.voters)}")


COMMANDS = {"format": main, "random-uuid": print_random_uuid}
