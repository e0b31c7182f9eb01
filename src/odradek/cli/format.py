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
from typing import TYPE_CHECKING

from odradek.cli.command_parser import BAD_USAGE, CommandParser
from odradek.cli.up_failures import FAILED, fail, words_of
from odradek.cli.up_options import add_setting_option
from odradek.cli.up_settings import load_config

if TYPE_CHECKING:
    from odradek.metadata.node_format import Outcome
    from odradek.metadata.records import MetadataRecord

DESCRIPTION = """\
Format the data directory of a node: set the cluster it belongs to, and, on the first controllers, the voters. Do
this once, before the node's first start. A node that is the only controller does not need it: 'odradek up' and
'odradek broker' format an empty directory themselves, unless controller.quorum.bootstrap.servers names other nodes."""
EPILOG = """\
A cluster of three controllers, each formatted on its own machine with the same id and the same list:

\b
  odradek random-uuid        (once for the cluster, once for each controller)
  odradek format -c server.properties -t CLUSTER-ID \\
      -I 1@c1:9093:DIRECTORY-ID,2@c2:9093:DIRECTORY-ID,3@c3:9093:DIRECTORY-ID

A broker, or a controller that will become a voter later:

\b
  odradek format -c server.properties -t CLUSTER-ID -N

docs/CLUSTER.md walks through it.

Exit status: 0 formatted (or already formatted, with --ignore-formatted), 1 could not be formatted, 2 bad option or
setting."""


def main(arguments: Sequence[str]) -> int:
    options = parse_arguments(arguments)
    from odradek.cli.scram_option import EXPOSED, BadScram, exposes_a_password
    from odradek.config.definition import ConfigError
    from odradek.metadata.node_format import BadUsage, CannotFormat, format_node
    from odradek.metadata.properties import WrongDirectory
    from odradek.storage.disk.files import DataDirectoryLocked, DiskFiles

    try:
        if any(exposes_a_password(text) for text in options.add_scram):
            print(f"Warning: {EXPOSED}", file=sys.stderr)
        config = load_config(options, os.environ)
        chance, name = random.SystemRandom(), socket.gethostname()
        outcome = format_node(DiskFiles(), config, options, name, chance, lambda: first_records(options))
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
    uuid_parser().parse_args(arguments)
    from odradek.metadata.properties import random_id
    from odradek.model import id_to_text

    print(id_to_text(random_id(random.SystemRandom())))
    return 0


def uuid_parser() -> argparse.ArgumentParser:
    description = "Print a new id, for a cluster or for the directory of a controller (see 'odradek format')."
    return CommandParser("random-uuid", description)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    options = argument_parser().parse_args(arguments)
    options.command, options.port = "broker", None
    return options


def argument_parser() -> argparse.ArgumentParser:
    parser = CommandParser("format", DESCRIPTION, EPILOG)
    parser.add_argument(
        *("-c", "--config"),
        type=Path,
        metavar="FILE",
        required=True,
        help="The node's settings, as .properties or .toml.",
    )
    parser.add_argument(
        "-t",
        "--cluster-id",
        metavar="ID",
        help="Id of the cluster; if not given, a new one is generated and printed.",
    )
    add_voter_options(parser)
    parser.add_argument(
        *("-S", "--add-scram"),
        action="append",
        default=[],
        metavar="SCRAM",
        help="A user of the new cluster, as 'SCRAM-SHA-512=[name=NAME,password-file=FILE]'; without a password, it is "
        "asked for. The same on each of the first controllers.",
    )
    parser.add_argument(
        *("-g", "--ignore-formatted"),
        action="store_true",
        help="Succeed if the directory is already formatted for this node and cluster.",
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="Instead of the file's log.dirs.")
    add_setting_option(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        help="Print one JSON line: data_dir, cluster_id, node_id, directory_id, voters, formatted.",
    )
    return parser


def add_voter_options(parser: argparse.ArgumentParser) -> None:
    first = parser.add_mutually_exclusive_group()
    first.add_argument(
        "-s",
        "--standalone",
        action="store_true",
        help="This node is the only voter; others may be added later.",
    )
    first.add_argument(
        *("-I", "--initial-controllers"),
        metavar="LIST",
        help="The first voters, as ID@HOST:PORT:DIRECTORY-ID with commas; the same list on each. This node gets the "
        "directory id of its entry.",
    )
    first.add_argument(
        *("-N", "--no-initial-controllers"),
        action="store_true",
        help="This node joins a cluster that already has voters.",
    )


def first_records(options: argparse.Namespace) -> "list[MetadataRecord]":
    """The users that a new cluster begins with, and the secret of those that it does not have. Raises BadScram."""
    if not options.add_scram:
        return []
    import getpass

    from odradek.cli.scram_option import parse_scram
    from odradek.controller.requests.alter_user_scram_credentials import decoys_record

    records = [parse_scram(text, os.environ, getpass.getpass) for text in options.add_scram]
    return [decoys_record(random.SystemRandom()), *records]


# Output


def tell(outcome: "Outcome", as_json: bool) -> None:
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
PARSERS = {"format": argument_parser, "random-uuid": uuid_parser}
