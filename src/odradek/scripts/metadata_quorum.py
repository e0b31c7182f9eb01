"""kafka-metadata-quorum.sh: describe the metadata quorum, add and remove its controllers."""

import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from odradek.admin.access import Access, read_settings
from odradek.admin.metadata import metadata
from odradek.admin.quorum import DESCRIBE, add_controller, at_leader, code_of, remove_controller, voter_in
from odradek.model import id_to_text
from odradek.scripts.options import Exit
from odradek.scripts.running import print_line
from odradek.scripts.table import print_table
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumResponse,
    PartitionDataInResponse,
    ReplicaState,
)

HEADER = (
    *("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp"),
    "Status",
)


def parser() -> ArgumentParser:
    found = ArgumentParser(
        "kafka-metadata-quorum",
        description="This tool describes kraft metadata quorum status.",
        allow_abbrev=False,
    )
    where = found.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", help="host:port pairs of brokers")
    where.add_argument("--bootstrap-controller", help="host:port pairs of controllers")
    found.add_argument(
        "--command-config", type=Path, help="Property file for the client; of the controller to add"
    )
    commands = found.add_subparsers(dest="command", required=True)
    describe = commands.add_parser("describe", help="Describe the metadata quorum info")
    describe.add_argument("--status", action="store_true", help="A short summary of the quorum status.")
    describe.add_argument("--replication", action="store_true", help="The status of replication")
    describe.add_argument("--human-readable", action="store_true", help="Human-readable output")
    add = commands.add_parser("add-controller", help="Add a controller to the KRaft controller cluster")
    add.add_argument("--dry-run", action="store_true", help="True if we should print what would be done")
    remove = commands.add_parser("remove-controller", help="Remove a controller from the cluster")
    remove.add_argument("--controller-id", "-i", type=int, required=True, help="The id of the controller")
    remove.add_argument("--controller-directory-id", "-d", required=True, help="Its directory ID")
    remove.add_argument("--dry-run", action="store_true", help="True if we should print what would be done")
    return found


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    config = options.command_config
    settings = read_settings(config) if config and options.command != "add-controller" else {}
    cluster = Access(options.bootstrap_server or options.bootstrap_controller, settings, "odradek-scripts")
    {"describe": describe, "add-controller": add, "remove-controller": remove}[options.command](
        cluster, options
    )
    return 0


def describe(cluster: Access, options: Namespace) -> None:
    if options.status == options.replication:
        raise Exit(1, "Only one of --status or --replication should be specified with describe sub-command")
    if options.status and options.human_readable:
        raise Exit(1, "The option --human-readable is only supported along with --replication")
    response = at_leader(cluster, DESCRIBE, DescribeQuorumResponse, code_of)
    (found,) = response.topics[0].partitions
    if options.replication:
        show_replication(found, options.human_readable)
    else:
        show_status(cluster, response, found)


def leader_in(found: PartitionDataInResponse) -> ReplicaState:
    return next(one for one in found.current_voters if one.replica_id == found.leader_id)


def show_replication(found: PartitionDataInResponse, is_human: bool) -> None:
    leader = leader_in(found)
    followers = [one for one in found.current_voters if one is not leader]
    kinds = (("Leader", [leader]), ("Follower", followers), ("Observer", found.observers))
    print_table(
        HEADER,
        [
            (
                one.replica_id,
                id_to_text(one.replica_directory_id),
                one.log_end_offset,
                leader.log_end_offset - one.log_end_offset,
                _time(one.last_fetch_timestamp, is_human),
                _time(one.last_caught_up_timestamp, is_human),
                kind,
            )
            for kind, replicas in kinds
            for one in replicas
        ],
    )


def _time(time_ms: int, is_human: bool) -> str:
    if time_ms < 0 or not is_human:
        return str(time_ms)
    return f"{max(time.time_ns() // 1_000_000 - time_ms, 0)} ms ago"


def show_status(cluster: Access, response: DescribeQuorumResponse, found: PartitionDataInResponse) -> None:
    leader = leader_in(found)
    slowest = min(found.current_voters, key=lambda one: one.log_end_offset)
    behind_ms = -1
    if slowest is leader or slowest.log_end_offset == leader.log_end_offset:
        behind_ms = 0
    elif min(leader.last_caught_up_timestamp, slowest.last_caught_up_timestamp) >= 0:
        behind_ms = leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp
    endpoints = {
        node.node_id: [f"{one.name}://{one.host}:{one.port}" for one in node.listeners]
        for node in response.nodes
    }
    for name, value in (
        ("ClusterId", metadata(cluster).cluster_id),
        ("LeaderId", found.leader_id),
        ("LeaderEpoch", found.leader_epoch),
        ("HighWatermark", found.high_watermark),
        ("MaxFollowerLag", leader.log_end_offset - slowest.log_end_offset),
        ("MaxFollowerLagTimeMs", behind_ms),
        ("CurrentVoters", _replicas(found.current_voters, endpoints)),
        ("CurrentObservers", _replicas(found.observers, endpoints)),
    ):
        print_line(f"{name + ':':<24}{value}")


def _replicas(replicas: Sequence[ReplicaState], endpoints: dict[int, list[str]]) -> str:
    return json.dumps(
        [
            {
                "id": one.replica_id,
                "directoryId": id_to_text(one.replica_directory_id) if one.replica_directory_id.int else None,
            }
            | ({"endpoints": endpoints[one.replica_id]} if endpoints.get(one.replica_id) else {})
            for one in replicas
        ]
    )


def add(cluster: Access, options: Namespace) -> None:
    if options.command_config is None:
        raise Exit(
            1,
            "You must supply the configuration file of the controller you are adding when using add-controller.",
        )
    request = voter_in(options.command_config)
    if not options.dry_run:
        add_controller(cluster, request)
    listeners = ", ".join(f"{one.name}://{one.host}:{one.port}" for one in request.listeners)
    did = "DRY RUN of adding" if options.dry_run else "Added"
    print_line(
        f"{did} controller {request.voter_id} with directory id {id_to_text(request.voter_directory_id)} and "
        f"endpoints: {listeners}"
    )


def remove(cluster: Access, options: Namespace) -> None:
    if not options.dry_run:
        remove_controller(cluster, options.controller_id, options.controller_directory_id)
    did = "DRY RUN of removing" if options.dry_run else "Removed"
    dry = (
        f"{did} KRaft controller {options.controller_id} with directory id {options.controller_directory_id}"
    )
    print_line(dry)
