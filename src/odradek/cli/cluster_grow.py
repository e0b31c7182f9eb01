"""`odradek cluster grow`: spread over all its nodes what a cluster has on some of them (`admin.growth`)."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from odradek.admin.access import Access, read_settings
from odradek.cli.arguments import JsonOutput
from odradek.cli.framework import Option
from odradek.cli.output import print_json, print_line
from odradek.cli.topic_reassign import Throttle
from odradek.wording import counted, joined

MIN_IN_SYNC = "min.insync.replicas"
DEFAULT_TIMEOUT_S = 300


def grow(
    cluster: Access,
    brokers: Annotated[
        int | None,
        Option(
            "--brokers",
            min=1,
            help="Wait until there are so many brokers; without it, for those that are registered.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        Option(
            "--replication-factor",
            min=1,
            max=32_767,
            help="Replicas of every partition, at least (default: 3, or the number of brokers).",
        ),
    ] = None,
    throttle: Throttle = None,
    timeout: Annotated[
        int, Option("--timeout", metavar="SECONDS", min=1, help="How long to wait for brokers.")
    ] = DEFAULT_TIMEOUT_S,
    controller_config: Annotated[
        Path | None,
        Option(
            "--controller-config",
            metavar="FILE",
            help="Client settings for the listeners of controllers, where these differ from --command-config.",
        ),
    ] = None,
    as_json: JsonOutput = False,
) -> None:
    """Spread the partitions of a cluster over all of its brokers, and give votes to its new controllers.

    Start the new nodes first: 'odradek up --join HOST:PORT --data-dir DIR', or with settings files of their own. Every
    topic then gets three replicas, or as many as there are brokers; replicas and leaders are evened out; and with three
    replicas, two must have a record before it is acknowledged (min.insync.replicas). Clients are never stopped. An
    interrupted command is run again: it continues where it was.
    """
    from odradek.admin.growth import carry_out_growth
    from odradek.cli.watching import TerminalWatcher

    if controller_config is not None:
        cluster.of_controllers = read_settings(controller_config)
    growth = carry_out_growth(cluster, brokers, replication_factor, throttle, timeout, TerminalWatcher())
    if as_json:
        print_json(asdict(growth))
    else:
        print_line(
            f"{counted(len(growth.brokers), 'broker')} ({joined(growth.brokers)}), "
            f"{counted(growth.replication_factor, 'replica')} of each partition, "
            f"{MIN_IN_SYNC}={growth.min_insync_replicas}."
        )
