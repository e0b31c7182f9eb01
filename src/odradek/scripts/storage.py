"""kafka-storage.sh: format the log directories of a node, and say what is in them."""

import random
import socket
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from odradek.config.broker import BrokerConfig, load_broker_config
from odradek.config.definition import ConfigError
from odradek.metadata.node_format import BadUsage, CannotFormat, format_node
from odradek.metadata.properties import WrongDirectory, random_id, read_properties
from odradek.model import id_to_text
from odradek.scripts.options import UNSUPPORTED, Exit
from odradek.scripts.running import print_line
from odradek.storage.disk.files import DataDirectoryLocked, DiskFiles

METADATA_VERSION = "4.3-IV0"
NOT_HERE = ("version-mapping", "feature-dependencies")


def parser() -> ArgumentParser:
    found = ArgumentParser("kafka-storage", description="The Kafka storage tool.", allow_abbrev=False)
    commands = found.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="Get information about the Kafka log directories on this node.")
    info.add_argument("--config", "-c", type=Path, required=True, help="The Kafka configuration file to use.")
    make = commands.add_parser("format", help="Format the Kafka log directories on this node.")
    make.add_argument("--config", "-c", type=Path, required=True, help="The Kafka configuration file to use.")
    make.add_argument("--cluster-id", "-t", required=True, help="The cluster ID to use.")
    make.add_argument("--add-scram", "-S", action="append", help=UNSUPPORTED)
    make.add_argument("--ignore-formatted", "-g", action="store_true", help="Skip formatted directories.")
    make.add_argument("--release-version", "-r", help=UNSUPPORTED)
    make.add_argument("--feature", "-f", action="append", help=UNSUPPORTED)
    first = make.add_mutually_exclusive_group()
    first.add_argument("--standalone", "-s", action="store_true", help="A quorum of this node alone.")
    first.add_argument("--no-initial-controllers", "-N", action="store_true", help="Join a quorum later.")
    first.add_argument("--initial-controllers", "-I", help="ID@HOST:PORT:DIRECTORY-ID, with commas.")
    for name in NOT_HERE:
        one = commands.add_parser(name, help=UNSUPPORTED)
        one.add_argument("--release-version", "-r", help=UNSUPPORTED)
        one.add_argument("--feature", "-f", action="append", help=UNSUPPORTED)
    commands.add_parser("random-uuid", help="Print a random UUID.")
    return found


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    if options.command in NOT_HERE:
        raise Exit(1, f"The command {options.command} is {UNSUPPORTED}")
    if options.command == "random-uuid":
        print_line(id_to_text(random_id(random.SystemRandom())))
        return 0
    try:
        config = load_broker_config(options.config, {}, {})
        return info(config) if options.command == "info" else make(config, options)
    except (BadUsage, ConfigError, CannotFormat, WrongDirectory, DataDirectoryLocked, OSError) as error:
        raise Exit(1, str(error)) from None


def info(config: BrokerConfig) -> int:
    print_line("Found log directory:")
    for directory in config.log_dirs:
        print_line(f"  {directory}")
    found = read_properties(DiskFiles(), str(config.log_dirs[0]))
    if found is None:
        print_line(f"\nFound problem:\n  {config.log_dirs[0]} is not formatted.")
        return 1
    cluster_id, node_id, directory_id = found
    fields = f"cluster.id={cluster_id}, directory.id={id_to_text(directory_id)}, node.id={node_id}, version=1"
    print_line(f"\nFound metadata: {{{fields}}}\n")
    return 0


def make(config: BrokerConfig, options: Namespace) -> int:
    for name in ("add_scram", "release_version", "feature"):
        if getattr(options, name):
            raise Exit(1, f"Option --{name.replace('_', '-')} is {UNSUPPORTED}")
    outcome = format_node(DiskFiles(), config, options, socket.gethostname(), random.SystemRandom())
    if outcome.was_formatted:
        print_line("All of the log directories are already formatted.")
    else:
        print_line(
            f"Formatting metadata directory {outcome.directory} with metadata.version {METADATA_VERSION}."
        )
    sys.stdout.flush()
    return 0
